"""Tokens of texts, what two texts share, and how BM25 reads them: the lexical side of ranking and scoring."""

from __future__ import annotations

import html
import logging
import math
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from itertools import pairwise
from threading import Lock
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import Stemmer
import xxhash
from scipy import sparse

from foils.data.collection import Collection, Rows
from foils.data.tables import BYTES
from foils.runtime import memory
from foils.runtime.options import Option, Settings

Tokenizer = Callable[[str], Iterable[str]]


Float64s = npt.NDArray[np.float64]


UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]"
)


_DOTTED = re.compile("i\u0307+")


def folded(text: str) -> str:
    """Return a text without differences of case and of encoding that a reader does not see (Unicode's NFKC_Casefold).

    Composed and decomposed letters are one, as are full-width letters, ligatures and presentation
    forms with their plain ones; soft hyphens, joiners, direction marks and variation selectors are
    left out. The folding is that of no language: İ and i are one (its dot is no mark of its own), ı
    and i are two, as I and i are one.
    """
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFD", text).casefold()
    compatible = unicodedata.normalize("NFKC", decomposed).casefold()
    return unicodedata.normalize("NFKC", _DOTTED.sub("i", UNSEEN.sub("", compatible)))


def alphanumeric(text: str) -> list[str]:
    """Return the words of the folded text, and bigrams of characters where a script has no blanks between words.

    A word is a run of letters and digits, with the marks on them (ECI_sem, text after eq. 8). A run
    of Han, Kana, Hangul, Thai, Lao, Burmese, Khmer or a related script gives each two neighbouring
    characters, as Lucene's CJKAnalyzer does, or the one that there is; an emoji is a token.
    """
    return _cut(text, r"[^\W_]", 1)


def search_terms(text: str) -> list[str]:
    r"""Return the tokens that BM25 ranks by: those of `alphanumeric`, in words of two characters and more.

    Words may have underscores: English ones are those of bm25s and scikit-learn, two of `\w` and
    more. One letter or digit counts where it touches a script without blanks, as in 维生素C.
    """
    return _cut(text, r"\w", 2)


def comparable(text: str) -> list[str]:
    """Return what two texts are compared by: tokens with HTML entities resolved.

    The text itself where it has none.
    """
    return alphanumeric(unescaped(text)) or [text]


def unescaped(text: str) -> str:
    """Return a text without HTML entities, as often as they were escaped."""
    plain = html.unescape(text)
    while plain != text:
        text, plain = plain, html.unescape(plain)
    return plain


def alphanumeric_2(text: str) -> list[str]:
    """Return the tokens of `alphanumeric` of two characters and more."""
    return [token for token in alphanumeric(text) if len(token) > 1]


def whitespace(text: str) -> list[str]:
    """Return the words between white space of the folded text."""
    return folded(text).split()


def character_trigrams(text: str) -> list[str]:
    """Return every three neighbouring characters of the folded text, white space squeezed to one blank.

    A text of one or two characters is one token as it is; an empty one has none.
    """
    squeezed = " ".join(folded(text).split())
    return [squeezed[start : start + 3] for start in range(max(len(squeezed) - 2, bool(squeezed)))]


# Han, Kana and Hangul; then Unicode's line-break class SA: Thai, Lao, Burmese, Khmer, Tai scripts
_UNBROKEN = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303c\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
)
_FLAG = "\U0001f1e6-\U0001f1ff"  # two of these letters are a flag
_EMOJI = (  # without skin tones: a hand of any colour is the same token
    "\u231a\u231b\u23e9-\u23f3\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001f0ff\U0001f300-\U0001f3fa\U0001f400-\U0001faff"
)
_SPECIAL = re.compile(f"[{_UNBROKEN}{_FLAG}{_EMOJI}]")


@cache
def _patterns(letter: str) -> tuple[re.Pattern[str], ...]:
    """Patterns of a run of letters, of a part of a run that has no blanks between words, and of its characters.

    An emoji is a run; so are letters with what follows of letters and marks.
    """
    codes = (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))  # no combining mark lies outside
    marks = "".join(char for char in map(chr, codes) if unicodedata.category(char).startswith("M"))
    run = rf"[{_FLAG}]{{2}}|[{_EMOJI}]|{letter}+(?:(?![\0-\u02ff])[{marks}]+{letter}*)*"
    character = rf"(?![{marks}])[{_UNBROKEN}{_FLAG}{_EMOJI}][{marks}]*"
    return re.compile(run), re.compile(rf"((?:{character})+)"), re.compile(character)


