"""Options stand once: a door takes them one by one, checks them, and the program is made from them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import pytest

import foils
from foils.cli.app import DOORS, RECORDS, Verb, program
from foils.runtime.errors import InputError, UnknownNameError
from foils.runtime.options import Option, Settings, door, parsed_settings, refuse, settings_of, several, spelling
from foils.runtime.results import Result, Table, counted, number, p_value


def window(text: str) -> tuple[int, int]:
    first, _, end = text.partition("-")
    if not (first.isdecimal() and end.isdecimal()):
        raise InputError(f"ranks {text}: expected FROM-TO, as in 0-100")
    return int(first), int(end)


def weights(texts: list[str]) -> dict[str, float]:
    return {name: float(value) for name, _, value in (text.partition("=") for text in texts)}


@dataclass(frozen=True)
class WindowSettings(Settings):
    """Window of ranks.

    Attributes:
        top: Negatives per query.
        ranks: Take negatives from these ranks alone, counted from 0.
        draw: Sampling strategy.
        weights: Weight of each source.
        penalty: A number with another name in the program.
    """

    heading = "Window"

    top: Annotated[int, Option(least=1, most=1000)] = 10
    ranks: Annotated[tuple[int, int], Option(parse=window, metavar="FROM-TO")] = (0, 100)
    draw: Annotated[str, Option(names=lambda: ("top", "uniform"))] = "top"
    weights: Annotated[dict[str, float], Option(flag="--weight", parse=weights, repeated=True)] = field(
        default_factory=dict
    )
    penalty: Annotated[float, Option(flag="--lambda", above=0)] = 1.0


@dataclass(frozen=True)
class DeeperSettings(WindowSettings):
    """The same, deeper.

    Attributes:
        depth: Documents looked at.
    """

    depth: int = 1000


budgets: list[int] = []


@dataclass(frozen=True)
class BudgetSettings(Settings):
    """What holds while the door works.

    Attributes:
        budget: Of something.
    """

    budget: int = 1

    @contextmanager
    def applied(self) -> Iterator[None]:
        budgets.append(self.budget)
        try:
            yield
        finally:
            budgets.pop()


@dataclass(frozen=True)
class Seen(Result):
    said: dict[str, Any]

    def tables(self) -> list[Table]:
        rows = [(name, json.dumps(value)) for name, value in self.said.items()]
        return [Table("What the door saw", ["name", "value"], rows, caption="a <remark>")]

    def to_json(self) -> dict[str, Any]:
        return self.said

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.said), "utf-8")


@door
def see(
    collection: str,
    method: Annotated[str, Option(flag="--with", names=("bm25", "dense"))] = "bm25",
    *,
    window: WindowSettings,
    budget: BudgetSettings = BudgetSettings(budget=7),
    seed: Annotated[int, Option(least=0)] = 0,
) -> Seen:
    """See what a door is given.

    A second paragraph.

    Args:
        collection: A folder.
        method: Retriever.
        seed: Same seed, same bytes.

    Example:
        foils see folder/ --with dense

    Raises:
        InputError: a value out of range.
    """
    if method == "dense":
        refuse(window.changed("draw"), "with method dense; leave it out")
    return Seen({"collection": collection, "method": method, **vars(window), "seed": seed, "budgets": list(budgets)})


def test_a_door_is_checked_before_anything_holds():
    entered: list[object] = []

    def check(method, window):
        entered.append((method, window.top, list(budgets)))
        raise InputError("not these together")

    checked = door(check=check)(inspect.unwrap(see))
    with pytest.raises(InputError, match="not these together"):
        checked("folder/", top=3)
    assert entered == [("bm25", 3, [])]


def test_a_door_takes_the_fields_of_its_groups_one_by_one():
    seen = see("folder/", "dense", top=3, weights={"a": 2.0}).said
    assert seen == {
        "collection": "folder/", "method": "dense", "top": 3, "ranks": (0, 100), "draw": "top", "weights": {"a": 2.0},
        "penalty": 1.0, "seed": 0, "budgets": [7],
    }  # fmt: skip
    assert not budgets
    names = ["collection", "method", "top", "ranks", "draw", "weights", "penalty", "budget", "seed"]
    assert list(inspect.signature(see).parameters) == names == list(see.settings)  # type: ignore[attr-defined]
    assert "penalty: A number with another name in the program. Range: above 0." in (see.__doc__ or "")
    assert (see.__doc__ or "").index("draw: Sampling strategy.") < (see.__doc__ or "").index("Raises:")


def test_numbers_and_texts_are_read_as_the_program_reads_them():
    read = WindowSettings(ranks="0-7", top="3", penalty="2")  # type: ignore[arg-type]
    assert (read.ranks, read.top, read.penalty) == ((0, 7), 3, 2.0)
    assert type(WindowSettings(penalty=2).penalty) is float


def test_settings_of_a_class_that_inherits():
    first = settings_of(DeeperSettings)[0]
    assert (first.name, first.help) == ("top", "Negatives per query.")
    assert settings_of(DeeperSettings)[-1].name == "depth"
    assert DeeperSettings(top=3, depth=5).changed() == {"top": 3, "depth": 5}


@pytest.mark.parametrize(("given", "error", "message"), [
    ({"top": 0}, InputError, "top 0; expected at least 1 and at most 1000"),
    ({"penalty": float("nan")}, InputError, "penalty nan; expected above 0"),
    ({"draw": "tpo"}, UnknownNameError, "unknown draw 'tpo'; expected one of: top, uniform. Did you mean 'top'"),
    ({"tpo": 3}, TypeError, "unexpected keyword argument 'tpo'"),
    ({"method": "dense", "draw": "uniform"}, InputError, "draw uniform: no effect with method dense"),
    ({"ranks": "7"}, InputError, "ranks 7: expected FROM-TO"),
    ({"top": "many"}, InputError, "top 'many'; expected a whole number"),
    ({"top": 2.5}, InputError, "top 2.5; expected a whole number"),
    ({"top": None}, InputError, "top None; expected a whole number"),
    ({"top": True}, InputError, "top True; expected a whole number"),
    ({"penalty": [1]}, InputError, r"penalty \[1\]; expected a number"),
])  # fmt: skip
def test_what_a_door_refuses(given, error, message):
    with pytest.raises(error, match=message):
        see("folder/", **given)


def test_messages_call_options_as_the_caller_does():
    with spelling({"top": "--top"}), pytest.raises(InputError, match=r"^--top 0; expected"):
        WindowSettings(top=0)
    with spelling({"flag": "--flag"}), pytest.raises(InputError, match=r"^--no-flag, other 1 2: no effect here"):
        refuse({"flag": False, "other": [1, 2], "none": None}, "here")


@pytest.fixture(autouse=True)
def verb(monkeypatch):
    """The program has the door as a verb."""
    monkeypatch.setattr(foils, "see", see, raising=False)
    monkeypatch.setitem(DOORS, "see", Verb((RECORDS,)))


def test_the_program_gives_the_door_what_it_is_given(tmp_path, capsys):
    output, result = tmp_path / "seen", tmp_path / "seen.json"
    options = ["--ranks", "5-50", "--weight", "a=1", "--weight", "b=2", "--lambda", "0.5", "--budget", "3"]
    command = ["see", "folder/", "--with", "dense", *options, "-o", str(output), "--json", str(result)]
    program("see")(command)
    expected = see("folder/", "dense", ranks=(5, 50), weights={"a": 1.0, "b": 2.0}, penalty=0.5, budget=3)
    assert json.loads(result.read_text("utf-8")) == json.loads(output.read_text("utf-8"))
    assert json.loads(output.read_text("utf-8")) == json.loads(json.dumps(expected.said))
    shown = capsys.readouterr().out
    assert f"What the door saw → {output}" in shown
    assert "a <remark>" in shown


OPEN = replace(WindowSettings(), top=None)


def test_a_door_may_leave_the_fields_of_a_group_open():
    @door
    def left_open(*, window: WindowSettings = OPEN) -> Any:
        """Return what is given.

        Args:
            window: not shown.
        """
        return window.top

    assert left_open() is None
    assert left_open(top=3) == 3
    assert left_open.settings["top"].annotation == int | None  # type: ignore[attr-defined]


def test_settings_by_name_are_read():
    texts = ["margin=0.1", "bounds=[1, 2]", "on=true", "margin=0.2"]
    assert parsed_settings(texts) == {"margin": 0.2, "bounds": [1, 2], "on": True}
    assert parsed_settings(["mixing=grad-norm", "guide=./model"]) == {"mixing": "grad-norm", "guide": "./model"}
    assert parsed_settings(["share=.5", "least=-.25", "at=.x"]) == {"share": 0.5, "least": -0.25, "at": ".x"}
    assert parsed_settings(["a=True", "b=False", "c=None", "d=false"]) == {"a": True, "b": False, "c": None, "d": False}
    with spelling({"settings": "--set"}), pytest.raises(InputError, match=r"^--set margin: expected NAME=VALUE"):
        parsed_settings(["margin"])


def test_the_programs_help_is_the_doors(capsys):
    program("see")(["see", "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for text in (
        "Usage: foils see -o FILE [OPTIONS] COLLECTION See",
        "See what a door is given.", "A second paragraph.", "COLLECTION A folder. [required]",
        "--with CHOICE Retriever.",
        "--lambda FLOAT A number with another name in the program. Range: above 0. [default: 1.0]",
        "--ranks FROM-TO Take negatives", "[choices: top, uniform]", "Example: foils see folder/ --with dense",
    ):  # fmt: skip
        assert text in shown, text
    assert "Raises" not in shown
    assert "empty" not in shown


def test_a_result_shows_itself():
    seen = Seen({"a": "<b>"})
    assert "What the door saw" in str(seen)
    assert repr(seen) == 'Seen(What the door saw: a, value "<b>")'
    assert "<td>&quot;&lt;b&gt;&quot;</td>" in seen._repr_html_()
    assert (number(None), number(0.12345, 2), p_value(0.00001), p_value(0.04)) == ("–", "0.12", "< 0.0001", "0.0400")


@dataclass(frozen=True)
class IdleSettings(Settings):
    """Settings that do nothing without others.

    Attributes:
        pool: Candidates.
        margin: Of a mask.
        seed: Of what draws.
        softness: Of the mask's edge.
        token_length: Of a token.
    """

    pool: Annotated[int, Option(needs={"method": ("cross-encoder",)})] = 10
    margin: Annotated[float, Option(needs={"reranker": False})] = 0.1
    seed: Annotated[int, Option(needs=[{"method": ("random",)}, {"draw": ("uniform", "simans")}])] = 0
    softness: Annotated[float | None, Option(needs={"pool": lambda pool: pool > 10})] = None
    token_length: Annotated[int, Option(needs={"judges": "llm", "not_a_setting_of_this_door": True})] = 4


@door(needs={"idle": {"model": True, "method": lambda method: method != "none"}, "judges": {"idle_switch": True}})
def idle(
    method: Annotated[str, Option(flag="--with")] = "bm25",
    *,
    model: str | None = "m",
    reranker: bool = False,
    draw: str = "top",
    judges: list[str] | None = None,
    idle_switch: bool = True,
    idle: IdleSettings,
) -> IdleSettings:
    """Take settings that need others."""
    return idle


@pytest.mark.parametrize(("given", "message"), [
    ({"pool": 20}, r"pool 20: no effect with method bm25; leave it out, or give method cross-encoder"),
    ({"margin": 0.2, "reranker": True}, "margin 0.2: no effect with reranker True; leave it out"),
    ({"seed": 3}, "seed 3: no effect with method bm25; leave it out, or give method random or draw uniform or simans"),
    ({"softness": 0.5}, "softness 0.5: no effect with pool 10"),
    ({"token_length": 5, "judges": ["bi-encoder:x"]}, "token_length 5: no effect with judges bi-encoder:x; leave"),
    ({"pool": 20, "method": "cross-encoder", "model": None}, "pool 20: no effect without model; leave it out"),
    ({"judges": ["a"], "idle_switch": False}, "judges a: no effect without idle_switch"),
    ({"pool": 20, "seed": 3, "draw": "top"}, "pool 20: no effect .*; seed 3: no effect"),
])  # fmt: skip
def test_a_setting_that_has_no_effect_beside_the_others_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        idle(**given)


def test_a_setting_that_has_an_effect_or_its_default_is_taken():
    taken = idle(pool=20, method="cross-encoder", softness=0.5, draw="simans", seed=3, margin=0.2)
    assert (taken.pool, taken.softness, taken.seed, taken.margin) == (20, 0.5, 3, 0.2)
    assert idle(pool=10, method="bm25", model=None, seed=0) == IdleSettings()
    assert idle(token_length=5, judges=["x", "llm:qwen"]).token_length == 5


def test_one_value_and_several():
    given = ["a"]
    assert several(given) == given
    assert several(given) is not given, "what is done to the list is not done to what was given"
    assert [several(each) for each in ("a.tsv", 0.5, ("a", "b"), [])] == [["a.tsv"], [0.5], ["a", "b"], []]


def test_numbers_with_their_units():
    units = ("queries", "batches", "steps", "passes")
    assert [counted(1, unit) for unit in units] == ["1 query", "1 batch", "1 step", "1 pass"]
    assert counted(1200, "queries") == "1,200 queries"


def test_a_misspelt_argument_names_the_function_and_the_nearest_one():
    with pytest.raises(TypeError, match=r"foils\.mine\(\): .* argument 'tpo'; did you mean 'top'\?"):
        foils.mine("nowhere", tpo=3)
    with pytest.raises(TypeError, match=r"foils\.describe\(\): .* argument 'zzz'; it has collection, columns"):
        foils.describe("nowhere", zzz=3)


def test_a_text_where_several_are_taken_is_one_of_them(beir_folder):
    folder = beir_folder()
    measured = foils.evaluate(folder, "bm25", measures="nDCG@10", split="train")
    assert [*measured.systems[0].means] == ["nDCG@10"]
    mean = measured.systems[0].means["nDCG@10"]
    assert repr(measured) == f"Evaluation(small (train): nDCG@10 of 'bm25' {mean:.4f})"
    assert measured.to_pandas().loc[0, "measures.nDCG@10"] == mean
    both = foils.evaluate(folder, "bm25", measures="nDCG@10,AP", split="train")
    assert [*both.systems[0].means] == ["nDCG@10", "AP"]


def test_help_shows_types_without_what_the_program_needs_of_them():
    assert "Annotated" not in str(inspect.signature(foils.train))
