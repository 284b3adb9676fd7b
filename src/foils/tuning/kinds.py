"""What a tuning tunes: an encoder, or a reranker. All else is the same for both.

The two kinds have the same attributes and methods:

- `measures`: on test, the first of which decides. `depth`: documents of each query that are reranked; 0: all documents
  are searched.
- `static`: whether the model is a bag of word vectors. `knows`: whether there is something that it could forget.
- `per_query`: negatives of a positive. `in_row`: of a row of the training. `in_batch`: whether others of a batch count.
- `sources`: that are mined, `top` negatives of each query, and decided between. `least`: what is trained on where none
  is worth it; empty: pairs alone.
- `starts`: what the training starts from, for the decision. `encoder`: mines and decides.
- `base`: what the tuned model is measured against: the model's name, or the order of a first stage. `before`: the same
  in words that do not name the model. `label`: its name among the systems. `first_stage`: what the first stage has on
  test, where that is another thing.
- `of()`: digests of what every step begins with.
- `load`, `learning_rate`, `data`, `training`, `fit`: of the training. `few_steps`: multiple of the learning rate that
  suits one of few steps.
- `part`: what is trained and tested on. `dev_part`: what is measured on dev. `elsewhere()` measures another collection,
  of which it takes `kept_part`.
- `cuts`: dimensions at which vectors may be cut, which are trained for and measured, too; none of a reranker.
- `base_dev`, `dev`, `base_run`, `run`: measures on dev, and rankings of test, of the base and of a tuned model.
- `seconds_a_text`, `embedding`: what a text takes, and what comes before any training.
"""

from __future__ import annotations

from foils.encode import VectorStore
from foils.tuning.encoders import Encoders
from foils.tuning.kept import Kept
from foils.tuning.plan import Section
from foils.tuning.rerankers import Rerankers

Kind = Encoders | Rerankers


def kind_of_tuning(given: Section, store: VectorStore, kept: Kept, device: str | None) -> Kind:
    """Return what a tuning tunes.

    Args:
        given: section [given] of the plan.
        store: of vectors.
        kept: finished steps.
        device: as torch names it.
    """
    return Rerankers(given, store, kept, device) if given.get("reranker") else Encoders(given, store, device)
