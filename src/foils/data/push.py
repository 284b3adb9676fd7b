"""Putting a table of negatives, a model or a study on the Hugging Face hub, with a card made from its provenance."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from foils.data.card import model_card, study_card, table_card
from foils.data.hub_sources import TABLE
from foils.data.local_paths import without_paths
from foils.data.negatives import Negatives
from foils.data.resolve import as_table
from foils.data.store import file_digest
from foils.runtime.errors import FailureError, InputError
from foils.runtime.options import spelled
from foils.runtime.results import Result, Table

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
    cleaned = negatives.without_local_paths()
    if cleaned is not negatives:
        log.info("paths of this machine are left out of the provenance; so the table's digest is another")
    table = path if path is not None and cleaned is negatives else cleaned.file_bytes()
    digest = hashlib.sha256(table).hexdigest() if isinstance(table, bytes) else file_digest(table)
    return {CARD: table_card(cleaned, name, license, digest=digest).encode(), TABLE: table}


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
            cleaned = negatives.without_local_paths()
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
