"""The verb mine: its options, and the best ranks."""

import json
from pathlib import Path
from typing import Any

import pytest

from foils.cli.app import run
from foils.data.description import expected_recurrence
from foils.data.negatives import Negatives
from foils.deciding.decision import mine
from foils.encode import VectorStore
from foils.mining import BM25Retriever, candidates
from foils.mining.candidates import Mined
from foils.runtime.errors import InputError
from hidden_positives import World, WorldEncoder, hidden_world
from llm_server import Reply, serving
from tiny_models import tiny_cross_encoder, tiny_encoder


@pytest.fixture
def mined(beir_folder, tmp_path, capsys):
    """Run a verb of mining on the small collection; return the table, what was printed, and the JSON result."""
    place = beir_folder()

    def call(*options: str, verb: str = "mine", status: int = 0):
        out, facts = tmp_path / "out.parquet", tmp_path / "out.json"
        arguments = [verb, str(place), *map(str, options), "-o", str(out), "--json", str(facts)]
        assert run(arguments) == status, capsys.readouterr().err
        printed = capsys.readouterr()
        if status:
            assert "Traceback" not in printed.err
            return printed.err
        table = Negatives.read(out) if out.exists() else None
        return table, printed.out, json.loads(facts.read_text()) if facts.exists() else None

    return call


def test_windows_and_draws(mined):
    plain, _, _ = mined("--with", "random", "--top", "2")
    window, _, facts = mined("--with", "random", "--top", "2", "--ranks", "1-5")
    assert window.kept()["rank"].to_pylist() == [1, 2] * 3
    assert facts["rejected"] == {"ranked before the window": 3}
    assert window.provenance["settings"]["ranks"] == [1, 5]
    drawn, _, _ = mined("--with", "random", "--top", "2", "--ranks", "0-6", "--draw", "uniform", "--seed", "3")
    assert drawn.rejected() == {"not drawn": 12}
    assert plain.provenance["settings"].keys() == {"with", "top", "split", "near_duplicate", "seed"}
    for bad in ("5", "5-2", "a-b"):
        assert "ranks" in mined("--ranks", bad, status=2)
    assert '"top", "uniform"' in mined("--draw", "topp", "--ranks", "0-5", status=2)


@pytest.mark.parametrize(
    "options",
    [
        ("--margin", "0.5"), ("--relative-margin", "0.3"), ("--max-score", "0.9"), ("--min-score", "0.8"),
        ("--draw", "uniform", "--ranks", "0-4"),
    ],
)  # fmt: skip
def test_each_rule_changes_the_negatives(mined, options):
    plain, _, _ = mined("--top", "2", *(options[2:] if "--ranks" in options else ()))
    ruled, out, facts = mined("--top", "2", *options)
    assert ruled.kept().to_pylist() != plain.kept().to_pylist()
    for reason, count in facts["rejected"].items():
        assert f"rejected: {reason}" in out
        assert count > 0


def test_a_stopped_mining_goes_on_with_the_block_it_was_at(small, tmp_path, monkeypatch):
    """Blocks of one query; the third search is interrupted: only it and what follows are searched for again."""
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path))
    monkeypatch.setattr(candidates, "QUERIES", 1)
    searched, search = [], BM25Retriever.search
    count = len(small.queries_of("train"))

    def stopped(self, rows, depth):
        if len(searched) == 2:
            raise KeyboardInterrupt
        return noted(self, rows, depth)

    def noted(self, rows, depth):
        searched.append(len(rows))
        return search(self, rows, depth)

    whole = mine(small, method="bm25", top=2)
    assert not [*tmp_path.glob("mined/*")]
    monkeypatch.setattr(BM25Retriever, "search", stopped)
    with pytest.raises(KeyboardInterrupt):
        mine(small, method="bm25", top=2)
    kept = [*tmp_path.glob("mined/*/*/document.npy")]
    assert len(kept) == 2
    kept[0].write_bytes(kept[0].read_bytes()[:-30])  # a damaged one counts as none
    searched.clear()
    monkeypatch.setattr(BM25Retriever, "search", noted)
    again = mine(small, method="bm25", top=2)
    assert again.table.equals(whole.table)
    assert again.to_json() == whole.to_json()
    assert len(searched) == count - 1
    assert not [*tmp_path.glob("mined/*")]


def test_a_margin_needs_scores(mined):
    assert "--scorer encoder" in mined("--with", "random", "--margin", "0.1", status=2)


def test_fusion(mined, tmp_path):
    for name, seed in (("a", "1"), ("b", "2")):
        found, _, _ = mined("--with", "random", "--top", "3", "--seed", seed)
        found.write(tmp_path / f"{name}.parquet")
    sources = [tmp_path / f"{name}.parquet" for name in "ab"]
    union, _, _ = mined(*sources, verb="fuse")
    rrf, _, _ = mined(*sources, "--method", "rrf", "--top", "2", verb="fuse")
    assert rrf.kept()["rank"].to_pylist() == [0, 1] * 3
    assert rrf.provenance["settings"]["k"] == 60
    assert len(union) > len(rrf)


