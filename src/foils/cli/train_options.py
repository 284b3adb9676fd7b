"""Groups of options of foils train, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.runtime.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foils.data import Collection, Negatives
    from foils.training.data import TrainingSet
    from foils.training.refresh import Refresh
    from foils.training.settings import TrainSettings

MEASURE = "nDCG@10"
MINED_ANEW = 10  # negatives of a query, where none says how many


@dataclass(frozen=True)
class StepOptions:
    """How the weights move, as `foils.training.settings.TrainSettings` names it; None: the default, or the recipe's."""

    epochs: Annotated[int | None, typer.Option(min=1, help="Default: 1, or the recipe's.")] = None
    batch_size: Annotated[int | None, typer.Option(min=1, help="Default: 128, or the recipe's.")] = None
    mini_batch_size: Annotated[
        int | None,
        typer.Option("--mini-batch", min=1, help="Texts embedded at once: batches of any size in small memory."),
    ] = None
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Peak learning rate. Default: the recipe's, or that of the model's kind (docs/training.md)."),
    ] = None
    warmup: Annotated[float | None, typer.Option(help="Share of the steps.")] = None
    weight_decay: Annotated[float | None, typer.Option(help="Of AdamW.")] = None
    max_length: Annotated[int | None, typer.Option(min=2, help="Cut texts after so many tokens.")] = None
    precision: Annotated[str | None, typer.Option(help="auto, float32, bfloat16 or float16.")] = None


@dataclass(frozen=True)
class DevOptions:
    """How the best model is chosen, and training stops."""

    dev_split: Annotated[
        str | None, typer.Option("--dev", metavar="SPLIT", help=f"Choose the model by {MEASURE} on this split.")
    ] = None
    dev_run: Annotated[
        Path | None,
        typer.Option("--dev-run", metavar="FILE", help="Of a reranker: the TREC run that it reranks on dev."),
    ] = None
    patience: Annotated[
        int | None, typer.Option(min=1, help="Evaluations on dev without a better score before training stops.")
    ] = None

    def check(self, *, reranker: bool) -> None:
        """Raise an InputError for a reranker that has nothing to rerank, or an encoder that has, before all else."""
        if reranker and self.dev_split and self.dev_run is None:
            raise InputError("--dev needs a run for the reranker to rerank: give --dev-run FILE")
        if self.dev_run and not reranker:
            raise InputError("--dev-run is what a reranker reranks; a bi-encoder searches by itself: give --dev alone")

    def score(self, collection: Collection, *, reranker: bool) -> Callable[[Any], float] | None:
        """Return the function from a model to its measure on dev; None without --dev."""
        from foils.data import Run
        from foils.evaluation import encoder_score, reranker_score

        if self.dev_split is None:
            return None
        if reranker and self.dev_run is not None:
            return reranker_score(collection, self.dev_split, Run.read(self.dev_run), MEASURE)
        return encoder_score(collection, self.dev_split, MEASURE)


