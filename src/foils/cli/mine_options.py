"""Groups of options of foils mine, and what becomes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli.groups import panel
from foils.cli.made import Made
from foils.runtime.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foils.data import Collection
    from foils.mining import Retriever
    from foils.mining.filters import PositiveScores
    from foils.mining.generation_prompt import Asking
    from foils.mining.pairs import Draw, PairScorer, Rule


DRAWS = ("top", "uniform", "simans")
_rule = panel("Rules (each marks rows and says why)")
_llm = panel("What it is to write (--with llm)")


@dataclass(frozen=True)
class WindowOptions:
    """Which of the ranked documents are taken."""

    near_duplicate: Annotated[
        float,
        typer.Option(min=0.0, help="Reject documents whose token sets have this Jaccard similarity to a positive's."),
    ] = 0.9
    ranks: Annotated[
        str | None,
        typer.Option(metavar="FROM-TO", help="Take negatives from these ranks alone, counted from 0, TO not included."),
    ] = None
    draw: Annotated[
        str, typer.Option(help="How they are taken there: top, uniform, or simans (a, b as in simans:100,-0.1).")
    ] = "top"

    def window(self) -> tuple[int, int | None]:
        """Read `--ranks A-B`: from rank A, counted from 0, up to, not with, rank B.

        Raises:
            InputError: it is not of this form.
        """
        if self.ranks is None:
            return 0, None
        first, dash, end = self.ranks.partition("-")
        if not (first.isdecimal() and dash and (end.isdecimal() or not end)):
            raise InputError(f"--ranks {self.ranks}: expected FROM-TO, as in 20-110, or FROM- for no end")
        return int(first), int(end) if end else None

    def drawn(self, positives: Callable[[], PositiveScores]) -> Draw | None:
        """Return how negatives are drawn from the window; None for the first ones.

        Raises:
            UnknownNameError: an unknown way.
            InputError: a simans without its two numbers.
        """
        from foils.mining.sampling import SimANS, Uniform

        name, _, numbers = self.draw.partition(":")
        if name not in DRAWS:
            raise UnknownNameError("way of taking", name, DRAWS)
        if name != "simans":
            return None if name == "top" else Uniform()
        try:
            a, b = map(float, numbers.split(",")) if numbers else (SimANS.a, SimANS.b)
        except ValueError as error:
            raise InputError(f"--draw {self.draw}: expected simans:A,B, as in simans:100,-0.1") from error
        return SimANS(positives(), a=a, b=b)


@dataclass(frozen=True)
class FuseOptions:
    """How several sources become one."""

    fusion: Annotated[str, typer.Option("--method", help="With fuse: union, interleave, rrf, or weighted.")] = "union"
    rrf_k: Annotated[float, typer.Option("--rrf-k", min=0.0, help="With rrf: its constant.")] = 60.0
    weight: Annotated[
        list[str] | None, typer.Option("--weight", metavar="NAME=NUMBER", help="With weighted: of a source.")
    ] = None

    def fused(self, collection: Collection, specs: list[str], top: int | None) -> Made:
        """Return the sources as one table.

        Raises:
            InputError: fewer than two of them, or a weight that is not NAME=NUMBER.
        """
        from foils.data.sources import read_sources
        from foils.mining.fuse import fuse

        if len(specs) < 2:
            raise InputError(f"--with fuse needs at least two --source, found {len(specs)}")
        sources = read_sources(specs, collection)
        fused = fuse(
            {source.name: source.negatives for source in sources},
            method=self.fusion,
            top=top,
            k=self.rrf_k,
            weights=_named_numbers(self.weight or [], "--weight"),
            digests={source.name: source.digest for source in sources},
        )
        counts = {source.name: len(source.negatives) for source in sources}
        rows = [(name, f"{count:,}") for name, count in {**counts, "+".join(counts): len(fused)}.items()]
        facts = {"sources": counts, "rows": len(fused)}
        return Made(fused, f"{self.fusion} of {len(sources)} sources", rows, facts, ("source", "rows"))


@dataclass(frozen=True)
class RuleOptions:
    """Which candidates are rejected, beside look-alikes of positives."""

    margin: Annotated[
        float | None, _rule("--margin", "Reject scores that are not at least so much below the positive's.")
    ] = None
    relative_margin: Annotated[
        float | None, _rule("--relative-margin", "The same, as a share of the positive's magnitude.")
    ] = None
    share: Annotated[
        float | None,
        _rule("--share-of-positive", "Reject scores over this share of the positive's, as 0.95 (NV-Retriever)."),
    ] = None
    against: Annotated[str, _rule("--against", "Which positive: minimum, mean, maximum, or each for itself.")] = (
        "minimum"
    )
    max_score: Annotated[float | None, _rule("--max-score", "Reject scores above it.")] = None
    min_score: Annotated[float | None, _rule("--min-score", "Reject scores below it.")] = None
    answers: Annotated[
        Path | None,
        _rule("--answers", "Reject documents that hold an answer: JSON lines of query_id and answers.", metavar="FILE"),
    ] = None
    same_query: Annotated[
        float | None,
        _rule("--same-query", "Reject what is relevant for a query with this Jaccard similarity, as 0.9."),
    ] = None
    scorer: Annotated[
        str,
        _rule("--scorer", "Whose scores the rules see: own (of --with), encoder, or cross-encoder (--cross-encoder)."),
    ] = "own"
    keep_short: Annotated[
        bool, _rule("--keep-short", "Leave lists short where rows are rejected, instead of taking the next in rank.")
    ] = False

    @property
    def need_positives(self) -> bool:
        """Whether a rule compares with the positives' scores."""
        return any(value is not None for value in (self.margin, self.relative_margin, self.share))

    def make(self, collection: Collection, positives: Callable[[], PositiveScores]) -> list[Rule]:
        """Return the rules, in the order in which they are asked."""
        from foils.mining.filters import HoldsAnswer, LabelledElsewhere, Margin, ScoreAbove, ScoreBelow

        rules: list[Rule] = []
        if self.same_query is not None:
            rules.append(LabelledElsewhere(collection, threshold=self.same_query))
        if self.answers is not None:
            rules.append(HoldsAnswer(_read_answers(self.answers, collection)))
        if self.need_positives:
            scores = positives()
            if self.margin is not None:
                rules.append(Margin(scores, absolute=self.margin, against=self.against))
            if self.relative_margin is not None:
                rules.append(Margin(scores, relative=self.relative_margin, against=self.against))
            if self.share is not None:
                rules.append(Margin(scores, relative=1 - self.share, against=self.against))
        if self.max_score is not None:
            rules.append(ScoreAbove(self.max_score))
        if self.min_score is not None:
            rules.append(ScoreBelow(self.min_score))
        return rules

    def describe(self) -> dict[str, Any]:
        """Return the options that are set, for provenance."""
        chosen = {option.name: getattr(self, option.name) for option in fields(self)}
        return {
            name: value.name if isinstance(value, Path) else value
            for name, value in chosen.items()
            if value is not None and value is not False and (name != "against" or self.need_positives)
        }


