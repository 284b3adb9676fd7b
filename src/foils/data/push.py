"""Pushing tables of negatives to the Hugging Face hub, without paths of this machine: their last part stays."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from foils.data.negatives import Negatives
from foils.data.read import TABLE, fetched_table
from foils.data.sources import SourceLike, as_table
from foils.runtime.errors import FailureError, InputError
from foils.runtime.options import spelled
from foils.runtime.results import Result, Table

_PART = r"[^\s/\\\"'`<>|:*?,;()\[\]{}]"
_PATH = re.compile(rf"(?<![\w:/.<~\\-])(?:~?/(?:{_PART}+/)+|[A-Za-z]:\\(?:{_PART}+\\)*)(?P<last>{_PART}*)")
_NAME = re.compile(r"hf:[\w.-]+/[\w.-]+")
CARD = """---
{head}
---

# {title}

Hard negatives: one row for each query and document, with its source, its rank (from 0) and its score (the source's own,
higher is better). A row with `keep` false is rejected, for its `reason`. Ids are those of the collection that it was
mined from.

Columns: {columns}.

| | count |
|---|---:|
{counts}

```console
$ foils score COLLECTION hf:{name}
```

## How it was made

```json
{made}
```

SHA-256 of `{file}`: `{digest}`
"""


def last_parts(value: Any) -> Any:
    """Return JSON's value, or a text, with the last part in place of every absolute path in it."""
    if isinstance(value, dict):
        return {key: last_parts(each) for key, each in value.items()}
    if isinstance(value, list):
        return [last_parts(each) for each in value]
    return _PATH.sub(lambda path: path["last"] or "…", value) if isinstance(value, str) else value


def table_card(negatives: Negatives, name: str, license: str, *, digest: str) -> str:
    """Return the card of a table: what it holds, its numbers, how it was made, and how it is read again.

    Args:
        negatives: the table.
        name: of the repository, OWNER/NAME.
        license: an identifier of the hub's.
        digest: SHA-256 of the file.
    """
    from huggingface_hub import DatasetCardData

    sources = pc.value_counts(negatives.table["source"]).to_pylist()
    counts = [
        ("rows", len(negatives)),
        ("queries", pc.count_distinct(negatives.table["query_id"]).as_py()),
        ("documents", pc.count_distinct(negatives.table["doc_id"]).as_py()),
        ("kept", int(negatives.keep.sum())),
        *((f"rejected: {reason}", count) for reason, count in negatives.rejected().items()),
        *((f"from {each['values']}", each["counts"]) for each in sources),
    ]
    head = DatasetCardData(
        license=license, tags=["foils", "hard-negatives"], task_categories=["text-retrieval"],
        configs=[{"config_name": "default", "data_files": TABLE}],
    )  # fmt: skip
    return CARD.format(
        head=head.to_yaml(),
        title=name.rpartition("/")[2],
        name=name,
        columns=", ".join(f"`{column}`" for column in negatives.table.column_names),
        counts="\n".join(f"| {key} | {count:,} |" for key, count in counts),
        made=json.dumps(negatives.provenance, indent=2, ensure_ascii=False, sort_keys=True),
        file=TABLE,
        digest=digest,
    )


@dataclass(frozen=True)
class Pushed(Result):
    """What was put on the hub.

    Attributes:
        name: of the repository, OWNER/NAME.
        files: name of each file -> bytes.
        public: whether everyone sees it.
        commit: its digest.
        url: of the repository.
    """

    name: str
    files: dict[str, int]
    public: bool
    commit: str
    url: str

    def tables(self) -> list[Table]:
        """Return the files and their sizes."""
        rows = [(name, f"{size:,}") for name, size in self.files.items()]
        seen = "public" if self.public else "private"
        return [Table(f"table → {self.url} ({seen})", ("file", "bytes"), rows, f"commit {self.commit}")]

    def to_json(self) -> dict[str, Any]:
        """Return everything."""
        return dict(vars(self))


def push_to_hub(what: SourceLike, to: str, *, license: str, public: bool, overwrite: bool) -> Pushed:
    """Put a table of negatives and its card into a repository of the hub, in one commit.

    Args:
        what: a table of negatives, or the file of one, whose bytes are sent as they are unless a path is in it.
        to: hf:OWNER/NAME; made where it is not there.
        license: an identifier of the hub's, as apache-2.0.
        public: let everyone see it.
        overwrite: replace what the repository holds.

    Raises:
        InputError: the hub may not be reached (HF_HUB_OFFLINE), no table, a name of another form, a repository that
            holds files already, or that is public where that was not chosen.
        FailureError: the hub refuses, or cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, is_offline_mode
    from huggingface_hub.errors import HfHubHTTPError

    if not _NAME.fullmatch(to):
        raise InputError(f"{to}: expected hf:OWNER/NAME")
    if is_offline_mode():
        raise InputError(f"{to}: HF_HUB_OFFLINE is set, so that nothing may be sent; unset it to push")
    path = fetched_table(what) if isinstance(what, (str, Path)) else None
    if path and path.is_dir():
        raise InputError(f"{what}: expected a table of negatives; a model's folder is pushed by hf upload")
    name, api = to.removeprefix("hf:"), HfApi(library_name="foils")
    given = as_table(path or what).negatives
    negatives = given.with_provenance(last_parts(given.provenance))
    changed = negatives.provenance != given.provenance
    content = path.read_bytes() if path and not changed else negatives.file_bytes()
    card = table_card(negatives, name, license, digest=hashlib.sha256(content).hexdigest())
    files = {"README.md": card.encode(), TABLE: content}
    of_network: Any = HfHubHTTPError.__bases__  # those of the HTTP library that is used, whichever it is
    try:
        gone = _open_repository(api, name, to, public=public, overwrite=overwrite) - files.keys()
        operations: list[Any] = [CommitOperationAdd(each, data) for each, data in files.items()]
        operations += map(CommitOperationDelete, sorted(gone))
        commit = api.create_commit(name, operations, commit_message="Push from foils", repo_type="dataset")
    except InputError:
        raise
    except (*of_network, OSError, RuntimeError, ValueError) as error:
        said = str(error).strip().replace("\n", " ")[:300]
        raise FailureError(
            f"cannot push to {to} ({type(error).__name__}: {said}); check the name, the network, and that you are "
            "logged in (hf auth login, or HF_TOKEN) with the right to write"
        ) from error
    sizes = {each: len(data) for each, data in files.items()}
    return Pushed(name, sizes, public, str(commit.oid), f"{api.endpoint}/datasets/{name}")


def _open_repository(api: Any, name: str, to: str, *, public: bool, overwrite: bool) -> set[str]:
    """Make the repository, or see that what is there may be replaced; return the files that it holds."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        there = api.repo_info(name, repo_type="dataset")
    except RepositoryNotFoundError:
        api.create_repo(name, repo_type="dataset", private=not public)
        return set()
    held = sorted({each.rfilename for each in there.siblings or ()} - {".gitattributes"})
    if held and not overwrite:
        shown = f"{', '.join(held[:3])}{', …' if len(held) > 3 else ''}"
        raise InputError(
            f"{to} holds {len(held)} files already ({shown}); give another name, or {spelled('overwrite')} to replace "
            "them"
        )
    if not there.private and not public:
        raise InputError(f"{to} is there, and public; give {spelled('public')} where everyone may see this, too")
    return set(held)
