"""How BM25 reads texts: what cuts them into terms, in which language these are stemmed, and the constants k1 and b."""

from __future__ import annotations

import builtins
import logging
import sys
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from threading import Lock
from typing import Annotated, Any, ClassVar

import numpy as np
import Stemmer

from foils.data.collection import Collection
from foils.data.tokens import folded, search_terms
from foils.runtime.options import Option, Settings, spelled

log = logging.getLogger(__name__)

AUTO, NONE = "auto", "none"
LANGUAGES = (AUTO, NONE, *Stemmer.algorithms())
K1, B = 1.2, 0.75  # saturation of the term frequency; how much a long document is held against its terms
OF_SCRIPTS = {  # the language that is assumed where most letters are of a script; of others no word is stemmed
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

    Only this module is kept from importing jax. What others import of it, before or at the same
    time, stays theirs.
    """

    def without_jax(name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] == "jax":
            raise ImportError("bm25s selects by numpy here")
        return builtins.__import__(name, *arguments)

    with _ONE_AT_A_TIME:
        package = None if "bm25s" in sys.modules else find_spec("bm25s")
        part = package and PathFinder.find_spec("bm25s.selection", package.submodule_search_locations)
        if not part or part.loader is None:
            import bm25s
        else:
            selection = module_from_spec(part)
            vars(selection)["__builtins__"] = {**vars(builtins), "__import__": without_jax}
            sys.modules[part.name] = selection
            part.loader.exec_module(selection)
            import bm25s

            bm25s.selection = selection
    return bm25s


@dataclass(frozen=True)
class Analyser:
    """Makes terms of texts: words, and character bigrams of scripts without blanks, stemmed, without stop words.

    Attributes:
        language: of the Snowball stemmer and of the stop words, those of bm25s where it has some;
            none: neither.
        name: of the rule that cuts texts, `foils.data.tokens.search_terms`, as provenance has it.
    """

    language: str
    name: ClassVar[str] = "words-and-bigrams"

    @cached_property
    def stop_words(self) -> tuple[str, ...]:
        """Words that are no terms, folded; empty where bm25s has no list for the language."""
        list_of = {"english": "EN", "porter": "EN", "dutch_porter": "DUTCH"}
        suffix = list_of.get(self.language, self.language.upper())
        words = getattr(load_bm25s().stopwords, f"STOPWORDS_{suffix}", ())
        return tuple(dict.fromkeys(map(folded, words)))

    def tokenizer(self) -> Any:
        """Return bm25s' tokenizer of these terms, which numbers them as they come."""
        stemmer = None if self.language == NONE else Stemmer.Stemmer(self.language)
        options = {"splitter": search_terms, "stopwords": self.stop_words, "stemmer": stemmer, "lower": False}
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
            log.info("BM25: %s (%s; %s chooses), k1 %g, b %g", what, reason, spelled("language"), k1, b)
        return replace(self, language=language, k1=k1, b=b)

    @property
    def facts(self) -> dict[str, Any]:
        """What provenance says of settings that are resolved."""
        return {"analyser": Analyser.name, **vars(self)}


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
