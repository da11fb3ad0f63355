"""The page of a comparison: verdict, what to be careful about, results, figures, circumstances.

Why: the question "which allocator serves this program best?" is answered in the first lines; all
that supports the answer follows in the order in which a doubting reader asks for it.
Refuses to: word a number anew. The sentences are the terminal's (render.py).
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tsmlab import render
from tsmlab.definition import Reported
from tsmlab.findings import unit_of
from tsmlab.metrics import TIME
from tsmlab.report.figures import of_comparison, sweeps
from tsmlab.report.pages import common
from tsmlab.report.tables import Cell, Column, DataTable
from tsmlab.results import Comparison
from tsmlab.stats import Verdict
from tsmlab.sweep import describe
from tsmlab.tables import ROOMY
from tsmlab.text import shortened, slug
from tsmlab.wording import change, change_interval, quantity, rounds, share


def report(comparison: Comparison) -> common.Report:
    """The whole report of a comparison, or of an experiment."""
    asked = comparison.experiment
    command = " ".join(shlex.join(comparison.command).split())
    program = Path(comparison.command[0]).name or "program"
    look = of_comparison.look_of(comparison)
    figures = [*sweeps.figures(comparison, look), *of_comparison.figures(comparison, look)]
    details = render.verdict_lines(comparison) if asked is None else []
    count = len(comparison.allocators)
    tables = _point_tables(comparison)
    reported = [] if asked is None else [(r, _reported_table(r)) for r in asked.reported]
    causes = cause_tables(comparison)
    page: dict[str, Any] = {
        "title": asked.title if asked else f"{shortened(program, 40)}: {count} allocators compared",
        "kind": "experiment" if asked else "comparison",
        "kicker": asked.question
        if asked
        else f"Which of {count} allocators serves this program best?",
        "heading": asked.title if asked else shortened(command, 140),
        "is_command": asked is None,
        "tiles": [] if asked else tiles(comparison),
        "verdict": [
            *_answers(comparison),
            *((common.capital(label), text) for label, text in details if label != "use it"),
        ],
        "use_it": dict(details).get("use it", ""),
        "extent": [" · ".join(render.heading(comparison)[1:])],
        "answers": asked.answers if asked else "",
        "source": asked.source if asked else "",
        "troubles": comparison.warnings,
        "failures": render.failed_lines(comparison),
        "table": results_table(comparison),
        "legend": render.legend(comparison, render.ranked_rows(comparison), ROOMY),
        "tables": tables,
        "reported": reported,
        "causes": causes,
        "cause_notes": sorted({note for each in comparison.causes for note in each.notes}),
        "figures": figures,
        **common.circumstances(comparison, comparison.allocators, _settings(comparison)),
        "command": shlex.join(comparison.command),
        "reading": "reading-comparison.html",
        "reference": comparison.reference,
        "margin": share(comparison.settings.margin),
        "contents": [
            ("verdict", "Verdict"),
            *([("points", "By point")] if tables else []),
            ("results", "All points together" if tables else "Results"),
            *((f"s-{figure.name}", figure.title) for figure in figures),
            *([("causes", "Causes")] if causes else []),
            *([("reported", "The reports' own figures")] if reported else []),
            *common.LAST_CONTENTS,
        ],
    }
    return common.Report(
        name=slug(asked.name if asked else f"compare-{program}"),
        title=asked.title if asked else shortened(command, 100),
        summary=render.answers(comparison)[0],
        template="comparison.html",
        page=page,
        figures=figures,
        markdown=render.markdown(comparison),
        csv=render.to_csv(comparison),
        data=asdict(comparison),
        thin=thin,
    )


def _answers(comparison: Comparison) -> list[tuple[str, str]]:
    """Labels and sentences: the recommendation, and the verdict of each question."""
    found = render.finding_lines(comparison)
    if comparison.experiment is not None:
        return found or [("Verdict", "No analysis is asked for.")]
    if not render.ranked_rows(comparison):
        return [("Verdict", "No allocator could be ranked.")]
    return [("Recommendation", render.recommendation(comparison)), *found]


def _settings(comparison: Comparison) -> dict[str, Any]:
    swept = {p.name: ", ".join(map(str, p.values)) for p in comparison.parameters}
    return {**asdict(comparison.settings), **swept}


def _point_tables(comparison: Comparison) -> list[DataTable]:
    return [common.data_table(title, columns) for title, columns in render.point_tables(comparison)]


def _reported_table(reported: Reported) -> DataTable:
    name = reported.report  # reports have letters; whatever is longer says itself what it is
    caption = f"Report {name}" if len(name) == 1 else name
    return common.data_table(caption, render.reported_columns(reported))


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
    best = set() if len(best) == len(rows) else best  # all alike
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


# --- causes ---------------------------------------------------------------------------------------


MOST_COLUMNS = 14
# Counts that differ by less than this share say nothing about the allocators.
LEAST_DIFFERENCE = 0.02
# The order in which a reader looks for causes; names that are not here come after these.
_FIRST = (
    *("growth_calls", "growth_bytes", "brk_calls", "mmap_calls", "munmap_calls", "madvise_calls"),
    *("futex_calls", "futex_errors", "futex_wait_ns", "lock_waits", "lock_wait_ns", "retries"),
    *("searches", "blocks_searched", "foreign_frees", "reused_bytes", "peak_live_bytes"),
    *("free_blocks_at_snapshot", "free_bytes_at_snapshot", "segment_bytes_at_snapshot"),
)


def cause_tables(comparison: Comparison) -> list[DataTable]:
    """Of dozens of counts those that tell the allocators apart, since a table of all hides the two
    that explain the result. One for each point where anything was counted, the last one's first."""
    tables = []
    for point in sorted({each.point for each in comparison.causes}, reverse=True):
        counts = {c.allocator: c.counts for c in comparison.causes if c.point == point and c.counts}
        names = telling(list(counts.values()))
        if names:
            where = describe(comparison.points[point].values) if comparison.points else ""
            columns = [Column("allocator", left=True), *(Column(_title(n), hint=n) for n in names)]
            rows = [[Cell(a), *(_count(own.get(n), n) for n in names)] for a, own in counts.items()]
            at = f" at {where}" if where else ""
            caption = f"Counted{at}, in runs that were not timed"
            tables.append(DataTable(caption, columns, rows))
    return tables


def telling(counts: Sequence[Mapping[str, float]]) -> list[str]:
    """The names of counts that differ between allocators, the most sought ones first."""
    names = {name for each in counts for name in each}
    differing = [name for name in sorted(names) if _differs([c.get(name) for c in counts])]
    order = {name: place for place, name in enumerate(_FIRST)}
    return sorted(differing, key=lambda name: order.get(name, len(order)))[:MOST_COLUMNS]


def _differs(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    if not known or max(known) == 0.0:
        return False
    return len(known) == 1 or max(known) - min(known) > LEAST_DIFFERENCE * max(known)


def _title(name: str) -> str:
    return name.removesuffix("_ns").replace("_", " ")


def _count(value: float | None, name: str) -> Cell:
    if value is None:
        return Cell("", "muted")
    if name.endswith("_ns"):
        return Cell(quantity(value / 1e9, "seconds"))
    mark = "muted" if value == 0 else ""
    return Cell(quantity(value, unit_of(name)), mark, f"{value:,.0f}")
