"""Copies of positives in disguise: HTML entities, scripts without blanks, and thousands of one text."""

from __future__ import annotations

import html
from collections.abc import Callable

import numpy as np
import pytest

from foils.data import Collection, tokens
from foils.mining import BM25Retriever, Miner
from foils.mining.rules import LookAlikes

PLAIN = """Tom & Jerry's "great" escape <part 2> isn't about AT&T; it's about a cat, a mouse and 3 holes in one wall."""
CHINESE = "北京是中华人民共和国的首都，也是全国的政治、文化和国际交往中心，常住人口超过两千万，有三千多年的建城历史。"
JAPANESE = "東京タワーは東京都港区芝公園にある高さ三百三十三メートルの電波塔で、一九五八年に完成し、今も観光客が多い。"
THAI = "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย เป็นศูนย์กลางการปกครอง การศึกษา และการขนส่ง"


def marks(positive: str, *others: str, threshold: float = 0.9) -> list[str]:
    texts = {"positive": positive, **{f"d{at}": text for at, text in enumerate(others)}}
    collection = Collection.from_dicts("copies", texts, {"q": "?"}, {"train": {"q": {"positive": 1}}})
    rows = np.arange(1, len(texts))
    equal, near = LookAlikes(collection.known_positives, tokens.DocumentSets(collection), threshold).marks(
        np.zeros(len(rows), np.int64), rows
    )
    return [("equal" if one else "near" if other else "") for one, other in zip(equal, near, strict=True)]


def test_copies_with_html_entities_are_equal() -> None:
    once = html.escape(PLAIN)
    numbered = "".join(f"&#{ord(char)};" if char in "&'\"<>" else char for char in PLAIN)
    hexed = "".join(f"&#x{ord(char):x};" if char in "&'\"<>" else char for char in PLAIN)
    others = [once, html.escape(once), numbered, hexed, f"{once}&nbsp;", once.replace("Jerry", "Tim&eacute;")]
    assert marks(PLAIN, *others) == ["equal"] * 5 + ["near"]
    assert marks(once, PLAIN, "a dog &amp; a wall") == ["equal", ""]


@pytest.mark.parametrize("text", [CHINESE, JAPANESE, THAI])
def test_near_duplicates_are_found_in_scripts_without_blanks(text: str) -> None:
    changed, other = text[:-2] + "。", "".join(sorted(text))
    assert marks(text, text + "！", changed, other) == ["equal", "near", ""]


def test_emoji_alone_are_compared_too() -> None:
    party = "🎉🎂🎈🎁🥳🎊🍰🕺💃🪩"
    assert marks(party, party + "!", party + "🎵", "🚗🚕🚙") == ["equal", "near", ""]


def test_each_document_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = {"hashes": 0, "comparable": 0}
    works = {name: getattr(tokens, name) for name in read}

    def counting(name: str) -> Callable[[str], object]:
        def counted(text: str) -> object:
            read[name] += 1
            return works[name](text)

        return counted

    for name in read:
        monkeypatch.setattr(tokens, name, counting(name))
    documents = {f"c{at}": "a loaf of bread with yeast" for at in range(1_500)} | {
        "other": f"bread {' '.join(map(str, range(100, 160)))}"
    }
    queries = {f"q{at}": "bread" for at in range(40)}
    qrels = {query: {"c0": 1} for query in queries}
    collection = Collection.from_dicts("copies", documents, queries, {"train": qrels})
    mined = Miner(collection, BM25Retriever(collection), top=1).mined("train")
    kept = mined.table.filter(mined.table["keep"])
    assert kept["doc_id"].to_pylist() == ["other"] * 40
    assert mined.copies_left_out == 40 * (1_499 - 100)
    assert read == dict.fromkeys(read, len(documents)), "not once by each of 60,000 pairs"