def positive_scores(
    collection: Collection, split: str, scorer: PairScorer | None, retriever: Retriever | None
) -> Callable[[], PositiveScores]:
    """Return a function that scores the positives, on the scorer's scale or the retriever's own."""

    def made() -> PositiveScores:
        from foils.mining.filters import PositiveScores

        own = retriever if hasattr(retriever, "score") else None
        if (chosen := scorer or own) is None:
            raise InputError(
                "a margin needs scores of the positives, which this source does not give; choose --scorer encoder"
            )
        return PositiveScores.of(collection, chosen, collection.positives(split).query_rows)  # type: ignore[arg-type]

    return made


@dataclass(frozen=True)
class WritingOptions:
    """What the model is asked to write, and how often."""

    domain: Annotated[str, _llm("--domain", "The field of the collection, told to the model.")] = "general"
    difficulty: Annotated[str, _llm("--difficulty", "How hard to tell from an answer.")] = "hard"
    length: Annotated[str, _llm("--length", "Of each negative.")] = "about as many words as the passage above"
    example: Annotated[Path | None, _llm("--example", "A worked example for the prompt.", metavar="FILE")] = None
    template: Annotated[Path | None, _llm("--template", "A prompt of your own, with slots.", metavar="FILE")] = None
    asks: Annotated[int, _llm("--asks", "How often a record is asked at most.", min=1)] = 3
    shortest: Annotated[
        float,
        _llm("--shortest", "Turn away texts with fewer words than this share of a positive's.", min=0.0, max=1.0),
    ] = 0.1
    limit: Annotated[int | None, _llm("--limit", "Ask for the first so many queries alone.", min=1)] = None
    dry_run: Annotated[bool, _llm("--dry-run", "Print the first prompt, and ask nothing.")] = False

    def asking(self, number: int, temperature: float, seed: int, most_tokens: int | None) -> Asking:
        """Return what is asked."""
        from foils.data.lines import whole_text
        from foils.mining.generation_prompt import Asking, Prompt

        example = whole_text(self.example).strip() if self.example else ""
        slots = {"domain": self.domain, "difficulty": self.difficulty, "length": self.length, "example": example}
        prompt = Prompt.read(self.template, **slots) if self.template else Prompt(**slots)
        return Asking(prompt, number, self.asks, temperature, seed, most_tokens, self.shortest)


def _named_numbers(specs: list[str], option: str) -> dict[str, float]:
    """Read `NAME=NUMBER` options."""
    found = {}
    for spec in specs:
        name, equals, value = spec.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(f"{option} {spec}: expected NAME=NUMBER, as in bm25=2")
    return found


def _read_answers(path: Path, collection: Collection) -> dict[str, list[str]]:
    from foils.data.lines import Complaints, json_objects, text_field

    complaints = Complaints(path)
    found: dict[str, list[str]] = {}
    queries = set(collection.queries["query_id"].to_pylist())
    for line, record in json_objects(path, complaints):
        query, answers = text_field(record.get("query_id")), record.get("answers")
        if query is None or not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            complaints.add('expected {"query_id": string, "answers": [string, …]}', line)
        elif query not in queries:
            complaints.add(f"unknown query_id {json.dumps(query)}: not in the collection {collection.name}", line)
        else:
            found[query] = [*found.get(query, []), *answers]
    complaints.settle()
    return found
