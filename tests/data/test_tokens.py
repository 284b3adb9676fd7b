"""Token sets against plain Python sets."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import textwrap
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import Stemmer
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from fakes import memory_of
from foils.data import Collection
from foils.data.tokens import (
    ANALYSER,
    LANGUAGES,
    TOKENIZERS,
    BM25Settings,
    DocumentSets,
    alphanumeric,
    bm25_tokenizer,
    comparable,
    cut_by_bytes,
    folded,
    hashes,
    inverse_document_frequency,
    main_script,
    near_pairs,
    search_terms,
    stop_words,
)
from foils.mining import BM25Retriever
from foils.runtime import memory
from foils.runtime.errors import InputError, UnknownNameError

words = st.lists(st.sampled_from(["a", "b", "cc", "dd", "eee"]), max_size=6).map(" ".join)
texts = st.lists(words, min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("tokenizer", "text", "expected"),
    [
        ("alphanumeric", "The BM25 score, x_1: 3.5!", ["the", "bm25", "score", "x", "1", "3", "5"]),
        ("alphanumeric", "STRASSE Stra\u00dfe \u4e2d\u6587", ["strasse", "strasse", "\u4e2d\u6587"]),
        ("alphanumeric", "\u7dad\u751f\u7d20C \u8c93", ["\u7dad\u751f", "\u751f\u7d20", "c", "\u8c93"]),
        ("alphanumeric", " -_\n", []),
        ("alphanumeric-2", "The BM25 score, x_1: 3.5!", ["the", "bm25", "score"]),
        ("whitespace", " The BM25\tscore, x_1:\n3.5! ", ["the", "bm25", "score,", "x_1:", "3.5!"]),
        ("trigrams", "A  bc\td", ["a b", " bc", "bc ", "c d"]),
        ("trigrams", "  ", []),
    ],
)
def test_tokenizers(tokenizer: str, text: str, expected: list[str]) -> None:
    assert list(TOKENIZERS[tokenizer](text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("किताब पढ़ना, हिन्दी!", ["किताब", "पढ़ना", "हिन्दी"]),  # Devanagari: vowel signs, nukta, virama
        ("ที่นี่ 3 คำ", ["ที่นี่", "3", "คํา"]),  # Thai: bigrams of letters with vowel signs and tones
        ("กินข้าว", ["กิน", "นข้", "ข้า", "าว"]),
        ("كِتَابٌ، قلم", ["كِتَابٌ", "قلم"]),  # Arabic: vowel signs
        ("ﻛﺘﺎﺏ می‌خواهم", ["كتاب", "میخواهم"]),  # presentation forms; a non-joiner
        ("İSTANBUL İstanbul istanbul", ["istanbul"] * 3),
        ("ısı ISI", ["ısı", "isi"]),
        ("ﬁne ＡＢＣ co\u00adoperate x²", ["fine", "abc", "cooperate", "x2"]),
        ("❤️ \u0301", ["❤"]),  # marks without a letter
    ],
)
def test_letters_keep_their_marks(text: str, expected: list[str]) -> None:
    expected = [unicodedata.normalize("NFKC", token) for token in expected]
    assert alphanumeric(text) == expected
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert alphanumeric(unicodedata.normalize(form, text)) == expected


def test_every_mark_stays_with_its_letter() -> None:
    marks = [mark for mark in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(mark)[0] == "M"]
    assert [mark for mark in marks if len(alphanumeric(f"x{mark}y \u00e9")) != 2] == []


@given(st.text() | st.text("aIiıİ\u0307\u0301\u0323\u0345\u200dßſΣς \u00adＫ"))
def test_folding(text: str) -> None:
    assert folded(folded(text)) == folded(text)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        for tokenizer in TOKENIZERS.values():
            assert list(tokenizer(unicodedata.normalize(form, text))) == list(tokenizer(text))


@given(texts)
def test_idf_equals_scikit_learn(corpus: list[str]) -> None:
    count = Counter(token for text in corpus for token in set(alphanumeric(text)))
    if not count:
        return
    theirs = TfidfVectorizer(token_pattern=r"[^\W_]+", smooth_idf=True).fit(corpus)  # ln((1 + n) / (1 + df)) + 1
    idf = inverse_document_frequency([count[token] for token in sorted(count)], len(corpus))
    np.testing.assert_allclose(idf, theirs.idf_[[theirs.vocabulary_[token] for token in sorted(count)]], rtol=1e-14)


LETTERS = "aAbBzZ09 _-.!\n\u00e9\u00c9\u0130\u2103\u4e2d\u0301\U0001f600"


@given(st.lists(st.text(LETTERS, min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=8))
@example(["?", "\u2103", "x" * 300, "a b a", "B A", "_a_b_"])
def test_similarities_are_those_of_plain_sets_of_any_text(texts: list[str]) -> None:
    sets = [set(alphanumeric(text.strip()) or [text.strip()]) for text in texts]
    made = {str(at): text for at, text in enumerate(texts)}
    ours, theirs = np.indices((len(texts), len(texts))).reshape(2, -1)
    found = DocumentSets(Collection.from_dicts("any", made, {"q": "a"}, {})).compare(ours, theirs)[0]
    true = [len(sets[i] & sets[j]) / len(sets[i] | sets[j]) for i, j in zip(ours, theirs, strict=True)]
    assert found == pytest.approx(true, abs=1e-12)


def documents(size: int, words: int) -> tuple[Collection, list[set[str]]]:
    """Documents of `words` words, each of which keeps more of the first's than the one before."""
    rng = np.random.default_rng(size)
    first = [f"w{n}" for n in range(words)]
    texts = {"d0": " ".join(first)}
    for at in range(1, size):
        changed = rng.random(words) < 0.4 * (1 - at / size)
        texts[f"d{at}"] = " ".join(f"{at}x{n}" if new else first[n] for n, new in enumerate(changed))
    collection = Collection.from_dicts("alike", texts, {"q": "anything"}, {"train": {"q": {"d0": 1}}})
    return collection, [set(text.split()) for text in texts.values()]


