"""Search over a collection: ids and texts in, runs out; experiments give systems with values per query."""

from dataclasses import replace

import numpy as np
import pytest

from foils.data import Collection, Run
from foils.encode import VectorStore
from foils.runtime.errors import InputError
from foils.searching import (
    DimensionSettings,
    FaissIndex,
    Grid,
    cross_validate,
    dime_grid,
    embed_collection,
    evaluate_grid,
    query_masks,
    search_collection,
)
from foils.searching.bench import grid_values, mask_values, prepare
from foils.searching.examples import find_examples
from foils.searching.experiments import (
    at_best,
    by_moon,
    by_share,
    compare_filters,
    depth_values,
    honest_and_oracle,
    sun_values,
)
from foils.searching.runs import feedback_lists, relevant_of
from foils.searching.tune import oracle


class Bag:
    """An encoder without a model: a fixed random direction a word, summed."""

    name, dimension, fingerprint = "bag", 24, "bag-1"

    def route(self, kind):
        return ""

    def encode(self, texts, kind):
        rows = [
            sum(np.random.default_rng(int(word)).normal(size=self.dimension) for word in text.split()) for text in texts
        ]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32)


def words(rng, topic, n):
    return " ".join(str(w) for w in rng.integers(topic * 12, topic * 12 + 14, n))


@pytest.fixture(scope="module")
def collection():
    rng = np.random.default_rng(0)
    documents = {f"d{i}": words(rng, i % 9, 12) for i in range(120)}
    queries = {f"q{i}": words(rng, i % 9, 3) for i in range(20)}
    qrels = {
        f"q{i}": {f"d{j}": 1 + j % 2 for j in rng.choice(np.arange(i % 9, 120, 9), 4, replace=False)} for i in range(18)
    }
    qrels["q18"] = {"d0": 0}
    return Collection.from_dicts("topics", documents, queries, {"test": qrels, "dev": {"q19": {"d1": 1}}})


@pytest.fixture(scope="module")
def embedded(collection, tmp_path_factory):
    return embed_collection(collection, Bag(), VectorStore(tmp_path_factory.mktemp("vectors")), split="test")


ECLIPSE = DimensionSettings("eclipse", k_plus=3, k_minus=4, alpha=0.8, beta=0.5, share=0.5)
SAME = {"nDCG@10": [ECLIPSE], "AP": [ECLIPSE]}
GRID = Grid("eclipse", ((2, 3), (4, 2)), ((0.5, 0.2), (0.5, 0.5)), (0.3, 0.6, 1.0))


def test_embedding_takes_the_split_s_judged_queries(collection, embedded):
    assert embedded.query_ids == [f"q{i}" for i in range(19)]
    assert embedded.queries.shape == (19, 24)
    np.testing.assert_array_equal(embedded.queries[3], Bag().encode(collection.query_texts([3]), "query")[0])
    assert len(embedded.documents) == 120
    assert embedded.answers is None


def test_answers_are_needed_for_every_query(collection, tmp_path):
    answers = {f"q{i}": f"{i} {i + 1}" for i in range(19)} | {"other": "1"}
    found = embed_collection(collection, Bag(), VectorStore(tmp_path), split="test", answers=answers)
    np.testing.assert_array_equal(found.answers[4], Bag().encode(["4 5"], "document")[0])
    del answers["q7"]
    with pytest.raises(InputError, match="q7"):
        embed_collection(collection, Bag(), VectorStore(tmp_path), split="test", answers=answers)


def test_a_baseline_run_is_exact_search(collection, embedded):
    run = search_collection(embedded, DimensionSettings("none"), k=5, name="base").run
    documents, scores = np.asarray(embedded.documents.take(slice(None))), {}
    for index, query in enumerate(embedded.query_ids):
        order = np.argsort(-(documents @ embedded.queries[index]), kind="stable")[:5]
        scores[query] = [f"d{i}" for i in order]
    table = run.table
    assert run.name == "base"
    assert table["doc_id"].to_pylist() == [document for query in embedded.query_ids for document in scores[query]]


