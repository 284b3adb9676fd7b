"""What real collections have, and what Python users hand over: read as the hub's reader reads it, counted, and said."""

import gzip
import json

import pytest

import foils
from foils.data import Collection, load_collection
from foils.data.sources import as_sources
from foils.runtime.errors import FormatError
from refusals import refused

pytestmark = pytest.mark.usefixtures("own_cache")
CORPUS = [{"_id": f"d{at}", "title": "", "text": f"text {at}"} for at in range(4)]
QUERIES = [{"_id": f"q{at}", "text": f"query {at}"} for at in range(3)]
QRELS = "query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t1\nq2\td2\t2\n"


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes a BEIR folder, packed or not, and opens it twice: as read, and as kept."""

    def opened(corpus=CORPUS, queries=QUERIES, qrels=QRELS, *, packed=False):
        place = tmp_path / "fiqa"
        (place / "qrels").mkdir(parents=True, exist_ok=True)
        for name, records in {"corpus": corpus, "queries": queries}.items():
            data = "".join(json.dumps(record) + "\n" for record in records).encode()
            (place / f"{name}.jsonl{'.gz' * packed}").write_bytes(gzip.compress(data) if packed else data)
        (place / "qrels" / "test.tsv").write_text(qrels, "utf-8")
        first, second = load_collection(place), load_collection(place)
        assert first.name == second.name
        assert first.documents.equals(second.documents)
        return second

    return opened


EMPTY = [{"_id": "void", "title": "", "text": ""}, {"_id": "blank", "text": " \n"}, {"_id": "null", "text": None}]


@pytest.mark.parametrize("packed", [False, True])
def test_empty_documents_as_fiqa_has_them(folder, packed):
    """With their judgements; of what was never there a judgement stays a mistake."""
    made = folder([*CORPUS, *EMPTY], qrels=f"{QRELS}q0\tvoid\t1\nq0\tnull\t0\n", packed=packed)
    assert made.documents["doc_id"].to_pylist() == [each["_id"] for each in CORPUS]
    assert made.name == "fiqa (left out: 3 documents without a text, 2 judgements of what is not there)"
    assert len(made.judgements("test")) == 3
    refused("unknown doc_id 'nowhere'", folder, qrels=f"{QRELS}q0\tnowhere\t1\n", error=FormatError)


def test_empty_queries_go_with_their_judgements(folder):
    made = folder(queries=[*QUERIES, {"_id": "mute", "text": "\t"}], qrels=f"{QRELS}mute\td0\t1\n")
    assert made.name == "fiqa (left out: 1 queries without a text, 1 judgements of what is not there)"


def test_a_title_is_enough_where_the_text_is_null(folder):
    titled = [{"_id": "t1", "title": "a title", "text": None}, {"_id": "t2", "title": "alone"}]
    made = folder([*CORPUS, *titled])
    assert made.document_texts([4, 5]) == ["a title", "alone"]
    assert made.name == "fiqa"
    refused("expected _id, title, text as text", folder, [*CORPUS, {"_id": "x", "contents": "?"}], error=FormatError)


def test_lines_that_repeat_are_read_once_and_those_that_contradict_are_mistakes(folder):
    made = folder([CORPUS[0], *CORPUS, CORPUS[2]], [*QUERIES, QUERIES[1]], QRELS + "q1\td1\t1\nq1\td1\t1\n")
    assert made.documents.to_pylist() == folder().documents.to_pylist()
    assert made.queries.to_pylist() == folder().queries.to_pylist()
    assert len(made.judgements("test")) == 3
    said = "2 repeated documents, 1 repeated queries, 2 repeated judgements"
    assert made.name == f"fiqa (left out: {said})"
    for change, message in {
        "corpus": r"corpus\.jsonl:5: duplicate id 'd0' \(first on line 1\) with another text",
        "title": r"corpus\.jsonl:5: duplicate id 'd0'",
        "queries": r"queries\.jsonl:4: duplicate id 'q0'",
        "qrels": r"test\.tsv:5: the pair is judged twice.*line 2 has another relevance",
    }.items():
        other = {
            "corpus": {"corpus": [*CORPUS, {"_id": "d0", "text": "another"}]},
            "title": {"corpus": [*CORPUS, {**CORPUS[0], "title": "x"}]},
            "queries": {"queries": [*QUERIES, {"_id": "q0", "text": "another"}]},
            "qrels": {"qrels": QRELS + "q0\td0\t0\n"},
        }[change]
        refused(message, folder, **other, error=FormatError)


def test_many_repeated_lines(folder):
    many = [{"_id": f"d{at}", "text": f"text {at}"} for at in range(45_000)]
    made = folder([*many, *many[::2]])
    assert made.documents["doc_id"].to_pylist() == [each["_id"] for each in many]
    assert made.name == "fiqa (left out: 22,500 repeated documents)"


FORMS = {
    "tabs": "q0\t0\td0\t1\nq1\t0\td1\t1\nq2\tQ0\td2\t2\n",
    "blanks": "q0 0 d0 1\nq1 0  d1 1\nq2 0 d2 2\n",
    "three columns of blanks": "query-id corpus-id score\nq0 d0 1\nq1 d1 1\nq2 d2 2\n",
    "line ends of others": "q0 0 d0 1\r\nq1 0 d1 1\r\nq2 0 d2 2\r\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_judgements_of_four_columns(folder, form):
    assert folder(qrels=FORMS[form]).judgements("test").equals(folder().judgements("test"))


def test_dictionaries_are_read_alike():
    """As mteb and BEIR's own loader give them."""
    documents = {"d1": "text", "d2": "", "d3": ("title", None), "d4": ("", " ")}
    made = Collection.from_dicts("made", documents, {"q": "query", "mute": ""}, {"test": {"q": {"d1": 1, "d2": 1}}})
    assert made.documents["doc_id"].to_pylist() == ["d1", "d3"]
    assert made.name.startswith("made (left out: 2 documents without a text, 1 queries without a text, 1 judgements")


