"""Draw the README's picture, the decision page of three sources, by a headless Chromium.

python benchmarks/picture.py SCIFACT [--browser chromium]

SCIFACT is a BEIR folder. Random, BM25 and dense negatives are mined and scored by the word table of all-MiniLM-L6-v2.
The picture that is kept was reduced to 64 colours afterwards.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import foils

MODEL = "static:all-MiniLM-L6-v2"
PICTURE = Path(__file__).parents[1] / "docs" / "decision.png"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("--browser", default="chromium")
    given = parser.parse_args()
    collection = foils.load(given.collection)
    sources = {name: foils.mine(collection, name, top=10) for name in ("random", "bm25")}
    sources["dense"] = foils.mine(collection, "dense", top=10, encoder=MODEL)
    scores = foils.score(collection, sources, encoder=MODEL)
    print(scores)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        scores.report(page)
        size = ["--window-size=1100,805", "--force-device-scale-factor=1", "--hide-scrollbars"]
        where = [f"--screenshot={PICTURE}", page.as_uri()]
        quiet = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/browser"]
        subprocess.run([given.browser, *quiet, *size, "--virtual-time-budget=8000", *where], check=True)


if __name__ == "__main__":
    main()
