"""How a verb gets a group of options: where they stand, what they are by default, and what the verb is given."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from foils.cli.groups import checked, given, only, options_of, panel, refuse, takes
from foils.runtime.errors import InputError

_wine = panel("Wine")


@dataclass(frozen=True)
class Wine:
    year: Annotated[int, _wine("--year", "Of the harvest.", min=1900)]
    colour: Annotated[str, _wine("--colour", "Of the grape.", metavar="NAME")] = "red"
    corked: Annotated[bool, _wine("--corked", "Whether it is.")] = False


def serve(table: int, *, wine: Wine, glasses: int = 2) -> None:
    """Serve."""
    print(table, wine, glasses)


def names(verb):
    return list(inspect.signature(verb).parameters)


def default(verb, name):
    return inspect.signature(verb).parameters[name].default


def test_the_fields_stand_where_the_group_stood_with_their_own_defaults():
    verb = takes(Wine, "wine")(serve)
    assert names(verb) == ["table", "year", "colour", "corked", "glasses"]
    assert default(verb, "year") is inspect.Parameter.empty
    assert (default(verb, "colour"), default(verb, "glasses")) == ("red", 2)
    assert (verb.__name__, verb.__doc__) == ("serve", "Serve.")


def test_a_default_of_the_parameter_replaces_those_of_the_fields():
    def pour(*, wine: Wine = Wine(1999, corked=True)) -> None:
        print(wine)

    verb = takes(Wine, "wine")(pour)
    assert [default(verb, name) for name in names(verb)] == [1999, "red", True]


def test_fields_that_are_left_out_are_no_options_and_keep_their_defaults(capsys):
    verb = takes(Wine, "wine", without=["colour"])(serve)
    assert names(verb) == ["table", "year", "corked", "glasses"]
    verb(table=1, year=2001, corked=False, glasses=3)
    assert capsys.readouterr().out == f"1 {Wine(2001)} 3\n"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["7", "--year", "1964"], 0, f"7 {Wine(1964)} 2\n"),
        (["7", "--year", "1964", "--colour", "white", "--corked"], 0, f"7 {Wine(1964, 'white', True)} 2\n"),
        (["7"], 2, "--year"),
        (["7", "--year", "1492"], 2, "1900"),
        (["--help"], 0, "─ Wine ─"),
    ],
)
def test_the_verb_is_given_the_group(arguments, status, said):
    app = typer.Typer()
    app.command()(takes(Wine, "wine")(serve))
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == status
    assert said in ended.output


@dataclass(frozen=True)
class Cellar:
    colour: Annotated[str, _wine("--colour", "Of the grape.")] = "red"
    bottles_a_rack: Annotated[int | None, typer.Option(min=1)] = None
    sorts: Annotated[list[str] | None, typer.Option("-s", "--sort")] = None
    cool: Annotated[bool, _wine("--cool/--no-cool", "Whether it is.")] = True
    corked: Annotated[bool, _wine("--corked", "Whether they are.")] = False


def test_options_have_the_names_that_are_typed():
    assert [*options_of(Cellar)] == ["--colour", "--bottles-a-rack", "--sort", "--cool", "--corked"]
    app = typer.Typer()

    @app.command()
    @takes(Cellar, "cellar")
    def stock(*, cellar: Cellar) -> None:
        """Stock."""

    assert [name for name in options_of(Cellar) if name not in CliRunner().invoke(app, ["--help"]).output] == []


@takes(Cellar, "cellar")
def stock(
    shelf: Annotated[str, typer.Argument()], *, key: Annotated[str, typer.Option("-k", "--key")], cellar: Cellar
) -> None:
    """Stock."""
    print(shelf, key, cellar)


def test_given_are_those_options_that_are_not_as_usual():
    parameters = inspect.signature(stock).parameters.values()
    usual = {"shelf": "low", "key": "k", **vars(Cellar())}
    assert given(parameters, usual) == {"--key": "k"}
    assert given(parameters, {**usual, **vars(Cellar("white", 6, ["a"], cool=False))}) == {
        "--key": "k", "--colour": "white", "--bottles-a-rack": 6, "--sort": ["a"], "--cool": False,
    }  # fmt: skip
    assert given(parameters, {**usual, "shelf": "high", "colour": "red"}) == {"--key": "k"}


def test_options_are_checked_before_the_verb_begins():
    def check(chosen, options):
        if not chosen["cool"]:
            refuse(only(options, "--colour"), "where it is warm")

    assert checked(stock, None) is stock
    app = typer.Typer()
    app.command()(checked(stock, check))
    runner = CliRunner()
    taken = runner.invoke(app, ["low", "-k", "x", "--colour", "white"])
    assert (taken.exit_code, taken.output) == (0, f"low x {Cellar('white')}\n")
    refused = runner.invoke(app, ["low", "-k", "x", "--colour", "white", "--no-cool"])
    assert (refused.output, str(refused.exception)) == ("", "--colour white: no effect where it is warm")


def test_what_is_refused_is_told_together():
    refuse({}, "here")
    refuse({"--split": None}, "here")
    options = {"--colour": "white", "--bottles-a-rack": 6, "--sort": ["a", "b"], "--cool": False, "--corked": True}
    with pytest.raises(InputError) as error:
        refuse({**options, "--split": None}, "on a table; leave it out")
    said = "--colour white, --bottles-a-rack 6, --sort a b, --no-cool, --corked: no effect on a table; leave it out"
    assert str(error.value) == said
    assert only(options, "--corked", "--split") == {"--corked": True}