@pytest.mark.parametrize("second", ["index", "retrieved"])
def test_with_all_dimensions_kept_the_run_is_the_baseline_s_byte_for_byte(embedded, tmp_path, second):
    search_collection(embedded, DimensionSettings("none"), k=50).run.write(tmp_path / "base")
    full = search_collection(embedded, replace(ECLIPSE, share=1.0), k=50, second_pass=second)
    full.run.write(tmp_path / "full")
    assert (tmp_path / "base").read_bytes() == (tmp_path / "full").read_bytes()
    assert full.kept == 1.0
    search_collection(embedded, ECLIPSE, k=50, second_pass=second).run.write(tmp_path / "half")
    assert (tmp_path / "base").read_bytes() != (tmp_path / "half").read_bytes()


def test_kept_share_and_short_lists_are_told(embedded):
    found = search_collection(embedded, ECLIPSE, k=40)
    assert found.kept == pytest.approx(0.5)
    assert found.short == []
    few = search_collection(embedded, ECLIPSE, k=40, feedback_depth=7)
    assert few.short == embedded.query_ids
    assert few.kept == 1.0


def test_feedback_comes_from_a_run_by_ids(embedded):
    scores = {query: {f"d{(i * 7 + at) % 120}": -float(at) for at in range(12)} for i, query in enumerate(["q3", "q0"])}
    run = Run.from_dict(scores)
    lists = feedback_lists(embedded, run)
    assert lists[3].tolist() == [at % 120 for at in range(12)]
    assert lists[0].tolist() == [7 + at for at in range(12)]
    assert len(lists[1]) == 0
    found = search_collection(embedded, ECLIPSE, k=10, feedback=run)
    assert set(embedded.query_ids) - set(found.short) == {"q0", "q3"}
    masks, _ = query_masks(embedded.queries[:1], embedded.documents, lists[:1], ECLIPSE)
    np.testing.assert_array_equal(found.ranked.masks[0], masks[0])
    with pytest.raises(InputError, match="nowhere"):
        search_collection(embedded, ECLIPSE, feedback=Run.from_dict({"q0": {"nowhere": 1.0}}))


def test_an_index_may_be_handed_in(embedded):
    index = FaissIndex.build(embedded.documents, "flat")
    exact, faiss = (search_collection(embedded, ECLIPSE, k=20, index=chosen).run for chosen in (None, index))
    assert exact.table["doc_id"].to_pylist() == faiss.table["doc_id"].to_pylist()


def test_relevant_documents_come_with_their_grades(embedded):
    having, relevant = relevant_of(embedded)
    assert having.tolist() == list(range(18)), "q18 has a judgement, but nothing relevant"
    table = embedded.collection.judgements("test").to_pylist()
    for index, of in zip(having, relevant, strict=True):
        wanted = {row["doc_id"]: row["relevance"] for row in table if row["query_id"] == f"q{index}"}
        assert {f"d{row}": grade for row, grade in zip(of.rows, of.grades, strict=True)} == wanted


@pytest.fixture(scope="module")
def bench(embedded):
    return prepare(embedded, k=60, feedback_depth=60, rerank_depth=60, longest=100)


def test_values_of_masks_are_those_of_the_run(embedded, bench):
    ir_measures = pytest.importorskip("ir_measures")
    run = search_collection(embedded, ECLIPSE, k=60, feedback_depth=60, second_pass="retrieved", rerank_depth=60).run
    masks, _ = query_masks(bench.embedded.queries, bench.embedded.documents, bench.retrieved, ECLIPSE)
    values = mask_values(bench, masks)
    scores, qrels = {}, {}
    for row in run.table.to_pylist():
        scores.setdefault(row["query_id"], {})[row["doc_id"]] = row["score"]
    for row in embedded.collection.judgements("test").to_pylist():
        qrels.setdefault(row["query_id"], {})[row["doc_id"]] = row["relevance"]
    for name in ("nDCG@10", "AP"):
        measure = ir_measures.parse_measure(name)
        expected = {m.query_id: m.value for m in ir_measures.iter_calc([measure], qrels, scores)}
        np.testing.assert_allclose(values[name], [expected[f"q{i}"] for i in range(18)], atol=1e-6)


