"""Which options of foils train go together; one that would do nothing is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foils.cli.groups import only, refuse


def check_options(chosen: Mapping[str, Any], options: Mapping[str, object]) -> None:
    """Raise an InputError for options that have no effect beside the others, before anything is read.

    Args:
        chosen: every parameter's value, by its name.
        options: those that were given, by name as typed.
    """
    from foils.encode.models import STATIC
    from foils.training.settings import RECIPE_FORM

    reranker = chosen["reranker"]
    if chosen["dev_split"] is None:
        refuse(
            only(options, "--patience", *(["--dev-run"] if reranker else [])),
            "without --dev, for nothing is measured while the model trains; give --dev SPLIT, or leave it out",
        )
    if chosen["model"].startswith(STATIC) and not reranker:
        refuse(
            only(options, "--mini-batch", "--max-length"),
            f"with --model {chosen['model']}, a bag of words, which reads whole texts and needs little memory; leave "
            "it out",
        )
    if reranker and chosen["loss"] in ("regression", "binary"):
        refuse(
            only(options, "--mini-batch"),
            f"with --loss {chosen['loss']}, whose batch is of pairs; give a smaller --batch-size",
        )
    if reranker:
        refuse(only(options, "--similarity"), "with --reranker, which scores pairs and has no vectors; leave it out")
    usual = "pairs" if not (reranker or chosen["source"] or chosen["refresh"]) else "lists or triplets"
    if (chosen["form"] or RECIPE_FORM.get(chosen["recipe"] or "", usual)) == "pairs":
        refuse(
            only(options, "--per-query"),
            "with pairs, which have no negatives of their own; leave it out, or give a source and --form triplets or "
            "lists",
        )