PAIRS = [("what is a keel?", "A boat's spine."), ("who rows?", "The crew."), ("what rises?", "Bread does.")]
TRIPLETS = [(query, positive, PAIRS[at - 1][1]) for at, (query, positive) in enumerate(PAIRS)]


def test_lists_of_tuples_and_of_dictionaries_are_pairs():
    named = [dict(zip(("query", "positive"), pair, strict=True)) for pair in PAIRS]
    read = [foils.load(given) for given in (PAIRS, named, {"train": PAIRS[:2], "dev": named[2:]})]
    for made in read:
        assert made.queries["text"].to_pylist() == [query for query, _ in PAIRS]
        assert made.documents["text"].to_pylist() == [positive for _, positive in PAIRS]
    assert read[2].splits == ["train", "dev"]
    odd = [{"question": "a?", "answer": "b", "id": 1}, {"question": "c?", "answer": "d", "id": None}]
    assert len(foils.load(odd, columns={"query": "question", "positive": "answer"}).queries) == 2


def test_lists_of_triplets_are_one_source_and_a_list_of_lists_several():
    made = foils.load(TRIPLETS)
    named = [dict(zip(("anchor", "positive", "negative"), row, strict=True)) for row in TRIPLETS]
    for given in (TRIPLETS, named):
        (source,) = as_sources(given, made)
        assert source.negatives.keep.sum() == 3
    assert [each.name for each in as_sources({"a": TRIPLETS, "b": named}, made)] == ["a", "b"]
    rows = foils.mine(made, "random", split="all").table.to_pylist()
    assert len(as_sources(rows, made)[0].negatives) == len(rows)


def test_lists_that_are_neither_are_refused():
    refused("tuples of .2, 3. texts", foils.load, [("a", "b"), ("a", "b", "c")])
    refused("expected .*a list of tuples or dictionaries", foils.load, ["a", "b"])
    refused("no column is known as positive", foils.load, [{"query": "a"}])