@pytest.mark.parametrize("words", [1, 40, 6_000])
def test_similarities_are_those_of_plain_sets_unless_the_sizes_rule_them_out(words):
    collection, sets = documents(40, words)
    ours, theirs = np.zeros(40, np.int64), np.arange(40)
    true = np.array([len(sets[0] & each) / len(sets[0] | each) for each in sets])
    assert DocumentSets(collection).compare(ours, theirs)[0] == pytest.approx(true, abs=1e-12)
    with memory_of(memory.LEAST):
        found, same = DocumentSets(collection).compare(ours, theirs, 0.9)
    assert found[true >= 0.9] == pytest.approx(true[true >= 0.9], abs=1e-12)
    assert (found[true < 0.9] < 0.9).all()
    assert same.tolist() == [text == collection.document_texts([0])[0] for text in collection.document_texts(theirs)]


def test_the_same_tokens_in_another_order_are_near_and_not_the_same():
    texts = {
        "a": "Red boat, blue boat",
        "b": "red BOAT &amp; blue boat!",
        "c": "blue boat, red boat",
        "d": "?",
        "e": "?",
    }
    sets = DocumentSets(Collection.from_dicts("any", texts, {"q": "a"}, {}))
    for _ in range(2):  # computed, and kept
        similarity, same = sets.compare(np.array([0, 0, 3, 0]), np.array([1, 2, 4, 3]))
        assert (similarity.tolist(), same.tolist()) == ([1, 1, 1, 0], [True, False, True, False])


def test_hashes_of_tokens_are_the_same_in_every_process() -> None:
    """Python's own would not be: by them two texts might be near-duplicates in one run and not in another."""
    expected = sorted(xxhash.xxh3_64_intdigest(token) >> 16 for token in (b"ab", b"c1"))
    assert hashes("Ab, ab; C1")[0].tolist() == hashes("ab\u2003c1")[0].tolist() == expected
    assert hashes("Ab; C1")[1] == hashes("ab\u2003c1")[1] == xxhash.xxh3_64_intdigest(b"ab\x1fc1")


def test_parts_have_about_so_many_bytes() -> None:
    assert cut_by_bytes(np.array([3, 3, 3, 20, 1]), 7) == [slice(0, 2), slice(2, 3), slice(3, 5)]
    assert cut_by_bytes(np.zeros(0, np.int64), 7) == []


token_sets = st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=8), max_size=14)


def jaccard(x: frozenset[str], y: frozenset[str]) -> float:
    return len(x & y) / len(x | y) if x | y else 0.0


@given(token_sets, st.sampled_from([0.01, 0.2, 1 / 3, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.875, 1.0]))
def test_equals_comparing_every_pair(sets: list[frozenset[str]], threshold: float) -> None:
    plain = [(i, j) for j in range(len(sets)) for i in range(j) if jaccard(sets[i], sets[j]) >= threshold - 1e-12]
    assert near_pairs(sets, threshold=threshold) == plain


def test_by_hand() -> None:
    sets = [["a", "b", "c", "d"], ["a", "b", "c"], ["x"], [], ["d", "c", "b", "a", "a"], []]
    assert near_pairs(sets, threshold=0.75) == [(0, 1), (0, 4), (1, 4)]
    assert near_pairs(sets, threshold=0.76) == [(0, 4)]
    assert near_pairs(sets, threshold=1) == [(0, 4)]
    assert near_pairs([], threshold=0.5) == []


