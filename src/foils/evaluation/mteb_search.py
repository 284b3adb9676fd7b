"""Search with each query's useful dimensions as mteb's retrieval protocol runs it. Needs the package mteb.

results = mteb.evaluate(mteb_search(mteb.get_model("…")), tasks, cache=None)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.encode import Vectors
from foils.runtime.errors import InputError, require
from foils.searching.dimensions import masked
from foils.searching.index import ExactIndex
from foils.searching.masks import query_masks
from foils.searching.passes import check_search_depths, rank_lists, search_vectors
from foils.searching.settings import FEEDBACK_DEPTH, DimensionSettings, SecondPass

Floats = npt.NDArray[np.float32]
SELECTIVE = DimensionSettings("selective")
PROBED = 8  # vectors by which a similarity is recognised


class MTEBIndex:
    """What mteb calls an index backend: it keeps documents, and searches with the dimensions that each query keeps.

    Exact; one search by the whole query gives the feedback, and the masked query searches or orders again. Of a
    reranking task, a query's candidates, by the whole query's similarity, are both feedback and what is ordered.

    Args:
        settings: how dimensions are chosen; selective unless said otherwise. One with a random moon is refused.
        feedback_depth: length of the feedback list.
        second_pass: `index` ranks all documents again, `retrieved` only those of the first pass.

    Raises:
        UnknownNameError: an unknown second pass.
        InputError: a depth below 1, or a moon drawn at random.
    """

    def __init__(
        self,
        settings: DimensionSettings = SELECTIVE,
        *,
        feedback_depth: int = FEEDBACK_DEPTH,
        second_pass: SecondPass = "index",
    ) -> None:
        check_search_depths(1, feedback_depth, None, second_pass)
        if settings.method == "eclipse" and settings.moon_pool is not None:
            raise InputError("moon_pool: mteb has no seed for moons drawn at random; leave it out")
        self.settings, self.feedback_depth, self.second_pass = settings, feedback_depth, second_pass
        self.clear()

    def clear(self) -> None:
        """Forget all documents."""
        self._ids: list[str] = []
        self._documents = np.empty((0, 0), np.float32)

    def add_documents(self, embeddings: Any, idxs: Sequence[str]) -> None:
        """Add documents, (n, d) vectors and their ids."""
        vectors = _matrix(embeddings)
        self._documents = np.concatenate([self._documents, vectors]) if self._ids else vectors
        self._ids += list(idxs)

    def search(
        self,
        embeddings: Any,
        top_k: int,
        similarity_fn: Callable[[Any, Any], Any],
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        query_idx_to_id: Mapping[int, str] | None = None,
    ) -> tuple[list[list[float]], list[list[int]]]:
        """Return the similarities and places of each query's best documents.

        Args:
            embeddings: (n, d) queries.
            top_k: how many documents.
            similarity_fn: the model's; inner products and cosines are served.
            top_ranked: of a reranking task, query id → ids of its candidates; places are then those in that list.
            query_idx_to_id: place of a query → its id; needed with `top_ranked`.

        Raises:
            InputError: another similarity, or no documents.
        """
        if not self._ids:
            raise InputError("no documents; add them before the search")
        queries, vectors = _comparable(_matrix(embeddings), self._documents, similarity_fn)
        documents = Vectors.of(vectors)
        if top_ranked is None:
            found = search_vectors(
                queries, documents, ExactIndex(documents), self.settings, k=top_k,
                feedback_depth=self.feedback_depth, second_pass=self.second_pass,
            )  # fmt: skip
            return [of.tolist() for of in found.scores], [of.tolist() for of in found.positions]
        place = {id_: at for at, id_ in enumerate(self._ids)}
        named = [top_ranked.get((query_idx_to_id or {})[at], ()) for at in range(len(queries))]
        candidates = [np.array([place[id_] for id_ in ids], np.int64) for ids in named]
        first, _ = rank_lists(queries, documents, candidates)
        masks, _ = query_masks(queries, documents, [of[: self.feedback_depth] for of in first], self.settings)
        ranked, scores = rank_lists(masked(queries, masks), documents, candidates)
        within = [{row: at for at, row in enumerate(rows.tolist())} for rows in candidates]
        places = [[at[row] for row in rows[:top_k].tolist()] for at, rows in zip(within, ranked, strict=True)]
        return [of[:top_k].tolist() for of in scores], places


def mteb_search(
    model: Any,
    settings: DimensionSettings = SELECTIVE,
    *,
    feedback_depth: int = FEEDBACK_DEPTH,
    second_pass: SecondPass = "index",
) -> Any:
    """Return a model of mteb's that searches with each query's useful dimensions, for `mteb.evaluate`.

    Its results are filed under the model's name with `-METHOD`, and the settings are in the revision, so that they are
    never taken for those of plain search.

    Args:
        model: an encoder as mteb takes it (`mteb.get_model`, `MTEBEncoder`), compared by cosine or inner product.
        settings: as `MTEBIndex`.
        feedback_depth: as `MTEBIndex`.
        second_pass: as `MTEBIndex`.

    Raises:
        MissingExtraError: without the package mteb.
        InputError: what `MTEBIndex` refuses.
    """
    wrapper = require("mteb", "mteb").models.SearchEncoderWrapper
    index = MTEBIndex(settings, feedback_depth=feedback_depth, second_pass=second_pass)
    searching = wrapper(model, index_backend=index)
    shown = " ".join(f"{name}={value}" for name, value in settings.changed().items() if name != "method")
    ways = [shown, f"feedback_depth={feedback_depth}", f"second_pass={second_pass}"]
    meta = model.mteb_model_meta
    changed = {"name": f"{meta.name}-{settings.method}", "revision": " ".join(filter(None, [meta.revision, *ways]))}
    searching.mteb_model_meta = meta.model_copy(update=changed)
    return searching


def _matrix(embeddings: Any) -> Floats:
    given = embeddings.detach().cpu().float().numpy() if hasattr(embeddings, "detach") else embeddings
    if not isinstance(given, np.ndarray) or given.ndim != 2:
        raise InputError(
            f"expected one vector for each text, (n, d); found {type(embeddings).__name__}: a model with a vector for "
            "each token has no dimensions of the whole query"
        )
    return np.ascontiguousarray(given, np.float32)


def _comparable(queries: Floats, documents: Floats, similarity_fn: Callable[[Any, Any], Any]) -> tuple[Floats, Floats]:
    """Queries and documents whose inner products are the similarity: as they are, or made of length 1."""
    few, some = queries[:PROBED], documents[:PROBED]
    wanted = np.asarray(similarity_fn(few, some), np.float32)
    if np.allclose(few @ some.T, wanted, rtol=1e-3, atol=1e-4):
        return queries, documents
    unit = _unit(queries), _unit(documents)
    if np.allclose(unit[0][:PROBED] @ unit[1][:PROBED].T, wanted, rtol=1e-3, atol=1e-4):
        return unit
    raise InputError(
        "the model's similarity is neither the inner product nor the cosine; dimensions are of those alone"
    )


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)
