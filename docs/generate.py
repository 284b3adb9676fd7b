"""Writes the pages that are made from the code: `python docs/generate.py`. A test compares them with what it makes.

`python docs/generate.py PAGE` draws README's picture of a decision's page, by chromium, and notes what drew the page.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import foils
from foils.cli.app import (
    DOORS,
    PURPOSE,
    described,
    door_of,
    examples,
    help_text,
    settings_of_verb,
    shown_default,
    summary,
)
from foils.data.negatives import KNOWN, REQUIRED
from foils.runtime.options import Option

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src" / "foils"
TITLES = {  # of the packages, from the data to what joins the stages
    "data": "Data", "encode": "Encoding", "llm": "Language models", "mining": "Mining", "scoring": "Scoring",
    "labelling": "Labelling", "rating": "Rating", "selection": "Selection", "batching": "Batching",
    "training": "Training", "evaluation": "Evaluation", "statistics": "Statistics", "searching": "Searching",
    "deciding": "Deciding", "experiments": "Tuning and studies", "upkeep": "The cache",
}  # fmt: skip
CONSTANTS = {  # what public constants are: they have no docstring that the reference could show
    "batching.METHODS": "Ways of filling batches, by name.",
    "encode.AT_128": "Settings of encoding with a maximum length of 128 tokens, as the five papers train and score.",
    "encode.DEFAULT_MODEL": "The encoder where none is named.",
    "encode.Kind": "What a text is to an encoder: a query or a document.",
    "evaluation.DEFAULT_MEASURES": "Measures of an evaluation where none are named.",
    "rating.BASE": "The mean of each query's ratings, in Elo points.",
    "rating.ELO_PER_LOGIT": "Elo points of one logit (Bradley–Terry).",
    "rating.ELO_PER_PROBIT": "Elo points of one probit (Thurstone).",
    "rating.LOGITS_PER_PROBIT": "Logits of one probit, on the scale of Elo points.",
    "searching.FEEDBACK_DEPTH": "How many documents a first pass gives as feedback.",
    "searching.MEASURES": "Measures of an experiment where none are named.",
    "selection.RULES": "Rules of selection, by name.",
    "selection.TIERS": "Tiers of difficulty, hardest first.",
    "selection.BOUNDS": "Rating gaps between the tiers, in Elo points.",
    "selection.WEIGHTS": "Weights of the tiers in training.",
    "experiments.PREDICTORS": "What a study compares with the trained models, by name.",
    "training.LEARNING_RATES": "Peak learning rates by kind of model.",
    "training.LOSSES": "Losses of encoders, by name.",
    "training.RERANKER_LOSSES": "Losses of rerankers, by name.",
    "training.RECIPES": "Published trainings, by name.",
}
COLUMNS = {  # what each column of the table of negatives holds
    "query_id": "Id of the query in the collection.",
    "doc_id": "Id of the document, in the collection unless the row has a text.",
    "source": "Name of what the row comes from, as bm25; rows named labels stand for labelled positives.",
    "rank": "Place in the source's list of the query, from 0.",
    "score": "The source's own score; higher is better. NaN in Parquet, null in JSON, where it has none.",
    "text": "The document, where it is not in the collection; else null.",
    "keep": "Whether to train on the row.",
    "reason": "Why the row is rejected; null exactly where keep is true.",
    "cosine": "Cosine of query and document by the encoder of that stage.",
    "dot": "Inner product of query and document by the encoder of that stage.",
    "elo": "Rating of the document, in Elo points.",
    "elo_se": "Its standard error, in Elo points.",
    "gap": "Rating of the positive less that of the document, in Elo points.",
    "teacher": "Score by a teacher, for distillation.",
    "weight": "Weight in training, at least 0.",
    "tier": "Tier of difficulty, as goldilocks.",
    "relevance": "Probability that the document answers the query, by a judge.",
    "verdict": "What a judge or a label says of the row.",
}
_KINDS = {"string": "string", "large_string": "string", "int32": "integer", "double": "number", "bool": "boolean"}
MADE = "<!-- Made by docs/generate.py from the code. Change the code, and run it. -->"
API = f"""{MADE}

# Library

What a person does is a function of `foils`, and a verb of the program ([every option](options.md)), with the same
names, defaults and results. Each takes names, paths or objects, and returns a result that prints itself, is rendered by
a notebook, has `to_json()`, `write` or `report`, and goes into the next one:

