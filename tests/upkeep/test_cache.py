"""The cache's size, and what of it is removed: the least recently used first, and nothing that is not the cache's."""

import os
from pathlib import Path

import pytest

import foils
from refusals import refused

ENTRIES = (f"llm/{16 * 'a'}", "vectors/b-float32", f"collections/{32 * 'c'}")  # the least recently used first
DAY = 86_400


@pytest.fixture
def kept(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("FOILS_CACHE", str(folder))
    for age, name in enumerate((*ENTRIES, "vectors/.half.part", "vectors/mine", "mine/d")):
        (folder / name / "inner").mkdir(parents=True)
        file = folder / name / "inner" / "file"
        file.write_bytes(bytes(100 * (age + 1)))
        os.utime(file, (0, 10_000_000_000 + age * DAY))  # in the future: no clock decides
    return folder


@pytest.mark.parametrize(("keep", "removed"), [(600, 0), (599, 1), (300, 2), (0, 3)])
def test_the_least_recently_used_are_removed_first(kept, keep, removed):
    assert [(each.kind, each.bytes) for each in foils.cache().entries] == [
        ("vectors", 200),
        ("collections", 300),
        ("llm", 100),
    ]
    found = foils.cache("prune", keep=keep)
    assert [each.path for each in found.removed] == [kept / name for name in ENTRIES[:removed]]
    assert [(kept / name).exists() for name in ENTRIES] == [False] * removed + [True] * (3 - removed)
    assert all((kept / name).exists() for name in ("vectors/.half.part", "vectors/mine", "mine/d"))
    assert len(foils.cache().to_json()["entries"]) == 3 - removed


def test_what_is_refused(kept):
    for given in (("prune",), ("size", 5)):
        refused(
            "prune, and prune alone, takes keep", lambda *a: foils.cache(a[0], keep=dict(enumerate(a)).get(1)), *given
        )
