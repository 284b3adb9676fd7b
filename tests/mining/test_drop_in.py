"""foils.mine_hard_negatives gives what sentence-transformers' function of this name gives, in the same run."""

import inspect
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import foils
from foils.encode.models import load_cross_encoder
from foils.runtime.errors import InputError
from refusals import refused
from tiny_models import tiny_cross_encoder
from train_models import WORDS, static_model

datasets = pytest.importorskip("datasets")
pytest.importorskip("faiss")

FORMS = ("triplet", "n-tuple", "labeled-pair", "labeled-list", "n-tuple-scores")
PROMPTS = {"query": "ba be ", "passage": "bi bo ", "other": "bu ca ", "@sign": "@ ce "}


def texts(seed: int, count: int, words: int) -> list[str]:
    """Texts of different words each, so that no two documents have one vector."""
    rng = np.random.default_rng(seed)
    drawn = (sorted(rng.choice(len(WORDS), words, replace=False).tolist()) for _ in range(4 * count))
    distinct = list(dict.fromkeys(tuple(each) for each in drawn))[:count]
    return [" ".join(WORDS[at] for at in rng.permutation(each)) for each in distinct]


DOCUMENTS = texts(0, 60, 7)


def pairs(seed: int, *, queries: int = 12, several: float = 0.3, repeated: float = 0.1) -> dict[str, list[str]]:
    """Queries of three words of their positive; some have a second one, some pairs stand there twice, in any order."""
    rng = np.random.default_rng(seed)
    rows = []
    for document in rng.choice(40, queries, replace=False):
        query = " ".join(DOCUMENTS[document].split()[:3])
        rows.append((query, DOCUMENTS[document]))
        if rng.random() < several:
            rows.append((query, DOCUMENTS[int(rng.integers(40))]))
        if rng.random() < repeated:
            rows.append(rows[-1])
    order = rng.permutation(len(rows))
    return {"question": [rows[at][0] for at in order], "answer": [rows[at][1] for at in order]}


@pytest.fixture(scope="module")
def model():
    made = static_model()
    made.prompts = {**PROMPTS}
    return made


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    return load_cross_encoder(tiny_cross_encoder(tmp_path_factory.mktemp("cross"), DOCUMENTS), device="cpu")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    return str(tmp_path_factory.mktemp("vectors"))


def theirs(dataset: Any, model: Any, **options: Any) -> Any:
    from sentence_transformers.util import mine_hard_negatives

    return mine_hard_negatives(dataset, model, verbose=False, **options)


def ours(dataset: Any, model: Any, folder: str, **options: Any) -> Any:
    return foils.mine_hard_negatives(dataset, model, verbose=False, cache_folder=folder, **options)


def same(one: Any, two: Any) -> None:
    assert one.column_names == two.column_names
    assert len(one) == len(two)
    if not len(two):
        return
    assert one.features == two.features
    for name in one.column_names:
        if name in ("score", "scores"):
            flat = [np.concatenate([np.atleast_1d(row) for row in each[name]]) for each in (one, two)]
            np.testing.assert_allclose(*flat, atol=2e-6)
        else:
            assert list(one[name]) == list(two[name])


def compared(dataset: Any, model: Any, folder: str, **options: Any) -> None:
    """Mine with both: the same data set, or an error of both; where theirs divides by 0, having left nothing, ours."""
    try:
        wanted = theirs(dataset, model, **options)
    except ZeroDivisionError:
        ours(dataset, model, folder, **options)
    except ValueError:
        with pytest.raises(ValueError, match=r"expected|leave"):
            ours(dataset, model, folder, **options)
    else:
        same(ours(dataset, model, folder, **options), wanted)


def margins(least: float, most: float) -> st.SearchStrategy[float]:
    """Margins that are not 0: whether a positive among the candidates is below itself, rounding says."""
    return st.floats(least, most).filter(lambda margin: abs(margin) > 1e-3)


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "range_min": st.integers(0, 5),
        "range_max": st.integers(1, 70),
        "max_score": st.floats(-0.2, 0.9),
        "min_score": st.floats(-0.5, 0.5),
        "absolute_margin": margins(-0.2, 0.5),
        "relative_margin": margins(-0.2, 0.9),
        "num_negatives": st.integers(1, 6),
        "output_format": st.sampled_from(FORMS),
        "output_scores": st.booleans(),
        "corpus": st.sampled_from([DOCUMENTS, DOCUMENTS[30:], DOCUMENTS[:5] * 2]),
        "use_faiss": st.booleans(),
        "include_positives": st.booleans(),
        "as_triplets": st.booleans(),
        "faiss_batch_size": st.integers(1, 9),
        "batch_size": st.integers(1, 9),
        "query_prompt": st.sampled_from(["", "da ", "@ da "]),
        "query_prompt_name": st.sampled_from(list(PROMPTS)),
        "corpus_prompt": st.sampled_from(["", "de "]),
        "corpus_prompt_name": st.sampled_from(list(PROMPTS)),
    },
)
EXAMPLES = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to make a failing case smaller takes minutes
)