```{{literalinclude}} ../examples/ten_tasks.py
:language: python
```

## The functions

```{{eval-rst}}
.. automodule:: foils
   :members: FUNCTIONS
   :member-order: groupwise
```

## What they are made of

Retrievers, rules, judges, planners, losses and estimators stand in packages, for who wants to build with them.
"""


def api() -> str:
    """Return the reference of every public name.

    Raises:
        KeyError: a package has no title, or a public constant no line in `CONSTANTS`.
    """
    functions = [name for name in foils.__all__ if inspect.isfunction(getattr(foils, name))]
    parts = [API.replace("FUNCTIONS", ", ".join(functions))]
    public = {room: import_module(f"foils.{room}") for room in rooms()}
    unnamed = set(public).difference(TITLES)
    if unnamed:
        raise KeyError(f"{', '.join(unnamed)}: give the package a line in TITLES")
    shown: set[int] = set()
    for room in TITLES:
        if room in public:
            parts.append(_members(TITLES[room], f"foils.{room}", without=shown))
            shown |= {id(getattr(public[room], name)) for name in public[room].__all__}
    parts.append(_members("Results and errors", "foils.runtime.results", "foils.runtime.errors"))
    parts.append("### Tables of methods, and constants\n")
    parts.append("A function takes names of methods; each name stands in one of these dictionaries or tuples.\n")
    lines = ["```{eval-rst}", ".. py:currentmodule:: foils"]
    for room, package in public.items():
        for name in package.__all__:
            value = getattr(package, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                lines += ["", f".. py:data:: {room}.{name}", "", f"   {CONSTANTS[f'{room}.{name}']}{_names(value)}"]
    return "\n".join([*parts, *lines, "```"]) + "\n"


def rooms() -> list[str]:
    """Return the packages that have public names."""
    names = sorted([*(path.parent.name for path in SOURCE.glob("*/__init__.py")), "upkeep"])
    return [name for name in names if getattr(import_module(f"foils.{name}"), "__all__", None)]


def _members(title: str, *modules: str, without: Collection[int] = ()) -> str:
    body = "\n".join(f".. automodule:: {module}\n   :members:" for module in modules)
    for module in map(import_module, modules):
        again = [name for name in getattr(module, "__all__", ()) if id(getattr(module, name)) in without]
        body += f"\n   :exclude-members: {', '.join(again)}" if again else ""
    return f"### {title}\n\n```{{eval-rst}}\n{body}\n```\n"


def _names(value: Any) -> str:
    """The names in a table of methods, as a sentence."""
    names = [name for name in value if isinstance(name, str)] if isinstance(value, (dict, tuple, list)) else []
    return f" {', '.join(f'``{name}``' for name in names)}." if names else ""


def options() -> str:
    """Return the page of every verb's options, in the order and words of the program's help."""
    parts = [
        f"{MADE}\n\n# Every option\n",
        "Every verb of the program with its arguments and options, as `foils VERB --help` shows them. In Python, each\n"
        "is a keyword argument of the function of the same name ([library](api.md)): `--relative-margin 0.05` is\n"
        "`relative_margin=0.05`.\n",
        ", ".join(f"[{verb}](#foils-{verb})" for verb in sorted(DOORS)) + "\n",
    ]
    for name in sorted(DOORS):
        parts += [f"## foils {name}\n", f"{_plain(described(door_of(name)))}\n"]
        commands = "".join(f"$ {command}\n" for command in examples(door_of(name)))
        parts += [f"```console\n{commands}```\n", *_tables(name)]
    return "\n".join(parts)


def _tables(verb: str) -> Iterator[str]:
    groups: dict[str, list[str]] = {"Argument": []}
    for each in settings_of_verb(verb):
        groups.setdefault("Argument" if each.positional else each.heading or "Option", []).append(_row(each))
    for heading, rows in groups.items():
        if rows:
            yield "\n".join([f"| {heading} | | Default |", "|---|---|---|", *rows]) + "\n"


def _row(setting: Option) -> str:
    default, choices = shown_default(setting), setting.allowed()
    names = ", ".join(f"`{each}`" for each in (setting.short, setting.flag) if each)
    value = setting.metavar or ("" if choices else "VALUE")
    name = f"{names} `{value}`" if value and not setting.positional and bool not in setting.kinds else names
    text = " ".join(filter(None, [help_text(setting), f"Choices: {', '.join(choices)}." if choices else ""]))
    if default is inspect.Parameter.empty:
        shown = "required"
    elif isinstance(default, bool):
        shown = "yes" if default else "no"
    else:
        shown = "" if default in (None, (), "") else f"`{default}`"
    return f"| {name} | {_plain(text).replace('|', chr(92) + '|')} | {shown} |"


def _plain(text: str) -> str:
    """Text in which nothing is markup but what stands between backticks."""
    return "`".join(
        part if number % 2 else "".join(f"\\{each}" if each in "*_<>$" else each for each in part)
        for number, part in enumerate(text.split("`"))
    )


def llms() -> str:
    """Return llms.txt: what foils is, and every page with the line that the index has for it; verbs and schemas."""
    index = (DOCS / "index.md").read_text("utf-8")
    parts = [f"# foils\n\n> {PURPOSE}\n", "Verbs of the program are functions of the same names in Python.\n"]
    parts += [f"## {title}\n\n{lines}" for title, lines in re.findall(r"^## (.+)\n\n((?:- .+\n)+)", index, re.M)]
    verbs = [f"- [foils {name}](options.md#foils-{name}): {summary(name)}" for name in DOORS]
    schemas = sorted({"negatives.json", *(path.name for path in (DOCS / "schemas").glob("*.json"))})
    parts += ["## Verbs\n", *verbs, "\n## Schemas\n", *(f"- [{name}](schemas/{name})" for name in schemas)]
    return "\n".join(parts) + "\n"


def negatives() -> str:
    """Return the JSON schema of a row of the table of negatives.

    Raises:
        KeyError: a column has no line in `COLUMNS`.
    """
    kinds = {**dict(zip(REQUIRED.names, REQUIRED.types, strict=True)), **KNOWN}
    properties: dict[str, Any] = {}
    for name, kind in kinds.items():
        word = _KINDS[str(kind)]
        always = (name in REQUIRED.names and word != "number") or name == "keep"
        described = {"type": word if always else [word, "null"], "description": f"{COLUMNS[name]} Arrow: {kind}."}
        properties[name] = described | ({"minimum": 0} if name in ("rank", "weight") else {})
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A row of the table of negatives",
        "description": "Columns of a Parquet table that foils writes; later stages may add columns of their own.",
        "type": "object",
        "required": list(REQUIRED.names),
        "properties": properties,
        "dependentRequired": {"keep": ["reason"], "reason": ["keep"]},
        "if": {"properties": {"keep": {"const": False}}, "required": ["keep"]},
        "then": {"properties": {"reason": {"type": "string"}}},
        "else": {"properties": {"reason": {"type": "null"}}},
    }
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


STUB = """# The imports say where each name is, and are read when it is first used.
# The signatures of the doors are made by docs/generate.py, for type checkers and editors.
# fmt: off
# ruff: noqa: E501
"""


def stub() -> str:
    """Return foils/__init__.pyi: imports of the public names, and the signatures of the doors as they are written."""
    lines = {name: f"from .{home} import {name} as {name}" for home, names in foils.HOMES.items() for name in names}
    doors = {name: line for name, line in lines.items() if hasattr(getattr(foils, name), "settings")}
    signatures, modules = [], set[str]()
    for name in doors:
        door = getattr(foils, name)
        returned = written_type(door.__wrapped__.__annotations__["return"], door.__module__, modules)
        written = f"def {name}({', '.join(_stub_parameters(door, modules))}) -> {returned}: ..."
        held = written.replace(" ", "~").replace(",~", ", ")  # lines break behind commas alone
        broken = textwrap.fill(held, 120, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        signatures.append(broken.replace("~", " "))
    others = [line for name, line in lines.items() if name not in doors]
    loaded = ["if not typing.TYPE_CHECKING:", *(f"    {line}" for line in doors.values())]
    ours = [f"import {module}" for module in sorted(modules) if module.startswith("foils")]
    theirs = [f"import {module}" for module in sorted(modules | {"typing"}) if not module.startswith("foils")]
    parts = ([STUB + "\n".join(theirs)], ours, others, loaded, signatures)
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _stub_parameters(door: Any, modules: set[str]) -> Iterator[str]:
    """The parameters of a door with the types that their definitions have; names that an option takes are literals."""
    keyword = False
    for each in inspect.signature(door).parameters.values():
        if each.kind is each.KEYWORD_ONLY and not keyword:
            keyword = True
            yield "*"
        annotation, module = written_annotation(door, each.name)
        kind = written_type(annotation, module, modules, door.settings[each.name].allowed())
        yield f"{each.name}: {kind}" + ("" if each.default is each.empty else " = ...")


def written_annotation(door: Any, name: str) -> tuple[str, str]:
    """Return the annotation of a door's setting as it is written, and the module that it is written in."""
    function = door.__wrapped__
    if name in function.__annotations__:
        return function.__annotations__[name], function.__module__
    for group in get_type_hints(function, include_extras=True).values():
        for home in getattr(group, "__mro__", ()):
            if name in inspect.get_annotations(home):
                return home.__annotations__[name], home.__module__
    raise KeyError(f"{function.__name__} has no setting {name}")