WORDS = CountVectorizer().build_analyzer()  # lower case, two of \w and more
BIGRAMS = CountVectorizer(analyzer="char", ngram_range=(2, 2)).build_analyzer()

english = st.text(st.characters(max_codepoint=127))


@given(english)
@example("max_seq_length of C++11, don't; x_ 3.14 __init__ _a")
def test_terms_of_english_are_the_words_of_scikit_learn(text: str) -> None:
    assert search_terms(text) == WORDS(text)


@given(
    english,
    st.sampled_from(
        [
            "don\u2019t",
            "na\u00efve",
            "\u4e2d\u6587",
            "\u20ac5",
            "\u2026",
            "\U0001f600",
            "\u0e44\u0e17\u0e22",
            "\u2013 x",
        ]
    ),
)
@example("max_seq_length in C++ of 3.14 and x_1", "\u2019")
@example("don't __init__", "\u4e2d")
def test_a_far_character_changes_no_term_of_the_rest(text: str, far: str) -> None:
    for rule in (search_terms, alphanumeric):
        assert rule(f"{text} {far}") == rule(text) + rule(far)
        assert rule(f"{far} {text}") == rule(far) + rule(text)


@pytest.mark.parametrize(
    "text",
    [
        "\u5317\u4eac\u662f\u4e2d\u570b\u7684\u9996\u90fd",  # Han
        "\u3072\u3089\u304c\u306a\u3068\u30ab\u30bf\u30ab\u30ca\u306e\u30bf\u30ef\u30fc",  # Kana
        "\u6771\u4eac\u30bf\u30ef\u30fc\u306e\u9ad8\u3055",  # both in one run
        "\ub300\ud55c\ubbfc\uad6d\uc758",  # Hangul
        "\u0e41\u0e21\u0e27\u0e40\u0e25\u0e02\u0e23\u0e2d\u0e07",  # Thai, without signs above or below
        "\u0ec0\u0ea1\u0eb7\u0ead\u0e87"[:2] + "\u0ea5\u0eb2\u0ea7",  # Lao
        "\u1000\u1001\u1002\u1019",  # Burmese
        "\u1780\u1781\u1782\u1793",  # Khmer
    ],
)
def test_scripts_without_blanks_have_the_bigrams_of_scikit_learn(text: str) -> None:
    for rule in (search_terms, alphanumeric):
        assert rule(text) == BIGRAMS(text)
        assert rule(f"a {text}, {text[0]}!") == [*rule("a"), *BIGRAMS(text), text[0]]


def test_letters_with_their_marks_are_one_character_of_a_bigram() -> None:
    assert search_terms("\u0e01\u0e34\u0e19\u0e02\u0e49\u0e32\u0e27") == [
        "\u0e01\u0e34\u0e19", "\u0e19\u0e02\u0e49", "\u0e02\u0e49\u0e32", "\u0e32\u0e27",
    ]  # fmt: skip


def test_one_letter_counts_beside_a_script_without_blanks_and_nowhere_else() -> None:
    assert search_terms("\u7ef4\u751f\u7d20C \u7b2c5\u7ae0 C 5") == [
        "\u7ef4\u751f",
        "\u751f\u7d20",
        "c",
        "\u7b2c",
        "5",
        "\u7ae0",
    ]


def test_emoji_are_terms_in_any_skin_and_any_sequence() -> None:
    assert search_terms("\U0001f44d\U0001f3fd \U0001f44d\u2764\ufe0f") == ["\U0001f44d", "\U0001f44d", "\u2764"]
    assert search_terms("\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7") == ["\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7"]
    assert search_terms("so\U0001f468\u200d\U0001f469good") == ["so", "\U0001f468", "\U0001f469", "good"]


@given(st.text())
def test_no_letter_is_lost_but_in_single_ones(text: str) -> None:
    """A letter of any script is in some token."""
    letters = {*"".join(alphanumeric(text))}
    lost = [char for char in re.findall(r"[^\W_]", text) if not {*"".join(alphanumeric(char))} <= letters]
    assert lost == []


def made(*texts: str) -> Collection:
    documents = {f"d{at}": text for at, text in enumerate(texts)}
    return Collection.from_dicts("made", documents, {"q0": texts[0]}, {"train": {"q0": {"d0": 1}}})