@EXAMPLES
@example(8, {"include_positives": True, "output_format": "n-tuple-scores", "num_negatives": 2})
@example(19, {"query_prompt_name": "@sign", "corpus_prompt": "de "})  # the name is no text that begins with an @
@given(st.integers(0, 20), OPTIONS)
def test_same_options_same_data_set(model, vectors, seed, options):
    dataset = datasets.Dataset.from_dict(pairs(seed))
    compared(dataset, model, vectors, **options)


@settings(EXAMPLES, max_examples=12)
@given(st.integers(0, 20), OPTIONS)
def test_same_options_same_data_set_with_a_cross_encoder(model, cross_encoder, vectors, seed, options):
    dataset = datasets.Dataset.from_dict(pairs(seed, queries=5))
    compared(dataset, model, vectors, cross_encoder=cross_encoder, **options)


@settings(EXAMPLES, max_examples=12)
@given(st.integers(0, 20), st.integers(0, 5), st.integers(6, 30), st.floats(0, 0.5), st.integers(1, 5))
def test_random_draws_come_from_the_same_window(model, vectors, seed, first, end, margin, number):
    dataset = datasets.Dataset.from_dict(pairs(seed))
    options = {"range_min": first, "range_max": end, "relative_margin": margin, "output_format": "labeled-list"}
    number = min(number, end - first)
    window = theirs(dataset, model, num_negatives=end - first, **options)
    one, two = (
        mine(num_negatives=number, sampling_strategy="random", **options)
        for mine in (
            lambda **more: ours(dataset, model, vectors, seed=seed, **more),
            lambda **more: theirs(dataset, model, **more),
        )
    )
    assert list(one["question"]) == list(two["question"]) == list(window["question"])
    for row, other, whole in zip(one["answer"], two["answer"], window["answer"], strict=True):
        assert len(row) == len(other)
        assert row[0] == whole[0]
        places = [whole.index(document) for document in row]
        assert places == sorted(set(places))  # of the window, none twice, best first


def test_draws_follow_the_seed_or_the_generator_of_python(model, vectors):
    dataset = datasets.Dataset.from_dict(pairs(1))
    options = {"range_max": 30, "sampling_strategy": "random"}
    first, again, other = (ours(dataset, model, vectors, seed=seed, **options) for seed in (1, 1, 2))
    assert first["negative"][:] == again["negative"][:] != other["negative"][:]
    random.seed(5)
    one, two = (ours(dataset, model, vectors, **options) for _ in range(2))
    random.seed(5)
    assert one["negative"][:] == ours(dataset, model, vectors, **options)["negative"][:] != two["negative"][:]
    state = random.getstate()
    ours(dataset, model, vectors)
    assert random.getstate() == state


def test_arguments_and_defaults_are_theirs():
    from sentence_transformers.util import mine_hard_negatives

    own, other = (inspect.signature(each).parameters for each in (foils.mine_hard_negatives, mine_hard_negatives))
    assert list(own) == [*other, "seed"], "in the same order, for those that are given by place"
    assert own["seed"].kind is inspect.Parameter.KEYWORD_ONLY
    assert all(parameter.default == own[name].default for name, parameter in other.items())
    with pytest.raises(TypeError, match="relative_margins"):
        foils.mine_hard_negatives(None, None, relative_margins=0.1)


def test_texts_that_differ_in_white_space_at_their_ends_are_one(model, vectors):
    """Which sentence-transformers takes for two: it mines a positive, but for its white space, as a negative."""
    queries = [DOCUMENTS[0][:8], DOCUMENTS[1][:8]]
    rows = datasets.Dataset.from_dict({"q": [f"  {queries[0]}\n", queries[1]], "p": [f"{DOCUMENTS[0]} ", DOCUMENTS[1]]})
    mined = ours(rows, model, vectors, corpus=[DOCUMENTS[0], *DOCUMENTS[2:6]], output_format="n-tuple")
    assert list(mined["q"]) == queries
    assert list(mined[0].values()).count(DOCUMENTS[0]) == 1


def test_columns_are_taken_by_name_of_any_table(model, vectors):
    rows = pairs(2)
    turned = datasets.Dataset.from_dict({"id": [1] * len(rows["answer"]), "d": rows["answer"], "q": rows["question"]})
    names = {"anchor_column_name": "q", "positive_column_name": "d"}
    for table, wanted in ((turned.to_pandas(), turned), (mixed := turned.shuffle(seed=1), mixed)):
        same(ours(table, model, vectors, **names), theirs(wanted, model, **names))


