#!/usr/bin/env python3
"""Draws the geometric means of a published table of `tsmalloc bench` as a chart.

    .venv/bin/python dev/standing.py results/DATE/workloads.md

standing.svg, written next to the table, follows the page's light or dark theme.
"""

from __future__ import annotations

import math
import re
import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

from tsmlab.report.theme import TONES

TITLE = "Geometric means over the workloads of the ratios to the best peer of each"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
# A ratio, then its interval, or the larger distance to its ends in percent, which is drawn on both
# sides.
MEAN = re.compile(r"([\d.]+)(?: \[([\d.]+), ([\d.]+)\]| ±([\d.]+) ?%)")
WIDTH, NAMES, VALUES, HEAD, ROW = 420, 90, 40, 44, 21
TICKS = (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)


class Ratio(NamedTuple):
    name: str
    ratio: float
    low: float
    high: float


def ratio(name: str, cell: str) -> Ratio:
    match = MEAN.match(cell)
    if match is None:
        sys.exit(f"standing.py: {name}: no mean with an interval in {cell!r}")
    value, factor = float(match[1]), 1 + float(match[4] or 0) / 100
    return Ratio(name, value, float(match[2] or value / factor), float(match[3] or value * factor))


def read(page: str) -> tuple[list[Ratio], list[Ratio]]:
    """The means of time and of memory, best first."""
    lines = [line.strip("|") for line in page.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    means = next((at for at, row in enumerate(rows) if row[0] == "geometric mean"), 0)
    header_row = next((row for row in reversed(rows[:means]) if row[0] == "workload"), None)
    if header_row is None:
        sys.exit("standing.py: no table of workloads with geometric means in this file")
    columns = [at for at, head in enumerate(header_row) if at > 2 and not head.endswith("goal")]
    time, memory = (
        sorted((ratio(header_row[at].split()[0], row[at]) for at in columns), key=lambda r: r.ratio)
        for row in rows[means : means + 2]
    )
    return time, memory


def panel(found: list[Ratio], title: str, left: int) -> str:
    """A row for each mean with its interval, on a logarithmic axis."""
    low, high = min(1.0, *(r.low for r in found)), max(r.high for r in found)
    scale = (WIDTH - NAMES - VALUES) / math.log(high / low * 1.05)

    def x(value: float) -> str:
        return f"{left + NAMES + scale * math.log(value / low * 1.025):.1f}"

    bottom = HEAD + ROW * len(found)
    parts = [f'<text x="{left}" y="14" fill="ink" font-weight="600">{escape(title)}</text>']
    for tick in TICKS:
        if low <= tick <= high:
            colour = "soft" if tick == 1.0 else "grid"
            parts.append(f'<path d="M{x(tick)} 32V{bottom}" stroke="{colour}"/>')
            middle = f'x="{x(tick)}" y="{bottom + 16}" text-anchor="middle"'
            parts.append(f'<text {middle} fill="soft">{tick:g}</text>')
    for place, each in enumerate(found):
        y, ours = HEAD + ROW * place, each.name == "tsmalloc"
        colour, ink = ("blue", "ink") if ours else ("rest", "soft")
        parts.append(
            f'<text x="{left}" y="{y + 4}" fill="{ink}">{escape(each.name)}</text>'
            f'<path d="M{x(each.low)} {y}H{x(each.high)}" stroke="{colour}" stroke-width="2.2"/>'
            f'<circle cx="{x(each.ratio)}" cy="{y}" r="{4 if ours else 3}" fill="{colour}"/>'
            f'<text x="{left + WIDTH}" y="{y + 4}" text-anchor="end" fill="{ink}">'
            f"{each.ratio:.2f}</text>"
        )
    return "".join(parts)


def image(time: list[Ratio], memory: list[Ratio]) -> str:
    words = "; ".join(f"{r.name}: {r.ratio} [{r.low:.2f}, {r.high:.2f}]" for r in time)
    gap, height = 24, HEAD + ROW * max(len(time), len(memory)) + 24
    drawn = '<rect x="-8" width="100%" height="100%" fill="paper"/>'
    drawn += panel(time, "Time to the fastest peer of each workload", 0)
    drawn += panel(memory, "Peak memory to the smallest peer", WIDTH + gap)
    dark = ""
    for name, tone in TONES.items():
        for key in ("fill", "stroke"):
            if f'{key}="{name}"' in drawn:
                # Plain colours, for viewers without style sheets; the dark ones replace them.
                drawn = drawn.replace(f'{key}="{name}"', f'{key}="{tone.light}"')
                dark += f'[{key}="{tone.light}"]{{{key}:{tone.dark}}}'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {2 * WIDTH + gap + 16} {height}" '
        f'font-size="12" font-family="{FONT}" role="img"><title>{TITLE}</title>'
        f"<desc>Time: {escape(words)}</desc>"
        f"<style>@media (prefers-color-scheme:dark){{{dark}}}</style>{drawn}</svg>"
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    table = Path(sys.argv[1])
    try:
        page = table.read_text(encoding="utf-8")
    except OSError as error:
        sys.exit(f"standing.py: {table}: {error.strerror}")
    drawn = image(*read(page))
    (table.parent / "standing.svg").write_text(drawn + "\n", encoding="utf-8")
