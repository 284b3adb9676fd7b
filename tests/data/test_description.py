"""What a collection is said to be, against cases counted by hand; program and library say the same."""

import json

import pyarrow as pa

import foils
from foils.cli.app import run
from foils.data import Collection


def leaky() -> Collection:
    documents = {"d1": "one two three", "d2": ("Title", "four"), "d3": "one two three", "d4": "пять six"}
    queries = {"q1": "where is the red boat", "q2": "where is the red boat?", "q3": "another one", "q4": "a b c"}
    train = {"q1": {"d1": 1}, "q3": {"d2": 1, "d4": 0}}
    test = {"q2": {"d1": 1}, "q4": {"d4": 1, "d2": 1, "d3": 2}}
    return Collection.from_dicts("leaky", documents, queries, {"train": train, "test": test})


def test_counts_by_hand():
    found = foils.describe(leaky())
    assert (found.documents, found.queries, found.equal_documents, found.equal_queries) == (4, 4, 1, 0)
    assert found.lengths["queries"] == (4, 5, 5)
    train, test = found.splits["train"], found.splits["test"]
    assert (train.queries, train.pairs, train.not_relevant, train.shared) == (2, 2, 1, None)
    assert (test.queries, test.pairs) == (2, 4)
    assert test.shared == 0.5  # d1 and d2 of d1, d2, d3, d4
    assert [example[0] for example in found.examples] == ["where is the red boat", "another one", "a b c"]
    assert "50 % of the positives of test" in " ".join(found.warnings)


def test_it_says_what_to_do_where_there_is_no_split_to_train_on(beir_folder):
    folder = beir_folder(qrels={"test": {"q1": {"d1": 1}}})
    assert "There is no split train to train on: foils mine --split test" in " ".join(foils.describe(folder).warnings)
    assert foils.mine(folder, "random", top=1, split="test").keep.sum() == 1
    assert not [each for each in foils.describe(leaky()).warnings if "no split" in each]


def test_it_says_what_the_columns_were_read_as_and_which_were_not_read(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("frage,answer,negative_1,lang\nwhat is a,the first,the second,en\nwhat is b,the second,x,en\n")
    described = foils.describe(path, columns={"query": "frage"})
    read = "frage as query, answer as positive, negative_1 as negative; not read: lang"
    assert described.read_as == read
    assert f"columns: {read}" in str(described)
    table = {"query": ["what is a", "what is b"], "answer": ["the first", "the second"]}
    assert foils.describe(foils.load(pa.table(table))).read_as == "query as query, answer as positive"


def test_the_program_says_what_the_library_says(beir_folder, tmp_path, capsys):
    folder = beir_folder()
    assert run(["describe", str(folder), "--json", str(tmp_path / "d.json")]) == 0
    shown = capsys.readouterr().out
    described = foils.describe(folder)
    assert json.loads((tmp_path / "d.json").read_text()) == json.loads(json.dumps(described.to_json()))
    assert shown.split() == str(described).split()
    assert "<table>" in described._repr_html_()


def test_control_characters_of_documents_do_not_reach_the_terminal():
    collection = Collection.from_dicts(
        "\x1b]0;owned\x07", {"d": "red \x1b[2J\x9b1A boat"}, {"q": "where?\x1b[31m"}, {"train": {"q": {"d": 1}}}
    )
    shown = str(foils.describe(collection))
    assert not {"\x1b", "\x07", "\x9b"} & {*shown}
    assert "red \ufffd[2J\ufffd1A boat" in shown