@dataclass(frozen=True)
class MethodOptions:
    """What is learnt, from what: the loss, its batches, its rows."""

    recipe: Annotated[str | None, typer.Option(help="Settings to begin with: eci-sem or hobit.")] = None
    batches: Annotated[
        str | None, typer.Option(help="random, no-duplicates, hobit, hobit-c, ngame, walks or b3. Default: random.")
    ] = None
    loss: Annotated[
        str | None,
        typer.Option(
            help="mnrl, weighted, debiased, hard-weighted or hybrid; of rerankers: regression, binary, listnet, lambda "
            "or hybrid. Default: mnrl; listnet."
        ),
    ] = None
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of the loss, as in --set prior=0.05; several times."
        ),
    ] = None
    batch_setting: Annotated[
        list[str] | None,
        typer.Option("--set-batches", metavar="NAME=VALUE", help="A setting of the way of batching; several times."),
    ] = None
    curriculum: Annotated[
        str | None,
        typer.Option(
            help="By rating gaps. fixed: let harder negatives in by epoch (Table 3). progress: batches of one tier, "
            "drawn by what the model learns from them."
        ),
    ] = None
    refresh: Annotated[
        int | None,
        typer.Option(
            "--refresh",
            min=1,
            metavar="EPOCHS",
            help="Mine negatives anew with the model as it is, every so many epochs (ANCE). Without a source, it "
            "begins with negatives of the untrained model.",
        ),
    ] = None
    form: Annotated[
        str | None, typer.Option(help="triplets, lists or pairs. Default: triplets; pairs without a source.")
    ] = None
    per_query: Annotated[int | None, typer.Option(min=1, help="Negatives of a query. Default: all.")] = None
    max_positives: Annotated[
        int | None,
        typer.Option(min=1, help="Labelled positives of a query, at most. Default: 64, or the recipe's."),
    ] = None

    def plan(self, given: dict[str, Any], *, reranker: bool, source: bool, dev: bool) -> Plan:
        """Return how to train: the recipe's settings, with those that are given in their place.

        Args:
            given: of `TrainSettings`; None where a setting is not given.
            reranker: whether a reranker is trained.
            source: whether there is a source of negatives.
            dev: whether the model is measured on dev while it trains.

        Raises:
            UnknownNameError: an unknown recipe or way of batching.
            InputError: settings out of range, or options that do not go together.
        """
        from foils.data.training_rows import MAX_POSITIVES
        from foils.training.settings import RECIPE_BATCHES, RECIPE_FORM, RECIPE_POSITIVES, RECIPES, TrainSettings

        recipe = self.recipe or ""
        if self.recipe is not None and (recipe not in RECIPES or reranker):
            known = [] if reranker else RECIPES
            raise UnknownNameError("recipe of a reranker" if reranker else "recipe", recipe, known)
        base = RECIPES[recipe] if recipe else TrainSettings(loss="listnet" if reranker else "mnrl")
        chosen = {name: value for name, value in {"loss": self.loss, **given}.items() if value is not None}
        if chosen.get("loss", base.loss) != base.loss:
            base = replace(base, loss_settings={})
        if base.patience is not None and not dev and "patience" not in chosen:
            chosen["patience"] = None  # a recipe's: nothing to be patient about without dev
        own = {**base.loss_settings, **dict(opt.parsed_loosely(text) for text in self.setting or [])}
        usual = "lists" if reranker else RECIPE_FORM.get(recipe, "triplets" if source or self.refresh else "pairs")
        return Plan(
            self,
            reranker,
            settings=replace(base, **{**chosen, "loss_settings": own}),
            batches=self.batches or RECIPE_BATCHES.get(recipe, "random"),
            batch_settings=dict(opt.parsed_setting(text) for text in self.batch_setting or []),
            form=self.form or usual,
            per_query=self.per_query or (MINED_ANEW if self.refresh else None),
            max_positives=self.max_positives or RECIPE_POSITIVES.get(recipe, MAX_POSITIVES),
        )


@dataclass(frozen=True)
class Plan:
    """How a model is trained, where recipe and options are put together."""

    method: MethodOptions
    reranker: bool
    settings: TrainSettings
    batches: str
    batch_settings: dict[str, Any]
    form: str
    per_query: int | None
    max_positives: int

    def __post_init__(self) -> None:
        from foils.training.settings import ways_of_batching

        if self.method.refresh is not None and (self.reranker or self.form == "pairs"):
            raise InputError("--refresh mines negatives for a bi-encoder; it goes with triplets or lists")
        if self.reranker and (self.batches != "random" or self.batch_settings or self.method.curriculum):
            raise InputError(
                "a reranker has no in-batch negatives: --batches, --set-batches and --curriculum are of bi-encoders"
            )
        if self.batches not in ways_of_batching():
            raise UnknownNameError("way of batching", self.batches, ways_of_batching())

    def rows(
        self, collection: Collection, negatives: Negatives | None, split: str, untrained: Callable[[], Any]
    ) -> tuple[TrainingSet, Refresh | None]:
        """Return what is trained on, and how it is mined anew.

        Args:
            collection: the texts.
            negatives: of the source; None: pairs alone, or, where they are mined anew, those of the untrained model.
            split: whose queries.
            untrained: loads the model.
        """
        from foils.training.data import training_set
        from foils.training.gaps import outside_danger
        from foils.training.refresh import ance_refresh

        method, refresh = self.method, None
        shape: dict[str, Any] = {"split": split, "form": self.form, "max_positives": self.max_positives}
        if method.refresh is not None:
            refresh = ance_refresh(collection, every=method.refresh, top=self.per_query or MINED_ANEW, **shape)
            if negatives is None:
                negatives = refresh.mine(untrained())
        data = training_set(collection, negatives, per_query=self.per_query, **shape)
        return (outside_danger(data) if method.curriculum == "progress" else data), refresh

    def describe(self, model: str, split: str) -> dict[str, Any]:
        """Return the settings that provenance and the model's card tell."""
        return {
            "model": model,
            "reranker": self.reranker,
            "recipe": self.method.recipe,
            "batches": self.batches,
            "batch_settings": self.batch_settings,
            "form": self.form,
            "per_query": self.per_query,
            "max_positives": self.max_positives,
            "split": split,
            "curriculum": self.method.curriculum,
            "refresh": self.method.refresh,
            **{name: value for name, value in asdict(self.settings).items() if name not in ("seed", "trackers")},
        }
