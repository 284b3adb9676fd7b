"""Leaves paths of this machine out of what others will read: their last part stays."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal

import pyarrow.compute as pc

from foils.data.negatives import Negatives
from foils.data.read import TABLE
from foils.data.sources import as_table
from foils.runtime.errors import FailureError, InputError
from foils.runtime.files import SEAL, file_digest, sealed
from foils.runtime.options import spelled
from foils.runtime.results import Result, Table

_PART = r"[^\s/\\\"'`<>|:*?,;()\[\]{}]"


_PATH = re.compile(rf"(?<![\w:/.<~\\-])(?:~?/(?:{_PART}+/)+|[A-Za-z]:\\(?:{_PART}+\\)*)(?P<last>{_PART}*)")


_VOCABULARIES = ("tokenizer.json", "vocab", "merges", "added_tokens")


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


_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))


_LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")


TAGS = ["foils", "hard-negatives"]


def table_card(negatives: Negatives, name: str, license: str | None, *, digest: str) -> str:
    """Return the card of a table: what it holds, its numbers, how it was made, and how it is read again.

    Args:
        negatives: the table.
        name: of the repository, OWNER/NAME.
        license: an identifier of the hub's.
        digest: SHA-256 of the file.
    """
    from huggingface_hub import DatasetCardData

    rows = len(negatives)
    head = DatasetCardData(
        license=licence(license),
        tags=TAGS,
        task_categories=["text-retrieval"],
        size_categories=[next((size for most, size in _SIZES if rows < most), "10M<n<100M")],
        configs=[{"config_name": "default", "data_files": TABLE}],
    ).to_yaml()
    by_source = pc.value_counts(negatives.table["source"]).to_pylist()
    numbers: list[tuple[str, int]] = [
        ("rows", rows),
        ("queries", pc.count_distinct(negatives.table["query_id"]).as_py()),
        ("documents", pc.count_distinct(negatives.table["doc_id"]).as_py()),
        ("kept", int(negatives.keep.sum())),
        *((f"rejected: {reason}", count) for reason, count in negatives.rejected().items()),
        *((f"from {each['values']}", each["counts"]) for each in by_source),
    ]
    made = negatives.provenance
    lines = [
        f"---\n{head}\n---",
        f"# {name.rpartition('/')[2]}",
        "Hard negatives: one row for each query and document, with its source, its rank (from 0) and its score (the "
        "source's own, higher is better). A row with `keep` false is rejected, for its `reason`. Ids are those of the "
        "collection that it was mined from.",
        f"Columns: {', '.join(f'`{column}`' for column in negatives.table.column_names)}.",
        _markdown_table("", "count", [(key, f"{count:,}") for key, count in numbers]),
        f"```console\n$ foils score COLLECTION hf:{name}\n```",
        "## How it was made",
        f"```json\n{json.dumps(made, indent=2, ensure_ascii=False, sort_keys=True)}\n```",
        f"SHA-256 of `{TABLE}`: `{digest}`",
    ]
    return "\n\n".join(lines) + "\n"


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


def study_card(name: str, license: str | None, files: Sequence[str]) -> str:
    """Return the card of a study: its cells, and how its page is made from it."""
    from huggingface_hub import DatasetCardData

    head = DatasetCardData(license=licence(license), tags=TAGS).to_yaml()
    cells = sorted({file.split("/")[1] for file in files if file.startswith("cells/")})
    trained = {cell: sum(file.startswith(f"cells/{cell}/trained/") for file in files) for cell in cells}
    title = name.rpartition("/")[2]
    lines = [
        f"---\n{head}\n---",
        f"# {title}",
        "A study of hard negatives: for each collection and model, sources of negatives, what predictors say of them, "
        "and what training on them gave.",
        _markdown_table("collection and model", "trainings", list(trained.items())),
        f"```console\n$ hf download --repo-type dataset {name} --local-dir {title}\n$ foils report {title}/\n```",
    ]
    return "\n\n".join(lines) + "\n"


def licence(given: str | None) -> str:
    """Return a licence's identifier.

    Raises:
        InputError: there is none, or it is not of this form.
    """
    option = spelled("license")
    if given is None:
        raise InputError(
            f"no licence; give {option}, an identifier of the hub's as apache-2.0, mit or cc-by-4.0; that of the texts "
            "may decide it"
        )
    if not _LICENCE.fullmatch(given):
        raise InputError(f"{option} {given}; expected an identifier of the hub's, as apache-2.0, mit or cc-by-4.0")
    return given


def _markdown_table(name: str, value: str, rows: Sequence[tuple[str, object]]) -> str:
    return "\n".join([f"| {name} | {value} |", "|---|---:|", *(f"| {key} | {each} |" for key, each in rows)])


Kind = Literal["table", "model", "study"]


CARD = "README.md"


OF_HUB = {".gitattributes"}  # what a new repository may hold


STUDY = (
    "commands.txt",
    "cells/*/cell.json",
    "cells/*/scores.json",
    "cells/*/sources/*.parquet",
    "cells/*/trained/*.json",
)


_LEFT_OUT = re.compile(r"\..*|checkpoints?(-\d+)?|.*\.part|optimizer\.pt|training_args\.bin|events\.out\..*")


_NAME = re.compile(r"hf:[\w.-]+/[\w.-]+")


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pushed(Result):
    """What was put on the hub.

    Attributes:
        name: of the repository, OWNER/NAME.
        kind: "table", "model" or "study".
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
    """Put a table, a model or a study into a repository of the hub, in one commit.

    Args:
        what: a table of negatives, or the file of one; the folder of a model or of a study, or what training returned.
        to: hf:OWNER/NAME; made where it is not there.
        license: an identifier of the hub's, as apache-2.0; None: that of a model's own card.
        public: let everyone see it.
        overwrite: replace what the repository holds.

    Returns:
        What was put there.

    Raises:
        InputError: the hub may not be reached (HF_HUB_OFFLINE), something that is none of the three, no licence, a name
            of another form, a repository that holds files already, or that is public where that was not chosen.
        FailureError: the hub refuses, or cannot be reached.
    """
    from huggingface_hub import HfApi, is_offline_mode
    from huggingface_hub.errors import RepositoryNotFoundError

    if not _NAME.fullmatch(to):
        raise InputError(f"{to}: expected hf:OWNER/NAME")
    if is_offline_mode():
        raise InputError(f"{to}: HF_HUB_OFFLINE is set, so that nothing may be sent; unset it to push")
    name = to.removeprefix("hf:")
    kind, files = _contents(what, name, license)
    repository: dict[str, Any] = {"repo_id": name, "repo_type": "model" if kind == "model" else "dataset"}
    api = HfApi(library_name="foils")
    with _talking(to):
        try:
            there: Any = api.repo_info(**repository)
            held = {each.rfilename for each in there.siblings or ()} - OF_HUB
            _check_repository(to, held, private=bool(there.private), public=public, overwrite=overwrite)
        except RepositoryNotFoundError:
            held = set()
            api.create_repo(**repository, private=not public)
        commit = _commit(api, repository, files, held - files.keys())
    sizes = {
        each: len(content) if isinstance(content, bytes) else content.stat().st_size for each, content in files.items()
    }
    place = f"{api.endpoint}/{'' if kind == 'model' else 'datasets/'}{name}"
    return Pushed(name, kind, sizes, public, commit, place)