def _cut(text: str, letter: str, shortest: int) -> list[str]:
    """Return the tokens of a text, words with so many characters at least.

    What is ASCII has words alone; the general rule finds the same ones, at five times the cost.
    """
    plain = folded(text)
    if text.isascii():
        return re.findall(f"{letter}{{{shortest},}}", plain, re.ASCII)
    tokens: list[str] = []
    special = _SPECIAL.search(plain) is not None
    run_of_letters, unbroken, character = _patterns(letter)
    for run in run_of_letters.findall(plain):
        if not special or _SPECIAL.search(run) is None:
            if len(run) >= shortest:
                tokens.append(run)
            continue
        for place, part in enumerate(unbroken.split(run)):  # every second part is unbroken
            if place % 2:
                characters = character.findall(part)
                tokens += ["".join(pair) for pair in pairwise(characters)] or characters
            elif part.strip("_"):
                tokens.append(part)
    return tokens


TOKENIZERS: dict[str, Tokenizer] = {
    "alphanumeric": alphanumeric,
    "alphanumeric-2": alphanumeric_2,
    "whitespace": whitespace,
    "trigrams": character_trigrams,
}


def inverse_document_frequency(frequency: npt.ArrayLike, documents: int) -> Float64s:
    """Return idf(a) = ln((M + 1) / (df(a) + 1)) + 1 (ECI_sem, after eq. 7).

    Args:
        frequency: (vocabulary,) df, the number of texts of the corpus with the token.
        documents: M, the number of texts of the corpus.
    """
    return np.asarray(np.log((documents + 1) / (np.asarray(frequency, np.float64) + 1)) + 1)


def near_pairs(sets: Sequence[Iterable[str]], *, threshold: float) -> list[tuple[int, int]]:
    """Return every pair of token sets that are nearly equal.

    Jaccard(x, y) = |x ∩ y| / |x ∪ y|. A pair at or over the threshold t shares at least ⌈t·|x|⌉ of
    x's tokens. With one order for all tokens, rarest first, it therefore shares one among the first
    |x| − ⌈t·|x|⌉ + 1 of x and one among those of y, and only pairs that meet in such a prefix are
    compared. The result is exact.

    Args:
        sets: n sets of tokens; a token that is repeated counts once. An empty set is near to none.
        threshold: in (0, 1]; 1 gives the equal sets alone.

    Returns:
        (i, j) with i < j, by j, then i.

    Source: prefix filtering as in Bayardo, Ma and Srikant, "Scaling up all pairs similarity search"
    (WWW 2007).
    """
    tokens = [frozenset(each) for each in sets]
    count = Counter(token for each in tokens for token in each)
    holders: defaultdict[str, list[int]] = defaultdict(list)
    pairs: list[tuple[int, int]] = []
    for j, mine in enumerate(tokens):
        needed = math.ceil(threshold * len(mine) - 1e-9)
        prefix = sorted(mine, key=lambda token: (count[token], token))[: len(mine) - needed + 1]
        for i in sorted({i for token in prefix for i in holders[token]}):
            shared = len(tokens[i] & mine)
            if shared >= threshold * (len(tokens[i]) + len(mine) - shared) - 1e-9:
                pairs.append((i, j))
        for token in prefix:
            holders[token].append(j)
    return pairs


OF_HASH = 48  # bits of a token's hash
SET = 256  # bytes of a set that is kept, about, beside its hashes


