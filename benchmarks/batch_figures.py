"""Draw docs/batches-curve.svg and docs/batches-growth.svg from benchmarks/results/batch_curve.json and batch.json.

python benchmarks/batch_figures.py
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
GREY = "#8a8f94"
COLOUR_OF = {"random": GREY, **dict(zip(("hobit", "hobit, alpha 0", "ngame", "walks", "b3"), COLOURS, strict=False))}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 300, 58, 20, 30, 44


@dataclass(frozen=True)
class Line:
    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    dashed: bool = False


def panel(title: str, lines: Sequence[Line], *, x: str, y: str, ticks: tuple, log: bool = False) -> str:
    """One chart of 420 × 300 points; ticks are (values of x, values of y) with labels."""
    scale: Callable[[float], float] = math.log10 if log else float
    x_ticks, y_ticks = ticks
    across, up = ([scale(v) for v, _ in ticks] for ticks in (x_ticks, y_ticks))

    def place(a: float, b: float) -> tuple[float, float]:
        h = (scale(a) - min(across)) / (max(across) - min(across))
        v = (scale(b) - min(up)) / (max(up) - min(up))
        return round(LEFT + h * (WIDTH - LEFT - RIGHT), 1), round(HEIGHT - BOTTOM - v * (HEIGHT - TOP - BOTTOM), 1)

    parts = [f'<text x="{LEFT}" y="18" font-weight="600">{escape(title)}</text>']
    for value, label in x_ticks:
        h, v = place(value, y_ticks[0][0])
        parts.append(f'<text x="{h}" y="{v + 16}" text-anchor="middle">{escape(label)}</text>')
    for value, label in y_ticks:
        h, v = place(x_ticks[0][0], value)
        parts.append(f'<path d="M{h},{v}H{WIDTH - RIGHT}" stroke="{GREY}" stroke-opacity=".3"/>')
        parts.append(f'<text x="{h - 6}" y="{v + 4}" text-anchor="end">{escape(label)}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x)}</text>')
    turn = f"translate(13,{(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)"
    parts.append(f'<text transform="{turn}" text-anchor="middle">{escape(y)}</text>')
    for line in lines:
        points = [place(a, b) for a, b in zip(line.x, line.y, strict=True)]
        drawn, dash = " ".join(f"{h},{v}" for h, v in points), ' stroke-dasharray="5 3"' if line.dashed else ""
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{line.colour}" stroke-width="1.8"{dash}/>')
        parts += [f'<circle cx="{h}" cy="{v}" r="3" fill="{line.colour}"/>' for h, v in points if log]
    return "\n".join(parts)


def page(panels: Sequence[str], legend: Sequence[Line]) -> str:
    """The panels in two columns over a legend, on white, so that it reads on dark pages too."""
    rows, per_row = -(-len(panels) // 2), 4
    width, below = 2 * WIDTH, rows * HEIGHT
    height = below + 24 * -(-len(legend) // per_row) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="11" fill="#1c2024">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for number, drawn in enumerate(panels):
        parts.append(f'<g transform="translate({number % 2 * WIDTH},{number // 2 * HEIGHT})">\n{drawn}\n</g>')
    for number, line in enumerate(legend):
        h, v = 20 + number % per_row * ((width - 20) // per_row), below + 12 + 24 * (number // per_row)
        dash = ' stroke-dasharray="5 3"' if line.dashed else ""
        parts.append(f'<path d="M{h},{v}h22" stroke="{line.colour}" stroke-width="2.5"{dash}/>')
        parts.append(f'<text x="{h + 28}" y="{v + 4}">{escape(line.name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def curve() -> None:
    """Gains over the epoch against the same pairs in random batches: hardness and InfoNCE, a row a collection."""
    results = json.loads((RESULTS / "batch_curve.json").read_text())
    panels: list[str] = []
    legend: list[Line] = []
    for name, found in results.items():
        for measure, what, step in (("hardness_gain", "hardness", 0.05), ("loss_gain", "InfoNCE", 0.25)):
            legend = []
            for variant, of in found["variants"].items():
                parts = len(of[measure])
                x = [100 * (k + 0.5) / parts for k in range(parts)]
                colour = COLOUR_OF[variant.removesuffix(", isolated first")]
                legend.append(Line(variant, x, of[measure], colour, "isolated" in variant))
            top = max(max(line.y) for line in legend)
            y_ticks = [(k * step, f"{k * step:.2f}") for k in range(-1, math.ceil(top / step) + 1)]
            x_ticks = [(v, f"{v} %") for v in (0, 25, 50, 75, 100)]
            axes = {"x": "of the epoch, HOBIT in the order of building", "y": f"{what} less the same pairs' at random"}
            panels.append(panel(f"{name}, {found['pairs']:,} pairs: {what}", legend, ticks=(x_ticks, y_ticks), **axes))
    (DOCS / "batches-curve.svg").write_text(page(panels, legend), encoding="utf-8")


def growth() -> None:
    """Seconds of the processor against pairs, beside N and N²; memory beside the mapped vectors."""
    found = [of for key, of in json.loads((RESULTS / "batch.json").read_text()).items() if key.startswith("growth-")]
    found = sorted((of for of in found if "gib_beside" in of), key=lambda of: of["rows"])
    if len(found) < 2:
        return
    x = [of["rows"] for of in found]
    time = Line("HOBIT with cells", x, [of["cpu_seconds"] for of in found], COLOURS[0])
    linear = Line("N", x, [time.y[0] * n / x[0] for n in x], GREY, True)
    power = Line("N^1.5", x, [time.y[0] * (n / x[0]) ** 1.5 for n in x], COLOURS[4], True)
    low, high = math.floor(math.log10(min(time.y))), math.ceil(math.log10(max(*time.y, *power.y)))
    y_ticks = [(10.0**k, f"{10.0**k:g}") for k in range(low, high + 1)]
    x_ticks = [(n, f"{n / 1000:,.0f}k") for n in x]
    left = panel(
        "time", [linear, power, time], x="pairs", y="CPU seconds, one thread", ticks=(x_ticks, y_ticks), log=True
    )
    memory = Line("beside the vectors", x, [of["gib_beside"] for of in found], COLOURS[0])
    mapped = Line("vectors, mapped", x, [of["gib_mapped"] for of in found], GREY, True)
    low = math.floor(math.log10(min(memory.y)))
    high = math.ceil(math.log10(max(mapped.y)))
    y_ticks = [(10.0**k, f"{10.0**k:g}") for k in range(low, high + 1)]
    right = panel("memory", [mapped, memory], x="pairs", y="GiB", ticks=(x_ticks, y_ticks), log=True)
    legend = [time, linear, power, Line("memory of the vectors", (), (), GREY, True)]
    (DOCS / "batches-growth.svg").write_text(page([left, right], legend), encoding="utf-8")


def main() -> None:
    curve()
    growth()


if __name__ == "__main__":
    main()
