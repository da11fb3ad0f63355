#!/usr/bin/env python3
"""Draws the geometric means of a published table of `tsmalloc bench` as a chart.

    .venv/bin/python dev/standing.py results/DATE/workloads.md

Why: the chart must show the published figures, so it is made of the table itself, by the forest
plot of the lab's reports. standing.svg, written beside it, follows the page's light or dark theme.
Refuses to: compute a figure. A table without its lines of geometric means is an error.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tsmlab.report.figures import canvas, ratios
from tsmlab.report.tables import DataTable
from tsmlab.report.theme import TONES, Style

TITLE = "Geometric means over the workloads of the ratios to the best peer of each"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
# A ratio, then its interval, or the farther end of it in percent, which is drawn on both sides.
MEAN = re.compile(r"([\d.]+)(?: \[([\d.]+), ([\d.]+)\]| ±([\d.]+) %)")


def ratio(name: str, cell: str) -> ratios.Ratio:
    match = MEAN.match(cell)
    if match is None:
        sys.exit(f"standing.py: {name}: no mean with an interval in {cell!r}")
    value, factor = float(match[1]), 1 + float(match[4] or 0) / 100
    low, high = float(match[2] or value / factor), float(match[3] or value * factor)
    return ratios.Ratio(name, value, low, high, True)


def read(page: str) -> tuple[list[ratios.Ratio], list[ratios.Ratio]]:
    """The means of time and of memory, the best first."""
    lines = [line.strip("|") for line in page.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    means = next((at for at, row in enumerate(rows) if row[0] == "geometric mean"), 0)
    heads = next((row for row in reversed(rows[:means]) if row[0] == "workload"), None)
    if heads is None:
        sys.exit("standing.py: this file has no table of workloads with lines of geometric means")
    columns = [at for at, head in enumerate(heads) if at > 2 and not head.endswith("goal")]
    time, memory = (
        sorted((ratio(heads[at].split()[0], row[at]) for at in columns), key=lambda r: r.ratio)
        for row in rows[means : means + 2]
    )
    return time, memory


def image(time: list[ratios.Ratio], memory: list[ratios.Ratio]) -> str:
    names = [each.name for each in time]
    styles = dict.fromkeys(names, Style("blue", "o"))
    rows = ratios.Rows(names, frozenset({"tsmalloc"}), "", styles, plain=True)
    panels = [
        ratios.Panel("Time to the fastest peer of each workload", "faster", "slower", time, None),
        ratios.Panel("Peak memory to the smallest peer", "smaller", "larger", memory, None),
    ]
    words = "; ".join(f"{r.name}: {r.ratio} [{r.low:.2f}, {r.high:.2f}]" for r in time)
    table = DataTable("", [], [])
    parts = ratios.panels(rows, panels)
    plot = canvas.render("standing", TITLE, f"Time: {words}", "", table, parts, across=2).svg
    paper = '<rect width="100%" height="100%" fill="var(--paper)"/>'
    dark = ""
    for name, tone in TONES.items():
        if f"var(--{name})" not in paper + plot:
            continue
        # Plain colours, for viewers without style sheets; a browser in the dark replaces them.
        paper, plot = (text.replace(f"var(--{name})", tone.light) for text in (paper, plot))
        for key in ("fill", "stroke"):
            dark += f'[{key}="{tone.light}"]{{{key}:{tone.dark}}}'
    style = f"@media (prefers-color-scheme:dark){{{dark}}}"
    return re.sub(
        "(<svg [^>]*)>", rf'\1 font-family="{FONT}"><style>{style}</style>{paper}', plot, count=1
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