def test_filters_are_compared_honestly_and_by_oracle(bench):
    values = sun_values(bench, {"DIME": dime_grid(), "Eclipse": GRID})
    systems = compare_filters(bench, values, rng=np.random.default_rng(0))
    by_name = {(system.name, system.kind): system for system in systems}
    assert list(by_name) == [
        ("baseline", "fixed"),
        ("PRF RDIME", "fixed"),
        ("PRF selective", "fixed"),
        ("PRF DIME", "honest"),
        ("PRF DIME", "oracle"),
        ("PRF Eclipse", "honest"),
        ("PRF Eclipse", "oracle"),
    ]
    baseline = by_name["baseline", "fixed"].means
    for name in ("PRF DIME", "PRF Eclipse"):
        best, honest = by_name[name, "oracle"], by_name[name, "honest"]
        assert all(best.means[m] >= baseline[m] for m in baseline), "the grids hold the baseline: share 1"
        assert all(best.means[m] >= honest.means[m] for m in baseline)
        assert {len(of) for of in honest.settings.values()} == {5}
        assert {len(of) for of in best.settings.values()} == {1}
    assert 0 < by_name["PRF RDIME", "fixed"].kept < 1
    assert len(by_name["baseline", "fixed"].per_query["AP"]) == 18


def test_answers_bring_filters_of_their_own(collection, tmp_path):
    answers = {f"q{i}": " ".join(str((i % 9) * 12 + w) for w in range(8)) for i in range(19)}
    answered = embed_collection(collection, Bag(), VectorStore(tmp_path), split="test", answers=answers)
    bench = prepare(answered, k=60)
    systems = compare_filters(bench, sun_values(bench, {"DIME": dime_grid()}), rng=np.random.default_rng(0))
    assert {system.name for system in systems} == {
        "baseline", "PRF RDIME", "LLM RDIME", "PRF selective", "PRF DIME", "LLM DIME",
    }  # fmt: skip
    values = {(s.name, s.kind): s.means["AP"] for s in systems}
    assert values["LLM DIME", "oracle"] != values["PRF DIME", "oracle"]


def test_curves_over_the_share_hold_each_share_s_best(bench):
    found = grid_values(bench, GRID)
    curve = by_share(found, "AP")
    assert list(curve) == [0.3, 0.6, 1.0]
    for share, system in curve.items():
        columns = [c for c, s in enumerate(found.settings) if s.share == share]
        assert system.means["AP"] == pytest.approx(found.values["AP"][:, columns].mean(axis=0).max(), rel=1e-6)
    honest = by_share(found, "AP", rng=np.random.default_rng(0), folds=4)
    assert {system.kind for system in honest.values()} == {"honest"}
    assert {len(system.settings["AP"]) for system in honest.values()} == {4}
    for share, system in honest.items():
        assert system.means["AP"] <= curve[share].means["AP"]
        assert {setting.share for setting in system.settings["AP"]} == {share}
    assert honest[0.3].means != by_share(found, "AP", rng=np.random.default_rng(1), folds=4)[0.3].means
    baseline = mask_values(bench, np.ones((18, 24), bool))
    np.testing.assert_array_equal(curve[1.0].per_query["AP"], baseline["AP"], "or tests would find a difference")


def test_one_setting_at_every_share_is_the_best_of_all(bench):
    found = grid_values(bench, GRID)
    best = oracle(found, "AP").settings[0]
    curve, tuned = at_best(found, "AP"), by_share(found, "AP")
    assert list(curve) == [0.3, 0.6, 1.0]
    assert curve[best.share].means == tuned[best.share].means
    for share, system in curve.items():
        assert system.settings == {"AP": [replace(best, share=share)]}
        masks, _ = query_masks(*searched_with(bench), replace(best, share=share))
        np.testing.assert_allclose(system.per_query["AP"], mask_values(bench, masks)["AP"], atol=1e-12)
        assert system.means["AP"] <= tuned[share].means["AP"]