BAD = {
    "column": ({"anchor_column_name": "questions"}, "unknown anchor_column_name 'questions'"),
    "strategy": ({"sampling_strategy": "uniform"}, "unknown sampling_strategy 'uniform'"),
    "prompt": ({"query_prompt_name": "queries"}, "unknown prompt of the model for a query 'queries'"),
    "corpus": ({"corpus": "one text"}, "expected a list of texts"),
    "seed of nothing": ({"seed": 1}, "seed.*draws nothing"),
    "window": ({"range_max": 4, "range_min": 2}, "leave 2 ranks for 3 negatives"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=list(BAD))
def test_what_is_wrong_is_said(model, vectors, options, message):
    with pytest.raises(InputError, match=message):
        ours(datasets.Dataset.from_dict(pairs(0)), model, vectors, **options)


def test_data_sets_that_are_no_pairs_are_refused(model, vectors):
    made = datasets.Dataset.from_dict
    rows = {"q": ["ba", "be", "bi"], "p": ["da", None, ""]}
    for dataset, message in (
        (made({"q": ["ba"]}), "expected two"),
        (made(rows), r"Table:2: the positive \(p\) is None; expected a text"),
        (datasets.DatasetDict(train=made(rows)), "DatasetDict is no table"),
        (object(), "object is no table"),
    ):
        with pytest.raises(InputError, match=message):
            ours(dataset, model, vectors)


def test_what_is_no_encoder_is_refused_and_an_encoder_is_not_changed(model, cross_encoder, vectors):
    dataset = datasets.Dataset.from_dict(pairs(0))
    refused("CrossEncoder is a model of the kind cross-encoder, not encoder", ours, dataset, cross_encoder, vectors)
    refused("type object; expected the name of a model", ours, dataset, object(), vectors)
    wrapped = foils.load_encoder("static:all-MiniLM-L6-v2")
    assert len(ours(dataset, wrapped, vectors)) == len(ours(dataset, "static:all-MiniLM-L6-v2", vectors))
    refused("query_prompt ba: no effect with an encoder", ours, dataset, wrapped, vectors, query_prompt="ba")
    half = static_model().to(torch.bfloat16)
    assert len(ours(dataset, half, vectors))
    assert {each.dtype for each in half.parameters()} == {torch.bfloat16}  # it is not changed
    dot = static_model()
    dot.similarity_fn_name = "dot"
    same(ours(dataset, dot, vectors, output_scores=True), theirs(dataset, dot, output_scores=True))


def test_what_differs_from_theirs_is_refused(model, vectors):
    dataset, distances = datasets.Dataset.from_dict(pairs(3)), static_model()
    distances.similarity_fn_name = "euclidean"
    refused("compares vectors by euclidean distance", ours, dataset, distances, vectors)
    refused("use_multi_process.*one process", ours, dataset, model, vectors, use_multi_process=True)


def test_old_names_do_what_their_new_ones_do(model, vectors, caplog):
    dataset = datasets.Dataset.from_dict(pairs(4))
    for old, new in (
        ({"margin": 0.1}, {"absolute_margin": 0.1}),
        ({"as_triplets": False}, {"output_format": "n-tuple"}),
        ({"output_format": "n-tuple-scores"}, {"output_format": "n-tuple", "output_scores": True}),
    ):
        caplog.clear()
        same(ours(dataset, model, vectors, **old), ours(dataset, model, vectors, **new))
        assert "is an old name; give" in caplog.text
    refused(
        "absolute_margin 0.2: no effect with margin", ours, dataset, model, vectors, margin=0.1, absolute_margin=0.2
    )


def test_arguments_may_be_given_by_place(model):
    dataset = datasets.Dataset.from_dict(pairs(4))
    by_place = (dataset, model, "question", "answer", None, None, 1, 20, 0.9, None, None, 0.1, 2, "top", *[None] * 4)
    by_place = (*by_place, False, "n-tuple", True, 8, 64, False, False, False)
    from sentence_transformers.util import mine_hard_negatives

    same(foils.mine_hard_negatives(*by_place), mine_hard_negatives(*by_place))


def test_vectors_and_logits_are_kept_and_a_stopped_call_goes_on(model, cross_encoder, tmp_path, monkeypatch):
    dataset, encoded = datasets.Dataset.from_dict(pairs(0)), []
    options = {"cross_encoder": cross_encoder, "min_score": 0.0}
    for kind in (type(model), type(cross_encoder)):

        def counted(self, *given, _plain=kind.forward, **more):
            if len(encoded) == 2 and not encoded[0]:
                raise KeyboardInterrupt
            encoded.append(1)
            return _plain(self, *given, **more)

        monkeypatch.setattr(kind, "forward", counted)
    wanted = ours(dataset, model, str(tmp_path / "other"), **options)
    batches = len(encoded)
    encoded[:] = [0]
    with pytest.raises(KeyboardInterrupt):
        ours(dataset, model, str(tmp_path), **options)
    encoded.clear()
    same(ours(dataset, model, str(tmp_path), **options), wanted)
    assert len(encoded) == batches - 1  # the batch before the stop is kept
    same(ours(dataset, model, str(tmp_path), **options), wanted)
    assert len(encoded) == batches - 1


def test_a_cross_encoder_without_a_threshold_is_said_to_do_nothing(model, cross_encoder, vectors, caplog):
    dataset = datasets.Dataset.from_dict(pairs(0))
    same(ours(dataset, model, vectors, cross_encoder=cross_encoder), theirs(dataset, model))
    assert "cross_encoder has no effect" in caplog.text