def test_cross_encoder(mined, small, tmp_path):
    (folder := tmp_path / "model").mkdir()
    tiny_cross_encoder(folder, small.document_texts(range(10)))
    found, _, facts = mined("--with", "cross-encoder", "--cross-encoder", folder, "--top", "2")
    assert set(found.table["source"].to_pylist()) == {"cross-encoder"}
    assert facts["settings"]["pool"].keys() == {"bm25"}
    both, _, _ = mined("--with", "cross-encoder", "--cross-encoder", folder, "--pool", "random", "--top", "2")
    assert not both.table.equals(found.table)
    scored, _, _ = mined("--scorer", "cross-encoder", "--cross-encoder", folder, "--max-score", "0")
    assert "logit" in scored.table.column_names
    assert "--cross-encoder MODEL" in mined("--with", "cross-encoder", status=2)
    assert 'Invalid value "dens" for --pool' in mined(
        "--with", "cross-encoder", "--cross-encoder", folder, "--pool", "dens", status=2
    )


def test_generate_and_filter(mined, tmp_path):
    reply = Reply(json.dumps({"negatives": ["A boat in the wind", "Of bread and wind", "Of bees"]}))
    with serving(lambda *_: reply) as server:
        options = ("--base-url", server.url, "--llm-model", "m")
        options += ("--price", "1000000,0")
        options += ("--top", "3", "--limit", "2", "--domain", "sailing lore")
        found, printed, facts = mined(*options, verb="generate")
        assert all("sailing lore" in request["messages"][0]["content"] for request in server.seen)
    assert (len(found), facts["answered"], facts["cost"]) == (6, 2, 14.0)
    assert "14.00" in printed
    assert found.provenance["settings"]["prompt"] == "negatives-3"
    mined("--top", "2")[0].write(source := tmp_path / "bm25.parquet")
    marked, _, facts = mined(source, "--max-score", "0", verb="filter")
    assert facts["rejected"] == {"score above 0": len(marked)}
    assert marked.provenance["before"]["stage"] == "mine"
    assert "no rule to filter by; give one of --margin" in mined(source, verb="filter", status=2)
    assert "no model" in mined(verb="generate", status=2)
    assert "two numbers" in mined("--llm-model", "m", "--price", "cheap", verb="generate", status=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory, small):
    return tiny_encoder(tmp_path_factory.mktemp("static"), small.document_texts(range(10)))


def test_ance_and_trisampler(mined, model, tmp_path):
    options = ("--encoder", model, "--top", "2")
    dense, _, _ = mined("--with", "dense", *options)
    ance, _, facts = mined("--with", "ance", *options)
    assert ance.kept()["doc_id"].to_pylist() == dense.kept()["doc_id"].to_pylist()
    assert facts["settings"]["encoder"]["fingerprint"] == dense.provenance["settings"]["encoder"]["fingerprint"]
    drawn, _, facts = mined("--with", "trisampler", *options, "--seed", "1")
    assert set(drawn.table["source"].to_pylist()) == {"trisampler"}
    assert facts["rejected"]["not drawn"] > 0
    assert drawn.kept()["doc_id"].to_pylist() != dense.kept()["doc_id"].to_pylist()
    scored, _, _ = mined("--with", "random", "--scorer", "encoder", "--margin", "0.05", *options)
    assert "cosine" in scored.table.column_names
    assert any("0.05 below the minimum positive's score" in reason for reason in scored.rejected())


@pytest.fixture(scope="module")
def spoilt():
    """A world where more than a third of the first five ranks are false."""
    return hidden_world(9, labelled=0.15)


def best_of(world: World, folder: Path, **given: Any) -> Mined:
    models = {"encoder": WorldEncoder(world), "vectors": VectorStore(folder / "vectors")}
    return mine(world.collection, "dense", top=5, ranks="best", **models, **given)


def test_it_takes_the_ranks_that_it_names_as_if_they_had_been_asked_for(spoilt, tmp_path):
    best = best_of(spoilt, tmp_path)
    chosen = best.provenance["settings"]["best_of"]
    first, end = map(int, chosen["source"].removeprefix("ranks ").split("–"))
    assert (end - first, chosen["depth"], len(chosen["candidates"])) == (5, 50, 12)
    models = {"encoder": WorldEncoder(spoilt), "vectors": VectorStore(tmp_path / "vectors")}
    plain = mine(spoilt.collection, "dense", top=5, ranks=(first, end), **models)
    assert best.table.equals(plain.table)
    assert best.provenance["recapture"] == plain.provenance["recapture"]
    assert list(best.provenance["settings"]["ranks"]) == [first, end]
    assert chosen["sentence"] == best.tables()[1].title
    assert best.to_json()["decision"]["candidates"] == chosen["candidates"]


def test_it_heeds_how_often_documents_recur(spoilt, tmp_path):
    class WordTable(WorldEncoder):
        static = True

    models = {"encoder": WordTable(spoilt), "vectors": VectorStore(tmp_path / "vectors")}
    words = mine(spoilt.collection, "dense", top=5, ranks="best", **models).decision
    context = best_of(spoilt, tmp_path).decision
    assert (words.recurrence, context.recurrence) == (expected_recurrence(spoilt.collection, "train"), 1.0)
    assert words.worths["ranks 0–5"].strength < context.worths["ranks 0–5"].strength


def test_where_nothing_is_hidden_it_takes_the_first_ranks(tmp_path):
    whole = hidden_world(8, labelled=1.0)
    assert list(best_of(whole, tmp_path).provenance["settings"]["ranks"]) == [0, 5]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"method": "random"}, "random negatives are drawn"),
        ({"method": "trisampler"}, "trisampler negatives are drawn"),
        ({"ranks": "worst"}, "FROM- for no end, or best"),
    ],
)
def test_what_does_not_go_together_is_refused(spoilt, given, why):
    with pytest.raises(InputError, match=why):
        mine(spoilt.collection, **{"method": "dense", "top": 5, "ranks": "best", **given})
