"""Draw docs/speed.svg, processor time beside sentence-transformers' miner, from benchmarks/results/drop_in.json.

python benchmarks/speed_figure.py
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH, LEFT, ROW, TOP = 760, 330, 22, 34


def figure(results: dict) -> str:
    """One bar for each case of each collection; the line at 1 is sentence-transformers in the same run."""
    rows = [
        (f"{name.partition(',')[0]}: {case}", each["ratios"]["processor seconds"])
        for name, measured in results.items()
        for case, each in measured["cases"].items()
    ]
    unit = (WIDTH - LEFT - 60) / max(1.0, *(ratio for _, ratio in rows))
    height = TOP + ROW * len(rows) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#1c2024">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="16">processor time of foils, sentence-transformers = 1</text>',
    ]
    for at, (name, ratio) in enumerate(rows):
        y = TOP + ROW * at
        parts.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y + 2}" width="{ratio * unit:.1f}" height="{ROW - 7}" fill="#0072b2"/>')
        parts.append(f'<text x="{LEFT + ratio * unit + 5:.1f}" y="{y + 13}">{ratio:.2f}</text>')
    one = f"M{LEFT + unit:.1f},{TOP - 6}V{height - 8}"
    parts.append(f'<path d="{one}" stroke="#d55e00" stroke-width="1.5" stroke-dasharray="5 3"/>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    results = json.loads((ROOT / "benchmarks" / "results" / "drop_in.json").read_text("utf-8"))
    (ROOT / "docs" / "speed.svg").write_text(figure(results), encoding="utf-8")


if __name__ == "__main__":
    main()