def _commit(api: Any, repository: dict[str, Any], files: dict[str, bytes | Path], gone: set[str]) -> str:
    """Put the files there and remove those that are gone; return the commit."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    operations = [
        *(CommitOperationAdd(each, content) for each, content in files.items()),
        *(CommitOperationDelete(each) for each in sorted(gone)),
    ]
    return str(api.create_commit(**repository, operations=operations, commit_message="Push from foils").oid)


def _check_repository(to: str, held: set[str], *, private: bool, public: bool, overwrite: bool) -> None:
    if held and not overwrite:
        shown = ", ".join(sorted(held)[:3])
        raise InputError(
            f"{to} holds {len(held)} files already ({shown}{', …' if len(held) > 3 else ''}); give another name, or "
            f"{spelled('overwrite')} to replace them"
        )
    if not private and not public:
        raise InputError(f"{to} is there, and public; give {spelled('public')} where everyone may see this, too")


def _contents(what: Any, name: str, license: str | None) -> tuple[Kind, dict[str, bytes | Path]]:
    """Return what it is, and its files by name: their bytes, or where they lie."""
    given = getattr(what, "path", what)
    folder = Path(given) if isinstance(given, (str, Path)) else None
    if folder is None or not folder.is_dir():
        path = folder
        negatives = Negatives.read(path) if path else as_table(what).negatives
        return "table", _table_files(negatives, path, name, license)
    if any((folder / each).is_file() for each in ("modules.json", "config.json")):
        files = {each: content for each, content in _files(folder, "**/*") if each != CARD}
        card = folder / CARD
        text = model_card(card.read_text("utf-8") if card.is_file() else "", name, license)
        return "model", {CARD: without_paths(CARD, text.encode()), **files}
    if (folder / "cells").is_dir():
        files = dict(each for pattern in STUDY for each in _files(folder, pattern))
        return "study", {CARD: study_card(name, license, list(files)).encode(), **files}
    raise InputError(f"{folder}: expected a table of negatives, or the folder of a model or of a study")


def _table_files(negatives: Negatives, path: Path | None, name: str, license: str | None) -> dict[str, bytes | Path]:
    cleaned = without_local_paths(negatives)
    if cleaned is not negatives:
        log.info("paths of this machine are left out of the provenance; so the table's digest is another")
    table = path if path is not None and cleaned is negatives else cleaned.file_bytes()
    digest = hashlib.sha256(table).hexdigest() if isinstance(table, bytes) else file_digest(table)
    return {CARD: table_card(cleaned, name, license, digest=digest).encode(), TABLE: table}


def without_local_paths(negatives: Negatives) -> Negatives:
    """Return the table, its provenance without the folders of absolute paths; itself where it has none."""
    cleaned = last_parts(negatives.provenance)
    return negatives if cleaned == negatives.provenance else negatives.with_provenance(cleaned)


def _files(folder: Path, pattern: str) -> Iterator[tuple[str, bytes | Path]]:
    """Yield the files of a folder, without hidden ones, checkpoints, logs, and links that lead out of it."""
    inside = folder.resolve()
    for path in sorted(folder.glob(pattern)):
        parts = path.relative_to(folder).parts
        if not path.is_file() or any(map(_LEFT_OUT.fullmatch, parts)) or not path.resolve().is_relative_to(inside):
            continue
        name = "/".join(parts)
        if path.suffix == ".parquet":
            negatives = Negatives.read(path)
            cleaned = without_local_paths(negatives)
            yield name, path if cleaned is negatives else cleaned.file_bytes()
            continue
        content = without_paths(name, path.read_bytes()) if path.suffix in (".json", ".md", ".txt") else None
        yield name, path if content is None else content


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
