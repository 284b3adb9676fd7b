"""Pushing tables and models to the Hugging Face hub, without paths of this machine: their last part stays."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow.compute as pc

from foils.data.negatives import Negatives
from foils.data.read import TABLE
from foils.data.sources import as_table
from foils.runtime.errors import FailureError, InputError
from foils.runtime.files import SEAL, sealed
from foils.runtime.options import spelled
from foils.runtime.results import Result, Table

_PART = r"[^\s/\\\"'`<>|:*?,;()\[\]{}]"
_PATH = re.compile(rf"(?<![\w:/.<~\\-])(?:~?/(?:{_PART}+/)+|[A-Za-z]:\\(?:{_PART}+\\)*)(?P<last>{_PART}*)")
_VOCABULARIES = ("tokenizer.json", "vocab", "merges", "added_tokens")
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_NAME = re.compile(r"hf:[\w.-]+/[\w.-]+")
_LEFT_OUT = re.compile(r"\..*|checkpoints?(-\d+)?|.*\.part|optimizer\.pt|training_args\.bin|events\.out\..*")
Kind = Literal["table", "model"]
CARD, TAGS = "README.md", ["foils", "hard-negatives"]
CARD_OF_TABLE = """---
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


def without_paths(name: str, content: bytes) -> bytes:
    """Return a text file without paths of this machine; the same bytes where there are none, and of a vocabulary.

    Args:
        name: of the file; one that ends in .json is read as JSON, and its checksum made anew.
        content: its bytes; what is not UTF-8 stays as it is.
    """
    if PurePath(name).name.startswith(_VOCABULARIES):
        return content
    try:
        text = content.decode()
        value = json.loads(text) if name.endswith(".json") else text
    except ValueError:
        return content
    cleaned = last_parts(value)
    if cleaned == value:
        return content
    if isinstance(cleaned, str):
        return cleaned.encode()
    if isinstance(cleaned, dict) and SEAL in cleaned:
        cleaned = sealed({key: each for key, each in cleaned.items() if key != SEAL})
    return (json.dumps(cleaned, indent=2, ensure_ascii=False) + "\n").encode()


def table_card(negatives: Negatives, name: str, license: str | None, *, digest: str) -> str:
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
        license=licence(license), tags=TAGS, task_categories=["text-retrieval"],
        configs=[{"config_name": "default", "data_files": TABLE}],
    )  # fmt: skip
    return CARD_OF_TABLE.format(
        head=head.to_yaml(),
        title=name.rpartition("/")[2],
        name=name,
        columns=", ".join(f"`{column}`" for column in negatives.table.column_names),
        counts="\n".join(f"| {key} | {count:,} |" for key, count in counts),
        made=json.dumps(negatives.provenance, indent=2, ensure_ascii=False, sort_keys=True),
        file=TABLE,
        digest=digest,
    )


def model_card(written: str, name: str, license: str | None) -> str:
    """Return the card that a model's folder has, with a licence and tags in its header.

    Raises:
        InputError: neither it nor the caller names a licence.
    """
    from huggingface_hub import ModelCard

    card = ModelCard(written or f"---\nlibrary_name: sentence-transformers\n---\n\n# {name.rpartition('/')[2]}\n")
    data: Any = card.data
    data.license = licence(license or data.license)
    data.tags = list(dict.fromkeys([*(data.tags or ()), TAGS[0]]))
    return str(card)


def licence(given: str | None) -> str:
    """Return a licence's identifier.

    Raises:
        InputError: there is none, or it is not of this form.
    """
    option, form = spelled("license"), "an identifier of the hub's, as apache-2.0, mit or cc-by-4.0"
    if given is None:
        raise InputError(f"no licence; give {option}, {form}; that of the texts may decide it")
    if not _LICENCE.fullmatch(given):
        raise InputError(f"{option} {given}; expected {form}")
    return given


@dataclass(frozen=True)
class Pushed(Result):
    """What was put on the hub.

    Attributes:
        name: of the repository, OWNER/NAME.
        kind: "table" or "model".
        files: name of each file -> bytes.
        public: whether everyone sees it.
        commit: its digest.
        url: of the repository.
    """

    name: str
    kind: Kind
    files: dict[str, int]
    public: bool
    commit: str
    url: str

    def tables(self) -> list[Table]:
        """Return the files and their sizes."""
        rows = [(name, f"{size:,}") for name, size in self.files.items()]
        seen = "public" if self.public else "private"
        return [Table(f"{self.kind} → {self.url} ({seen})", ("file", "bytes"), rows, f"commit {self.commit}")]

    def to_json(self) -> dict[str, Any]:
        """Return everything."""
        return dict(vars(self))