@pytest.mark.parametrize(
    ("text", "script", "language"),
    [
        ("The boats are sailing, \u5317\u4eac too", "LATIN", "english"),
        ("\u041b\u043e\u0434\u043a\u0438 \u043f\u043b\u044b\u0432\u0443\u0442 and", "CYRILLIC", "russian"),
        ("\u03a4\u03b1 \u03c0\u03bb\u03bf\u03af\u03b1", "GREEK", "greek"),
        ("\u0627\u0644\u0633\u0641\u0646 \u062a\u0628\u062d\u0631", "ARABIC", "arabic"),
        ("\u0928\u093e\u0935\u0947\u0902 \u091a\u0932\u0924\u0940", "DEVANAGARI", "hindi"),
        ("\u6f22\u5b57\u306f\u96e3\u3057\u3044\u6f22\u5b57", "HAN", "none"),
        ("\u0e41\u0e21\u0e27 BERT", "LATIN", "english"),
        ("\u0e41\u0e21\u0e27\u0e01\u0e34\u0e19\u0e1b\u0e25\u0e32 BERT", "THAI", "none"),
        ("123 !", "", "none"),
    ],
)
def test_the_language_is_found_from_the_script_of_most_letters(text, script, language, caplog):
    caplog.set_level("INFO")
    assert main_script(made(text))[0] == script
    settings = BM25Settings().resolved(made(text))
    assert (settings.language, settings.k1, settings.b) == (language, 1.2, 0.75)
    (line,) = caplog.messages
    assert line.startswith("BM25: ")
    assert (f"{language} stemmer" if language != "none" else "as they are") in line
    assert settings.resolved(made("other")) == settings, "nothing is left open"
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_a_stemmer_for_documents_and_queries(language: str) -> None:
    collection = made("boats sail \u043b\u043e\u0434\u043a\u0438", "bread")
    rows, _ = BM25Retriever(collection, language=language).search(np.array([0]), 2)
    assert rows.tolist() == [[0, -1]]
    if language not in ("auto", "none"):
        asked = bm25_tokenizer(language).tokenize(["nationalities"], show_progress=False, return_as="string")
        assert asked == [[Stemmer.Stemmer(language).stemWord("nationalities")]]


def test_stop_words_are_those_of_the_language_and_none_where_there_is_no_list() -> None:
    assert {"der", "fur"} & {*stop_words("german")} == {"der"}
    assert {"the", "of"} < {*stop_words("english")} == {*stop_words("porter")}
    assert "het" in stop_words("dutch_porter")
    assert stop_words("basque") == stop_words("none") == ()


def test_what_is_given_goes_before_what_a_folder_keeps() -> None:
    kept = {"analyser": ANALYSER, "language": "german", "k1": 0.9, "b": 0.4}
    assert BM25Settings().over(kept) == BM25Settings(language="german", k1=0.9, b=0.4)
    assert BM25Settings(language="english", k1=1.2).over(kept) == BM25Settings(language="english", k1=1.2, b=0.4)
    assert BM25Settings(language="german", k1=0.9, b=0.4).facts == kept
    with pytest.raises(UnknownNameError, match="klingon"):
        BM25Settings(language="klingon")
    with pytest.raises(InputError, match=r"b 1\.5; expected at least 0 and at most 1"):
        BM25Settings(b=1.5)


@given(st.text(alphabet="ab&<>\"' \u4e2d"))
def test_texts_are_compared_with_their_entities_resolved(text: str) -> None:
    once, twice = html.escape(text), html.escape(html.escape(text))
    if text.strip() and alphanumeric(text):
        assert comparable(once) == comparable(twice) == comparable(text)


STARTS = "raise SystemExit('jax is started')"


@pytest.mark.parametrize("imported", [False, True])
def test_no_other_librarys_device_is_touched(tmp_path: Path, imported: bool) -> None:
    """Of a jax that ends the program when it is imported or, where another library imported it before, used."""
    (tmp_path / "jax").mkdir()
    body = "def top_k(*_):\n    raise SystemExit('jax is started')\n" if imported else STARTS
    (tmp_path / "jax" / "__init__.py").write_text("" if imported else STARTS)
    (tmp_path / "jax" / "lax.py").write_text(body)
    program = f"""
        import sys
        {"import jax.lax" if imported else ""}
        known = sys.modules.get("jax")
        import foils.cli.app, foils.training.fit, foils.searching, foils.experiments, foils.deciding.page
        from foils.data import Collection
        from foils.mining import BM25Retriever
        texts, judged = {{"d": "bread", "e": "boats"}}, {{"train": {{"q": {{"e": 1}}}}}}
        boats = Collection.from_dicts("boats", texts, {{"q": "boat"}}, judged)
        assert BM25Retriever(boats).search([0], 1)[0].tolist() == [[1]]
        import bm25s
        assert bm25s.selection.JAX_IS_AVAILABLE is False
        assert bm25s.selection is sys.modules["bm25s.selection"]
        assert sys.modules.get("jax") is known
    """
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-2000:]