def written_type(annotation: str, module: str, modules: set[str], names: Sequence[str] = ()) -> str:
    """Return a type that any module can read: without `Annotated`, each name with its module.

    Args:
        annotation: as it is written.
        module: that it is written in.
        modules: those that the type needs are added.
        names: the texts that are allowed, where not all are.
    """
    tree = ast.parse(annotation, mode="eval").body
    if isinstance(tree, ast.Subscript) and ast.unparse(tree.value) == "Annotated":
        tree = tree.slice.elts[0]  # type: ignore[attr-defined]

    class Qualified(ast.NodeTransformer):
        def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
            items = node.slice.elts[:1] if isinstance(node.slice, ast.Tuple) else [node.slice]
            repeated = isinstance(node.slice, ast.Tuple) and ast.unparse(node.slice.elts[-1]) == "..."
            self.generic_visit(node)
            if not repeated and ast.unparse(node.value) != "list":
                return node
            modules.add("collections.abc")
            item = ast.unparse(Qualified().visit(items[0]) if repeated else node.slice)
            return ast.parse(f"{item} | collections.abc.Sequence[{item}]", mode="eval").body

        def visit_Name(self, node: ast.Name) -> ast.expr:
            if node.id == "str" and names:
                return ast.parse(f"typing.Literal[{', '.join(map(repr, names))}]", mode="eval").body
            if hasattr(builtins, node.id):
                return node
            if node.id == "Path" and "str" not in annotation:  # a door takes its text as well
                modules.add("pathlib")
                return ast.parse("str | pathlib.Path", mode="eval").body
            home = home_of(node.id, module)
            modules.add(home)
            return ast.parse(f"{home}.{node.id}", mode="eval").body

    return ast.unparse(Qualified().visit(tree)).replace("'", '"')