def push_to_hub(what: Any, to: str, *, license: str | None, public: bool, overwrite: bool) -> Pushed:
    """Put a table or a model into a repository of the hub, in one commit.

    Args:
        what: a table of negatives, or the file of one; the folder of a model, or what training returned.
        to: hf:OWNER/NAME; made where it is not there.
        license: an identifier of the hub's, as apache-2.0; None: that of a model's own card.
        public: let everyone see it.
        overwrite: replace what the repository holds.

    Returns:
        What was put there.

    Raises:
        InputError: the hub may not be reached (HF_HUB_OFFLINE), something that is neither, no licence, a name
            of another form, a repository that holds files already, or that is public where that was not chosen.
        FailureError: the hub refuses, or cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, is_offline_mode

    if not _NAME.fullmatch(to):
        raise InputError(f"{to}: expected hf:OWNER/NAME")
    if is_offline_mode():
        raise InputError(f"{to}: HF_HUB_OFFLINE is set, so that nothing may be sent; unset it to push")
    name, api = to.removeprefix("hf:"), HfApi(library_name="foils")
    with TemporaryDirectory() as folder:
        kind = _stage(what, Path(folder), name, license)
        repository: dict[str, Any] = {"repo_id": name, "repo_type": "model" if kind == "model" else "dataset"}
        files = {path.relative_to(folder).as_posix(): path for path in Path(folder).rglob("*") if path.is_file()}
        sizes = {each: path.stat().st_size for each, path in sorted(files.items())}
        with _talking(to):
            gone = _open_repository(api, repository, to, public=public, overwrite=overwrite) - files.keys()
            operations: list[Any] = [CommitOperationAdd(each, path) for each, path in files.items()]
            operations += map(CommitOperationDelete, sorted(gone))
            commit = api.create_commit(**repository, operations=operations, commit_message="Push from foils")
    place = f"{api.endpoint}/{'' if kind == 'model' else 'datasets/'}{name}"
    return Pushed(name, kind, sizes, public, str(commit.oid), place)


def _open_repository(api: Any, repository: dict[str, Any], to: str, *, public: bool, overwrite: bool) -> set[str]:
    """Make the repository, or see that what is there may be replaced; return the files that it holds."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        there = api.repo_info(**repository)
    except RepositoryNotFoundError:
        api.create_repo(**repository, private=not public)
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


def _stage(what: Any, folder: Path, name: str, license: str | None) -> Kind:
    """Lay what is sent into a folder, with its card; return what it is. Files without paths are links."""
    given = getattr(what, "path", what)
    path = Path(given) if isinstance(given, (str, Path)) else None
    if path is None or not path.is_dir():
        negatives, content = _cleaned(as_table(what).negatives if path is None else Negatives.read(path), path)
        (folder / TABLE).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        (folder / CARD).write_text(table_card(negatives, name, license, digest=digest), "utf-8")
        return "table"
    if any((path / each).is_file() for each in ("modules.json", "config.json")):
        _stage_files(path, folder)
        card = path / CARD
        text = model_card(card.read_text("utf-8") if card.is_file() else "", name, license)
        (folder / CARD).write_bytes(without_paths(CARD, text.encode()))
        return "model"
    raise InputError(f"{path}: expected a table of negatives, or the folder of a model")


def without_local_paths(negatives: Negatives) -> Negatives:
    """Return the table, its provenance without the folders of absolute paths; itself where it has none."""
    cleaned = last_parts(negatives.provenance)
    return negatives if cleaned == negatives.provenance else negatives.with_provenance(cleaned)


def _cleaned(negatives: Negatives, path: Path | None) -> tuple[Negatives, bytes]:
    """A table without paths, and the bytes of its file: as they are where nothing had to go."""
    cleaned = without_local_paths(negatives)
    return cleaned, path.read_bytes() if path and cleaned is negatives else cleaned.file_bytes()


def _stage_files(folder: Path, aside: Path) -> None:
    """Lay aside the files of a folder, without hidden ones, checkpoints, logs, and links that lead out of it."""
    inside = folder.resolve()
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_file() or any(map(_LEFT_OUT.fullmatch, parts)) or not path.resolve().is_relative_to(inside):
            continue
        place = aside.joinpath(*parts)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".json", ".md", ".txt"):
            place.write_bytes(without_paths(path.name, path.read_bytes()))
        else:
            place.symlink_to(path.resolve())


@contextmanager
def _talking(to: str) -> Iterator[None]:
    """Turn what the hub's library raises into a FailureError."""
    from huggingface_hub.errors import HfHubHTTPError

    of_network: Any = HfHubHTTPError.__bases__  # those of the HTTP library that is used, whichever it is
    try:
        yield
    except InputError:
        raise
    except (*of_network, OSError, RuntimeError, ValueError) as error:
        said = str(error).strip().replace("\n", " ")[:300]
        raise FailureError(
            f"cannot push to {to} ({type(error).__name__}: {said}); check the name, the network, and that you are "
            "logged in (hf auth login, or HF_TOKEN) with the right to write"
        ) from error
