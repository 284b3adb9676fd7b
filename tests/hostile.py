"""A text that attacks the page which shows it, a world full of it, and what holds of a page that it does no harm to."""

import re
from html import escape

from foils.data import Collection, Negatives
from foils.mining import BM25Retriever, Miner, RandomRetriever

ATTACK = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def hostile_world() -> tuple[Collection, dict[str, Negatives]]:
    """Every id and text of a collection, and the names of its sources, have the attack in them."""
    documents = {f"d{i} {ATTACK}": f"wind boat{i} keel {ATTACK}" for i in range(12)}
    documents |= {f"e{i}": f"boat{i} bread{i} loaf {ATTACK}" for i in range(12)}
    queries = {f"q{i} {ATTACK}": f"boat{i} {ATTACK}" for i in range(12)}
    judged = {f"q{i} {ATTACK}": {f"d{i} {ATTACK}": 1} for i in range(12)}
    collection = Collection.from_dicts(f"evil {ATTACK}", documents, queries, {"train": judged, "test": judged})
    return collection, {
        f"bm25 {ATTACK}": Miner(collection, BM25Retriever(collection), top=3).mined("train"),
        "random": Miner(collection, RandomRetriever(collection), top=3).mined("train"),
        f"more {ATTACK}": Miner(collection, RandomRetriever(collection, seed=1), top=3).mined("train"),
    }


def assert_harmless(page: str) -> None:
    """The attack stands in the page as text alone, there is no script, and nothing is fetched."""
    assert escape(ATTACK, quote=False).replace('"', "&#34;").replace("'", "&#39;") in page
    assert ATTACK not in page
    assert "<img" not in page
    assert "<script" not in page
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)
    assert "default-src 'none'" in page
