"""The page of a comparison: verdict, what to be careful about, results, figures, circumstances.

Why: the question "which allocator serves this program best?" is answered in the first lines; all
that supports the answer follows in the order in which a doubting reader asks for it.
Refuses to: word a number anew. The sentences are the terminal's (render.py).
"""

import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tsmlab import render
from tsmlab.metrics import TIME
from tsmlab.report.figures import of_comparison
from tsmlab.report.pages import common
from tsmlab.report.tables import DataTable
from tsmlab.results import Comparison
from tsmlab.stats import Verdict
from tsmlab.tables import ROOMY
from tsmlab.text import shortened, slug
from tsmlab.wording import change, change_interval, rounds, share


def report(comparison: Comparison) -> common.Report:
    """The whole report of a comparison."""
    command = " ".join(shlex.join(comparison.command).split())
    program = Path(comparison.command[0]).name or "program"
    figures = list(of_comparison.figures(comparison, of_comparison.look_of(comparison)))
    verdict = render.verdict_lines(comparison)
    use_it = dict(verdict).get("use it", "")
    is_command = comparison.analysis.recommended not in (None, comparison.reference)
    sentences = [
        (common.capital(label), text)
        for label, text in verdict
        if not (label == "use it" and is_command)
    ]
    count = len(comparison.allocators)
    page: dict[str, Any] = {
        "title": f"{shortened(program, 40)}: {count} allocators compared",
        "kind": "comparison",
        "kicker": f"Which of {count} allocators serves this program best?",
        "heading": shortened(command, 140),
        "tiles": tiles(comparison),
        "verdict": sentences or [("Verdict", "No allocator could be ranked.")],
        "use_it": use_it if is_command else "",
        "extent": [" · ".join(render.heading(comparison)[1:])],
        "troubles": comparison.warnings,
        "failures": render.failed_lines(comparison),
        "table": results_table(comparison),
        "legend": render.legend(comparison, render.ranked_rows(comparison), ROOMY),
        "figures": figures,
        **common.circumstances(comparison, comparison.allocators, asdict(comparison.settings)),
        "command": shlex.join(comparison.command),
        "reading": "reading-comparison.html",
        "reference": comparison.reference,
        "margin": share(comparison.settings.margin),
        "contents": [
            ("verdict", "Verdict"),
            ("results", "Results"),
            *((f"s-{figure.name}", figure.title) for figure in figures),
            *common.LAST_CONTENTS,
        ],
    }
    return common.Report(
        name=slug(f"compare-{program}"),
        title=shortened(command, 100),
        summary="; ".join(f"{label.lower()}: {text}" for label, text in sentences[:2]),
        template="comparison.html",
        page=page,
        figures=figures,
        markdown=render.markdown(comparison),
        csv=render.to_csv(comparison),
        data=asdict(comparison),
        thin=thin,
    )


def thin(data: dict[str, Any]) -> None:
    for sample in data["samples"]:
        sample["measurement"].pop("series", None)


def tiles(comparison: Comparison) -> list[common.Tile]:
    """The leaders, by their distance to the reference, and how fine the measurement is."""
    found = []
    for key, leaders in comparison.analysis.leaders.items():
        spec = comparison.metric(key)
        row = next(r for r in comparison.analysis.rows if r.allocator == leaders.best)
        summary = row.metrics[key]
        if summary.ratio is None:
            number, note = "none better", f"than {comparison.reference}, the reference"
            mark = "muted"
        else:
            number = change(summary.ratio.ratio)
            interval = change_interval(summary.ratio)
            verdict = summary.verdict.value if summary.verdict else "no verdict"
            note = f"{interval} against {comparison.reference}: {verdict}"
            mark = "better" if summary.verdict is Verdict.BETTER else "muted"
        label = "Time" if key == TIME else common.capital(spec.name)
        found.append(common.Tile(f"{label}: {leaders.best}", number, note, mark))
    floor = comparison.analysis.noise_floors.get(comparison.analysis.primary_metric)
    if floor is not None:
        found.append(
            common.Tile(
                "Noise floor",
                f"±{share(floor)}",
                f"{comparison.reference} against itself, {rounds(comparison.analysis.rounds)}",
            )
        )
    return found


def results_table(comparison: Comparison) -> DataTable:
    """The terminal's table, with all columns; the allocator heads its row."""
    rows = render.ranked_rows(comparison)
    columns = render.table_columns(comparison, rows, ROOMY)
    rank, allocator, *others = columns
    ordered = [allocator, replace(rank, header="rank"), *others]
    best = {row.allocator for row in rows if row.rank == 1}
    marks = [
        "reference"
        if row.allocator == comparison.reference
        else "best"
        if row.allocator in best
        else ""
        for row in rows
    ]
    caption = (
        f"{rounds(comparison.analysis.rounds)}; ratios to {comparison.reference} with 95 % "
        "confidence intervals"
    )
    return common.data_table(caption, ordered, marks=marks)
