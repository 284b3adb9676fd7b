"""Every verb that loads a cross-encoder loads it with the same options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foils.runtime.errors import InputError

VERBS = {
    "mine": ("--with", "cross-encoder", "--cross-encoder", "reranker", "-o", "out.parquet"),
    "evaluate": ("--run", "first.trec", "--reranker", "reranker"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_length_device_and_trust_reach_the_model(foils, beir_folder, tmp_path, monkeypatch, verb):
    asked: list[tuple[str, dict[str, Any]]] = []

    def load(name, **settings):
        asked.append((name, settings))
        raise InputError("not loaded")

    monkeypatch.setattr("foils.encode.cross_encoders.load_cross_encoder", load)
    monkeypatch.setattr("foils.encode.opening.load_cross_encoder", load)
    monkeypatch.chdir(tmp_path)
    Path("first.trec").write_text("q1 Q0 d1 1 2.0 first\n")
    options = ("--max-length", 7, "--device", "cpu", "--encoder-args", "trust_remote_code=true")
    ended = foils(verb, beir_folder(), *VERBS[verb], *options)
    assert (ended.status, ended.err) == (2, "foils: error: not loaded\n")
    assert asked == [("reranker", {"max_length": 7, "device": "cpu", "trust_remote_code": True})]