def test_examples_are_the_queries_that_change_most_with_their_rankings(bench, collection):
    grids = {"DIME": dime_grid(), "Eclipse": GRID}
    values = sun_values(bench, grids)
    found = find_examples(bench, values, rng=np.random.default_rng(0), count=2, depth=3)
    tuned = {name: oracle(values[f"PRF {name}"], "AP") for name in grids}
    gains = tuned["Eclipse"].per_query["AP"] - tuned["DIME"].per_query["AP"]
    ids = bench.embedded.query_ids
    order = sorted(range(18), key=lambda row: -gains[row])
    expected = [row for row in order[:2] if gains[row] > 0] + [row for row in order[::-1][:2] if gains[row] < 0]
    assert [example.query_id for example in found] == [ids[row] for row in expected]
    assert found
    table = collection.qrels["test"].to_pydict()
    qrels = dict(zip(zip(table["query_id"], table["doc_id"], strict=True), table["relevance"], strict=True))
    for row, example in zip(expected, found, strict=True):
        assert example.gain == pytest.approx(gains[row])
        assert example.query == collection.query_texts(bench.embedded.query_rows[[row]])[0]
        for name, ranked in zip(grids, example.rankings, strict=True):
            masks, _ = query_masks(*searched_with(bench), tuned[name].settings[0])
            candidates = bench.retrieved[row]
            scores = bench.embedded.documents.take(candidates) @ np.where(masks[row], bench.embedded.queries[row], 0)
            best = np.sort(scores)[::-1][:3]
            for (doc_id, text, grade), score in zip(ranked.documents, best, strict=True):
                (position,) = collection.document_rows([doc_id])
                assert scores[candidates == position] == pytest.approx(score, abs=1e-5)
                assert collection.document_texts([position])[0].startswith(text)
                assert grade == qrels.get((example.query_id, doc_id), 0)


def test_depths_are_compared(bench):
    values = depth_values(bench, GRID, rng=np.random.default_rng(0), depths=(10, 60, 300, 50_000))
    systems = honest_and_oracle(values, rng=np.random.default_rng(0))
    assert [s.name for s in systems] == ["PRF k=10"] * 2 + ["PRF k=60"] * 2 + ["PRF k=all"] * 2, "of 120 documents"
    whole = evaluate_grid(
        bench.embedded.queries, bench.embedded.documents, bench.retrieved, bench.relevant, GRID, feedback=bench.lists
    )
    assert systems[-1].means["AP"] == pytest.approx(whole.values["AP"].mean(axis=0).max(), rel=1e-6)
    assert len({s.means["AP"] for s in systems if s.kind == "oracle"}) > 1


def test_random_moons_are_compared_with_the_exact_one(bench):
    table = by_moon(bench, SAME, rng=np.random.default_rng(0), pools=(8, 30, None), runs=3)
    assert {name: len(of) for name, of in table.items()} == {"bottom 8": 3, "bottom 30": 3, "exact": 1}
    assert len({tuple(s.per_query["AP"]) for s in table["bottom 30"]}) == 3
    masks, _ = query_masks(
        bench.embedded.queries, bench.embedded.documents, [found[:60] for found in bench.lists], ECLIPSE
    )
    np.testing.assert_array_equal(table["exact"][0].per_query["AP"], mask_values(bench, masks)["AP"])


def test_moons_are_drawn_at_the_setting_of_each_query_s_fold_and_of_each_measure(bench):
    """With the last k⁻ every number is what the grid scored."""
    values, rng = grid_values(bench, GRID), np.random.default_rng(0)
    tuned = {m: cross_validate(values, m, rng=np.random.default_rng(3), folds=4) for m in bench.measures}
    settings = {m: of.settings for m, of in tuned.items()}
    assert len({*settings["AP"], *settings["nDCG@10"]}) > 1
    fold = tuned["AP"].fold
    (exact,) = by_moon(bench, settings, rng=rng, fold=fold, kind="honest", pools=(None,))["exact"]
    for measure, of in tuned.items():
        np.testing.assert_allclose(exact.per_query[measure], of.per_query[measure], atol=1e-12)
        np.testing.assert_array_equal(exact.whole[measure], of.whole)
    assert (exact.kind, exact.settings) == ("honest", settings)
    (drawn,) = by_moon(bench, settings, rng=rng, fold=fold, pools=(30,), runs=1)["bottom 30"]
    assert drawn.means != exact.means