def home_of(name: str, module: str) -> str:
    """Return the module that defines a name which another one uses."""
    source = ast.parse(Path(str(import_module(module).__file__)).read_text("utf-8"))
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            return home_of(name, str(node.module)) if str(node.module).startswith("foils") else str(node.module)
    return module


def pages() -> dict[Path, str]:
    """Return every file that is made from the code, and its text."""
    made = {"api.md": api(), "options.md": options(), "llms.txt": llms(), "schemas/negatives.json": negatives()}
    return {**{DOCS / name: text for name, text in made.items()}, SOURCE / "__init__.pyi": stub()}


def drawn_by() -> str:
    """Return a digest of what draws a decision's page: its picture is of this program while that stays."""
    sources = ("deciding/page.py", "pages/__init__.py", "pages/templates/page.html.j2")
    return hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in sources)).hexdigest()


def draw(page: Path) -> None:
    """Write decision.png, the top of a page in a browser, and decision.json, by what the page was drawn."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [
        "--window-size=1100,1150",
        "--virtual-time-budget=20000",
        f"--screenshot={DOCS / 'decision.png'}",
        page.resolve().as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    (DOCS / "decision.json").write_text(json.dumps({"drawn_by": drawn_by()}) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:]:
        shown = Path(sys.argv[1])
        if not shown.is_file():
            sys.exit(f"{shown}: no such file; give the page of `foils demo`, or nothing")
        draw(shown)
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
