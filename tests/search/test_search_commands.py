"""`foils evaluate` and `foils search` from the command line, with a tiny real model."""

import json

import numpy as np
import pytest

from foils.cli.app import run as foils

WORDS = [f"w{i}" for i in range(40)]


def text(rng, topic, n):
    return " ".join(WORDS[topic * 4 + i] for i in rng.integers(0, 5, n) if topic * 4 + i < 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("collection"), np.random.default_rng(0)
    with (root / "corpus.jsonl").open("w") as out:
        for i in range(60):
            out.write(json.dumps({"_id": f"d{i}", "title": "", "text": text(rng, i % 9, 9)}) + "\n")
    with (root / "queries.jsonl").open("w") as out:
        for i in range(24):
            out.write(json.dumps({"_id": f"q{i}", "text": text(rng, i % 9, 3)}) + "\n")
    (root / "qrels").mkdir()
    for split, queries in (("test", range(14)), ("dev", range(14, 24))):
        lines = [f"q{i}\td{j}\t1" for i in queries for j in range(i % 9, 36, 9)]
        (root / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two encoders and a cross-encoder: one layer each, random weights."""
    torch = pytest.importorskip("torch")
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

    root = tmp_path_factory.mktemp("models")
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 16}
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, initializer_range=1.0, **sizes)
    for seed, name in enumerate(("one", "two")):
        torch.manual_seed(seed)
        for folder in (root / "plain", root / "pairs"):
            fast.save_pretrained(folder)
        BertModel(config).save_pretrained(root / "plain")
        SentenceTransformer(str(root / "plain"), device="cpu").save(str(root / name))
    config.num_labels = 1
    BertForSequenceClassification(config).save_pretrained(root / "pairs")
    CrossEncoder(str(root / "pairs"), device="cpu", max_length=64).save_pretrained(str(root / "cross"))
    return root


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))

    def call(*arguments):
        status = foils([str(argument) for argument in arguments])
        return status, capsys.readouterr()

    return call


def test_models_runs_and_rerankers_are_measured_together(folder, models, command, tmp_path):
    out = tmp_path / "result.json"
    first = tmp_path / "r.trec"
    status, said = command("search", folder, "--model", models / "one", "--dimensions", "none", "--run", first)
    assert status == 0, said.err
    status, said = command(
        "evaluate", folder, "--model", models / "one", "--model", f"other={models / 'two'}", "--run",
        first, "--reranker", models / "cross", "--rerank-depth", 5, "--measures", "nDCG@10,AP",
        "--write-runs", tmp_path / "runs", "--json", out,
    )  # fmt: skip
    assert status == 0, said.err
    result = json.loads(out.read_text())
    assert [s["name"] for s in result["systems"]] == ["one", "other", "r", "r + cross"]
    assert result["systems"][0]["per_query"] == result["systems"][2]["per_query"], "the same search, by way of a file"
    assert result["systems"][0]["measures"] != result["systems"][1]["measures"]
    assert len(result["comparisons"]) == 12
    assert {"other", "Differences", "nDCG@10"} <= set(said.out.replace("−", " ").split())
    assert len((tmp_path / "runs" / "r + cross.trec").read_text().splitlines()) == 14 * 5
    assert len((tmp_path / "runs" / "other.trec").read_text().splitlines()) == 14 * 60


def test_split_top_and_alternative_reach_the_result(folder, models, command, tmp_path):
    def result(*more):
        out = tmp_path / "result.json"
        status, said = command(
            "evaluate", folder, "--model", models / "one", "--model", f"b={models / 'two'}", "--measures", "R@60",
            "--json", out, *more,
        )  # fmt: skip
        assert status == 0, said.err
        return json.loads(out.read_text())

    plain = result()
    assert result() == plain, "same seed, same bytes"
    assert plain["systems"][0]["measures"]["R@60"] == 1.0
    assert result("--top", 3)["systems"][0]["measures"]["R@60"] < 1.0
    assert result("--split", "dev")["split"] == "dev"
    few = result("--top", 3)["comparisons"][0]
    assert result("--top", 3, "--alternative", "greater")["comparisons"][0]["p"] != few["p"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "--model"),
        (["--model", "MODEL", "--measures", "ndcg@10"], "nDCG@10"),
        (["--model", "MODEL", "--split", "train"], "dev, test"),
        (["--run", "nowhere.trec"], "no such file"),
        (["--model", "MODEL", "--alternative", "bigger", "--model", "b=MODEL"], "two-sided"),
        (["--model", "MODEL", "--reranker", "/nowhere/at/all"], "reranker"),
    ],
)
def test_bad_usage_says_what_is_expected(folder, models, command, more, said):
    more = [argument.replace("MODEL", str(models / "one")) for argument in more]
    status, output = command("evaluate", folder, *more)
    assert status == 2
    assert said in output.err


def test_search_writes_a_run_and_says_what_was_kept(folder, models, command, tmp_path):
    def search(name, *more):
        status, said = command(
            "search",
            folder,
            "--model",
            models / "one",
            "--run",
            tmp_path / name,
            "--json",
            tmp_path / "s.json",
            "--max-length",
            64,
            *more,
        )
        assert status == 0, said.err
        return (tmp_path / name).read_text(), json.loads((tmp_path / "s.json").read_text())

    base, _ = search("base", "--dimensions", "none")
    full, facts = search("full", "--share", 1.0)
    assert [line.rsplit(" ", 1)[0] for line in full.splitlines()] == [
        line.rsplit(" ", 1)[0] for line in base.splitlines()
    ], "all but the tag"
    assert facts["kept"] == 1.0
    eclipse, facts = search("eclipse")
    assert facts["kept"] == pytest.approx(13 / 16)
    assert facts["settings"]["k_plus"] == 2
    rdime, facts = search("rdime", "--dimensions", "rdime")
    assert facts["settings"]["k_plus"] == 1
    other = [
        search("o", *more)[0]
        for more in (
            ["--share", 0.5], ["--k-plus", 9], ["--k-minus", 20], ["--alpha", 0.1], ["--beta", 3.0],
            ["--moon-pool", 30], ["--feedback", tmp_path / "rdime"], ["--feedback-depth", 12],
            ["--second-pass", "retrieved", "--top", 20], ["--tune", "dev", "--reading", "few-relevant"],
        )
    ]  # fmt: skip
    assert len({base, eclipse, rdime, *other}) == 13
    faiss, _ = search("f", "--index", "flat", "--index-file", tmp_path / "index")
    again, _ = search("f", "--index", "flat", "--index-file", tmp_path / "index")
    assert faiss == again
    assert (tmp_path / "index").is_file()
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"query_id": f"q{i}", "answer": WORDS[i]}) + "\n" for i in range(24)))
    answered, _ = search("answered", "--answers", answers)
    assert answered != eclipse


@pytest.mark.parametrize("experiment", ["filters", "shares", "depths", "moons"])
def test_experiments_print_and_write(folder, models, command, tmp_path, experiment):
    plot = ["--plot", tmp_path / "plot.html"] if experiment == "shares" else []
    status, said = command(
        "search", folder, "--model", models / "one", "--experiment", experiment, "--top", 40, "--reading",
        "few-irrelevant", "--moon-pool", 30, "--json", tmp_path / "e.json", *plot,
    )  # fmt: skip
    assert status == 0, said.err
    result = json.loads((tmp_path / "e.json").read_text())
    assert result["experiment"] == experiment
    assert "oracle" in said.out
    if experiment == "filters":
        assert [s["name"] for s in result["systems"]][:2] == ["baseline", "PRF RDIME"]
        assert {c["b"] for c in result["comparisons"]} == {"baseline"}
    if plot:
        assert "plotly" in plot[1].read_text()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "--run"),
        (["--run", "r", "--dimensions", "eclips"], "eclipse"),
        (["--run", "r", "--dimensions", "rdime", "--tune", "dev"], "nothing to tune"),
        (["--run", "r", "--index", "tree"], "hnsw"),
        (["--run", "r", "--index-file", "x"], "--index"),
        (["--run", "r", "--answers", "ANSWERS"], "query_id"),
        (["--experiment", "all"], "filters"),
    ],
)
def test_bad_usage_of_search_says_what_is_expected(folder, models, command, tmp_path, more, said):
    (tmp_path / "answers").write_text('{"query_id": "q0", "answer": ""}\n')
    more = [argument.replace("ANSWERS", str(tmp_path / "answers")) for argument in more]
    status, output = command("search", folder, "--model", models / "one", *more)
    assert status == 2
    assert said in output.err