class DocumentSets:
    """Compares the tokens of a collection's documents.

    Tokens are those of `comparable`; two that have the same hash of 48 bits count as one. Hashes
    are kept, as far as the memory budget goes.

    Args:
        collection: of the documents.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._kept, self._held = dict[int, tuple[Rows, int]](), 0

    def __reduce__(self) -> tuple[type[DocumentSets], tuple[Collection]]:
        """Go to other processes without what is kept."""
        return DocumentSets, (self._collection,)

    @cached_property
    def lengths(self) -> Rows:
        """(documents,) bytes of the texts, without their titles."""
        return np.asarray(pc.binary_length(self._collection.documents["text"]).to_numpy(), np.int64)

    def compare(self, ours: Rows, theirs: Rows, least: float = 0.0) -> tuple[Float64s, npt.NDArray[np.bool_]]:
        """Return |A ∩ B| / |A ∪ B| of the token sets of pairs of documents, and which have the same tokens in order.

        Args:
            ours: (n,) rows of documents.
            theirs: (n,) row of the other document of each pair.
            least: where the sizes of the sets rule out this similarity, the bound is returned that they set.
        """
        similarity, same = np.empty(len(ours)), np.empty(len(ours), bool)
        for part in cut_by_bytes(self.lengths[ours] + self.lengths[theirs], memory.budget() // 16):
            rows, place = np.unique(np.concatenate([ours[part], theirs[part]]), return_inverse=True)
            one, other = np.split(place, 2)
            sets, in_order = zip(*self._hashes_of(rows), strict=True)
            sequences = np.array(in_order, np.uint64)
            same[part] = sequences[one] == sequences[other]
            sizes, tokens = np.array([*map(len, sets)]), np.concatenate(sets)
            ends = np.cumsum([0, *sizes])
            matrix = sparse.csr_array((np.ones(len(tokens), np.int8), tokens, ends), (len(sets), 1 << OF_HASH))
            bound = np.minimum(sizes[one], sizes[other]) / np.maximum(sizes[one], sizes[other])
            near = np.flatnonzero(bound >= least)
            one, other = one[near], other[near]
            common = np.diff(matrix[one].multiply(matrix[other]).indptr)
            bound[near] = common / (sizes[one] + sizes[other] - common)
            similarity[part] = bound
        return similarity, same

    def _hashes_of(self, rows: Rows) -> list[tuple[Rows, int]]:
        """Return the `hashes` of the documents at these rows, each at most once."""
        if self._held > memory.budget() // 4:
            self._kept, self._held = {}, 0
        fresh = np.array([row for row in rows.tolist() if row not in self._kept], np.int64)
        for some in cut_by_bytes(self.lengths[fresh], min(BYTES, memory.budget() // 16)):
            for row, text in zip(fresh[some].tolist(), self._collection.document_texts(fresh[some]), strict=True):
                self._kept[row] = hashes(text)
                self._held += self._kept[row][0].nbytes + SET
        return [self._kept[row] for row in rows.tolist()]


def hashes(text: str) -> tuple[Rows, int]:
    """Return the hashes of a text's distinct tokens, (m,) ascending, and that of the tokens in order.

    They are the same in every process.
    """
    tokens = comparable(text)
    distinct = {xxhash.xxh3_64_intdigest(token.encode()) >> (64 - OF_HASH) for token in tokens}
    return np.array(sorted(distinct), np.int64), xxhash.xxh3_64_intdigest("\x1f".join(tokens).encode())


def cut_by_bytes(sizes: npt.NDArray[np.integer], most: int) -> list[slice]:
    """Cut things into parts of about so many bytes, one thing at least.

    Args:
        sizes: (n,) bytes of each.
        most: of a part.
    """
    part = np.cumsum(sizes) // most
    ends = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(part)]
    return [slice(begin, end) for begin, end in pairwise(ends) if begin < end]


log = logging.getLogger(__name__)

AUTO, NONE = "auto", "none"
LANGUAGES = (AUTO, NONE, *Stemmer.algorithms())
K1, B = 1.2, 0.75  # saturation of the term frequency; how much a long document is held against its terms
# the language that is assumed where most letters are of a script; of others no word is stemmed
OF_SCRIPTS = {
    "LATIN": "english",
    "CYRILLIC": "russian",
    "GREEK": "greek",
    "ARABIC": "arabic",
    "DEVANAGARI": "hindi",
    "TAMIL": "tamil",
    "ARMENIAN": "armenian",
}
SAMPLE, BEGINNING = 1_000, 1_000  # documents by whose first characters the script is found
_ONE_AT_A_TIME = Lock()


def load_bm25s() -> Any:
    """Import bm25s, and with it no JAX, which its module `selection` starts: that takes most of a GPU's memory.

    What others imported of JAX before stays theirs.
    """
    with _ONE_AT_A_TIME:
        if "bm25s" not in sys.modules:
            before = sys.modules.get("jax.lax")
            sys.modules["jax.lax"] = None  # type: ignore[assignment]  # not to be imported
            try:
                import bm25s
            finally:
                del sys.modules["jax.lax"]
                if before:
                    sys.modules["jax.lax"] = before
        import bm25s
    return bm25s


# name of the rule that cuts texts into terms for BM25, `search_terms`, in provenance
ANALYSER = "words-and-bigrams"


def stop_words(language: str) -> tuple[str, ...]:
    """Return the words that are no terms, folded: bm25s' list of a language; empty where it has none."""
    list_of = {"english": "EN", "porter": "EN", "dutch_porter": "DUTCH"}
    suffix = list_of.get(language, language.upper())
    words = getattr(load_bm25s().stopwords, f"STOPWORDS_{suffix}", ())
    return tuple(dict.fromkeys(map(folded, words)))