def test_queries_that_kept_everything_for_want_of_feedback_are_counted(bench):
    """A pool as long as the list leaves no room for the sun: every number is then the baseline's, with no deviation."""
    table = by_moon(bench, SAME, rng=np.random.default_rng(0), pools=(8, 57, 80, None), runs=2)
    baseline = mask_values(bench, np.ones((18, 24), bool))
    counts = {name: [system.short_counts for system in of] for name, of in table.items()}
    for name in ("bottom 57", "bottom 80"):
        assert counts[name] == [{"nDCG@10": 18, "AP": 18}] * 2
        for system in table[name]:
            np.testing.assert_array_equal(system.per_query["AP"], baseline["AP"])
    assert counts["bottom 8"] == [{"nDCG@10": 0, "AP": 0}] * 2
    assert counts["exact"] == [{"nDCG@10": 0, "AP": 0}]


def test_what_is_chosen_says_for_how_many_queries_it_did_nothing(bench):
    """Of lists of 5 documents, 2 and 2 can be taken, 3 and 3 cannot; a share of 1 keeps everything on purpose."""
    served = Grid("eclipse", ((2, 2),), shares=(0.5,))
    grids = {"served": served, "short": replace(served, depths=((3, 3),)), "all": replace(served, shares=(1.0,))}
    bench = replace(bench, feedback_depth=5)
    found = {name: grid_values(bench, grid) for name, grid in grids.items()}
    systems = honest_and_oracle(found, rng=np.random.default_rng(0))
    counts = {(system.name, system.kind): system.short_counts["AP"] for system in systems}
    assert counts == {(name, kind): 18 * (name == "short") for name in grids for kind in ("honest", "oracle")}
    assert by_share(found["short"], "AP")[0.5].short_counts == {"nDCG@10": 18, "AP": 18}
    mixed = grid_values(bench, replace(served, depths=((2, 2), (3, 3))))
    tuned = cross_validate(mixed, "AP", rng=np.random.default_rng(0))
    chosen = np.array([setting.k_plus == 3 for setting in tuned.settings])
    np.testing.assert_array_equal(tuned.short, chosen[tuned.fold])
    systems = compare_filters(bench, {"PRF Eclipse": found["short"]}, rng=np.random.default_rng(0))
    assert [system.short_counts["AP"] for system in systems] == [0, 0, 0, 18, 18], (
        "baseline, RDIME, selective, Eclipse twice"
    )
    left_alone = int(query_masks(*searched_with(bench), DimensionSettings("selective"))[0].all(axis=1).sum())
    assert [system.whole_counts["AP"] for system in systems] == [18, 0, left_alone, 18, 18]
    assert left_alone > 0
    curve = by_share(grid_values(bench, replace(served, shares=(0.5, 0.99, 1.0))), "AP")
    assert [system.whole_counts["AP"] for system in curve.values()] == [0, 18, 18], "0.99 of 24 dimensions are 24"


def searched_with(bench):
    return bench.embedded.queries, bench.embedded.documents, [rows[: bench.feedback_depth] for rows in bench.lists]


def test_depths_and_moons_take_the_sun_they_are_told(collection, tmp_path):
    """Answers are one sun, feedback another; neither is used in silence for the other."""
    answers = {f"q{i}": " ".join(str((i % 9) * 12 + w) for w in range(8)) for i in range(19)}
    answered = embed_collection(collection, Bag(), VectorStore(tmp_path), split="test", answers=answers)
    silent = prepare(replace(answered, answers=None), k=60)
    bench = prepare(answered, k=60)
    assert {name: vectors is None for name, vectors in bench.suns.items()} == {"PRF": True, "LLM": False}
    assert list(silent.suns) == ["PRF"]

    def moons(of, sun):
        table = by_moon(of, SAME, rng=np.random.default_rng(0), answers=of.suns[sun], pools=(None,))
        return table["exact"][0].means["AP"]

    def depths(of, sun):
        values = depth_values(of, GRID, rng=np.random.default_rng(0), depths=(60,))
        return values[f"{sun} k=60"].values["AP"].mean()

    for measured in (moons, depths):
        assert measured(bench, "PRF") == measured(silent, "PRF")
        assert measured(bench, "LLM") != measured(bench, "PRF")