def bm25_tokenizer(language: str) -> Any:
    """Return bm25s' tokenizer of the terms of texts, which numbers them as they come.

    Terms are words, and character bigrams of scripts without blanks, stemmed, without stop words.

    Args:
        language: of the Snowball stemmer and of the stop words; none: neither.
    """
    stemmer = None if language == NONE else Stemmer.Stemmer(language)
    options = {"splitter": search_terms, "stopwords": stop_words(language), "stemmer": stemmer, "lower": False}
    return load_bm25s().tokenization.Tokenizer(**options)


@dataclass(frozen=True, kw_only=True)
class BM25Settings(Settings):
    """How BM25 reads and scores texts.

    Attributes:
        language: Language of BM25's stemmer and stop words. auto: that of a folder of foils tune
            or, without one, found from the script of most letters (Latin: english). none: words as
            they are.
        k1: Saturation of the term frequency in BM25; at 0 a term counts once, however often it is
            there. Default: 1.2, or that of a folder of foils tune.
        b: How much BM25 holds a document's length against its terms. Default: 0.75, or that of a
            folder of foils tune.
    """

    heading = "BM25"

    language: Annotated[str, Option(names=LANGUAGES)] = AUTO
    k1: Annotated[float | None, Option(least=0)] = None
    b: Annotated[float | None, Option(least=0, most=1)] = None

    def over(self, kept: Mapping[str, Any]) -> BM25Settings:
        """Return these settings, and where they leave something open, those that were kept as `facts`."""
        names = [each.name for each in fields(self)]
        return BM25Settings(**{**{name: kept[name] for name in names if name in kept}, **self.changed()})

    def resolved(self, collection: Collection) -> BM25Settings:
        """Return the settings with nothing left open, and say which language was found."""
        language = self.language
        k1, b = K1 if self.k1 is None else self.k1, B if self.b is None else self.b
        if language == AUTO:
            script, share = main_script(collection)
            language = OF_SCRIPTS.get(script, NONE)
            what = "words as they are" if language == NONE else f"{language} stemmer and stop words"
            reason = f"{100 * share:.0f} % of letters are {script.capitalize()}" if script else "there are no letters"
            log.info("BM25: %s (%s), k1 %g, b %g", what, reason, k1, b)
        return replace(self, language=language, k1=k1, b=b)

    @property
    def facts(self) -> dict[str, Any]:
        """What provenance says of settings that are resolved."""
        return {"analyser": ANALYSER, **vars(self)}


def main_script(collection: Collection) -> tuple[str, float]:
    """Return the script of most letters of the documents, by Unicode's names of them, and its share; "" without any.

    Chinese characters are HAN.
    """
    rows = np.unique(np.linspace(0, len(collection.documents) - 1, SAMPLE).astype(np.int64))
    letters = Counter("".join(text[:BEGINNING] for text in collection.document_texts(rows)))
    scripts = Counter[str]()
    for letter, count in letters.items():
        if letter.isalpha():
            scripts[unicodedata.name(letter, "UNNAMED").split()[0].replace("CJK", "HAN")] += count
    if not scripts:
        return "", 0.0
    script, count = scripts.most_common(1)[0]
    return script, count / scripts.total()
