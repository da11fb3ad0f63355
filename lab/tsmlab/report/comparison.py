"""The page of a comparison, of a sweep and of an experiment. The sentences are the terminal's."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from tsmlab import render, series, stats
from tsmlab.allocators import ENGINE
from tsmlab.analysis import logs_by_round
from tsmlab.definition import Reported
from tsmlab.findings import unit_of
from tsmlab.metrics import PEAK_MEMORY, TIME, MetricSpec
from tsmlab.report import charts, parts
from tsmlab.report.charts import Axis, Line, Point, Ratio
from tsmlab.report.page import DataTable, Figure, Page, Section, Text, figure_sections, table_of
from tsmlab.report.theme import Style, emphasised
from tsmlab.results import Comparison, MetricSummary, Row, Sample
from tsmlab.stats import Verdict
from tsmlab.sweep import Parameter, describe
from tsmlab.tables import ROOMY, Cell, Column
from tsmlab.text import shortened, slug
from tsmlab.wording import change, change_in_full, quantity, rounds, share

Styles = Mapping[str, Style]

# More panels than this make a figure too long to look at.
MOST_PANELS = 8
# From this ratio of the largest value to the smallest, an axis is logarithmic.
LOG_FROM = 10.0


def page(comparison: Comparison) -> Page:
    asked = comparison.experiment
    command = " ".join(shlex.join(comparison.command).split())
    program = Path(comparison.command[0]).name or "program"
    count = len(comparison.allocators)
    # What could be told comes first.
    answer, *others = sorted(render.answers(comparison), key=lambda a: a.startswith("Cannot"))
    details = [] if asked else render.verdict_lines(comparison)
    facts = [(parts.capital(label), text) for label, text in details if label != "use it"]
    return Page(
        kind="experiment" if asked else "comparison",
        name=slug(asked.name if asked else f"compare-{program}"),
        title=asked.title if asked else shortened(command, 140),
        window_title=asked.title if asked else f"{shortened(program, 40)}: {count} allocators",
        is_command=asked is None,
        question=asked.question if asked else f"Which of {count} allocators is best here?",
        answer=answer,
        facts=[*((label, text) for label, _, text in (o.partition(": ") for o in others)), *facts],
        use=dict(details).get("use it", ""),
        warnings=parts.warned(comparison.warnings),
        failures=render.failed_lines(comparison),
        extent=" · ".join(render.heading(comparison)[1:]),
        sections=list(_sections(comparison)),
        footer=parts.footer(comparison),
        files={"results.md": render.markdown(comparison), "runs.csv": render.to_csv(comparison)},
    )


def _sections(comparison: Comparison) -> Iterator[Section]:
    asked = comparison.experiment
    if asked:
        about = [Text(asked.answers)] if asked.answers else []
        about += [Text(f"Source: {asked.source}", note=True)] if asked.source else []
        if about:
            yield Section("The expected answer", about, anchor="expected")
    by_point = [DataTable(*each) for each in render.point_tables(comparison)]
    if by_point:
        yield Section("By point", by_point, anchor="points")
    legend = render.legend(comparison, render.ranked_rows(comparison), ROOMY)
    title = "All points together" if by_point else "Results"
    notes = [Text(line, note=True) for line in legend]
    yield Section(title, [results_table(comparison), *notes], anchor="results")
    yield from figure_sections([*sweep_figures(comparison), *figures(comparison)])
    if causes := cause_tables(comparison):
        notes = [
            Text(note, note=True)
            for note in sorted({n for c in comparison.causes for n in c.notes})
        ]
        yield Section("Causes", [*causes, *notes])
    if asked and asked.reported:
        shown = [part for each in asked.reported for part in _reported(each)]
        note = "As printed, measured years ago on other machines; never mixed with ours."
        yield Section("The reports' own figures", [Text(note, note=True), *shown],
                      folded=True, anchor="reported")  # fmt: skip
    swept = {p.name: ", ".join(map(str, p.values)) for p in comparison.parameters}
    settings = {**asdict(comparison.settings), **swept}
    yield from parts.circumstances(
        comparison,
        comparison.allocators,
        settings,
        terms(comparison),
        shlex.join(comparison.command),
    )


def _reported(reported: Reported) -> Iterator[DataTable | Text]:
    name = reported.report  # reports have letters; whatever is longer says itself what it is
    caption = f"Report {name}" if len(name) == 1 else name
    yield DataTable(caption, render.reported_columns(reported))
    yield Text(f"Machine: {reported.machine}. {reported.note}".rstrip(), note=True)


def terms(comparison: Comparison) -> str:
    reference, margin = comparison.reference, share(comparison.settings.margin)
    found = f"""\
Rounds: Each round ran every allocator once, in random order, so that what slows a whole round
  slows all alike; {reference} ran twice.
Ratio: The geometric mean, over the rounds, of an allocator's value divided by {reference}'s in
  the same round. -10% is a tenth less; from twice on it is written as 2.00x.
Interval: 95% confidence: if the experiment were repeated many times, about 95 of 100 such
  intervals would contain the true ratio.
Verdict: Better or worse: the whole interval lies beyond the margin of {margin} and the noise
  floor, after a correction for comparing many (Holm). Equal: it lies within the margin.
  Unresolved: neither, so far.
Noise floor: How much {reference} differs from itself when it is measured twice in each round.
Rank: Equal ranks are statistical ties.
Peak memory: The largest resident size of any one process of the program, by the kernel's count.
Front: The allocators that no other beats in both time and memory by more than the margin.
"""
    if comparison.points:
        found += (
            "Points: Each point is judged by itself, with a correction for their number; results "
            "over all points are geometric means.\n"
        )
    return found


def results_table(comparison: Comparison) -> DataTable:
    """The terminal's table, with all columns; the allocator heads its row."""
    rows = render.ranked_rows(comparison)
    rank, allocator, *others = render.table_columns(comparison, rows, ROOMY)
    best = {row.allocator for row in rows if row.rank == 1}
    best = set() if len(best) == len(rows) else best  # all alike
    marks = ["reference" if row.allocator == comparison.reference else
             "best" if row.allocator in best else "" for row in rows]  # fmt: skip
    caption = (
        f"{rounds(comparison.analysis.rounds)}; ratios to {comparison.reference} with 95% "
        "confidence intervals"
    )
    columns = [allocator, replace(rank, header="rank"), *others]
    return DataTable(caption, columns, marks=marks)


# --- figures --------------------------------------------------------------------------------------


def styles_of(comparison: Comparison) -> Styles:
    """A colour for each; of many, only for those that matter most."""
    analysis = comparison.analysis
    wanted = [ENGINE, comparison.reference, analysis.recommended or comparison.reference]
    wanted += [leaders.best for leaders in analysis.leaders.values()]
    wanted += [info.name for info in comparison.allocators if info.family == "user"]
    wanted += [info.name for info in comparison.allocators if info.family != "tsmalloc"]
    wanted += [row.allocator for row in analysis.rows]
    return emphasised([info.name for info in comparison.allocators], wanted)


def figures(comparison: Comparison) -> Iterator[Figure]:
    """All that the results have data for; of the runs of a sweep together, only their ratios mean
    something."""
    if all(row.rank is None for row in comparison.analysis.rows):
        return
    styles = styles_of(comparison)
    whole = (trade_off, memory_over_time, run_order, distribution)
    for make in (ratios, *(() if comparison.points else whole)):
        if (figure := make(comparison, styles)) is not None:
            yield figure


def ratios(comparison: Comparison, styles: Styles) -> Figure | None:
    """A panel for each judged metric, the ranking one first."""
    rows = render.ranked_rows(comparison)
    specs = [spec for spec in comparison.metrics if spec.judged]
    specs.sort(key=lambda spec: spec.key != comparison.analysis.primary_metric)
    panels = [panel for spec in specs if (panel := _ratio_panel(comparison, spec, rows, styles))]
    if not panels:
        return None
    heads = ["allocator"]
    for spec in specs:
        heads += [f"{spec.name}, ratio", "95% interval", "p adjusted"]
    cells = [[row.allocator, *(t for s in specs for t in _ratio_texts(row, s))] for row in rows]
    return Figure(
        "ratios",
        f"Ratios to {comparison.reference}",
        f"Geometric means over {rounds(comparison.analysis.rounds)} with 95% intervals; a hollow "
        "point is unresolved. Differences within the shaded band are below the margin or the "
        "noise floor, and do not count.",
        panels,
        table_of("Ratios, as drawn", heads, cells),
    )


def _ratio_panel(
    comparison: Comparison, spec: MetricSpec, rows: Sequence[Row], styles: Styles
) -> dict[str, Any] | None:
    found = []
    for row in rows:
        summary = row.metrics.get(spec.key)
        if row.allocator == comparison.reference:
            found.append(Ratio(row.allocator, 1.0, said="the reference"))
        elif summary and summary.ratio:
            estimate = summary.ratio
            verdict = f" ({summary.verdict.value})" if summary.verdict else ""
            found.append(Ratio(row.allocator, estimate.ratio, estimate.low, estimate.high,
                               f"{change_in_full(estimate)}{verdict}",
                               resolved=summary.verdict is not Verdict.UNRESOLVED))  # fmt: skip
    if len(found) < 2:
        return None
    floor = comparison.analysis.noise_floors.get(spec.key)
    reach = 1.0 + max(comparison.settings.margin, floor or 0.0)
    good, bad = {TIME: ("faster", "slower"), PEAK_MEMORY: ("smaller", "larger")}.get(
        spec.key, ("worse", "better") if spec.higher_is_better else ("better", "worse")
    )
    title = f"{spec.name} against {comparison.reference} (← {good}, {bad} →)"
    names = [row.allocator for row in rows]
    return charts.ratios(found, names, styles, title, (1.0 / reach, reach))


def _ratio_texts(row: Row, spec: MetricSpec) -> list[str]:
    summary = row.metrics.get(spec.key)
    if summary is None or summary.ratio is None:
        return ["", "", ""]
    estimate = summary.ratio
    has_interval = estimate.low is not None and estimate.high is not None
    interval = f"{estimate.low:.4f} to {estimate.high:.4f}" if has_interval else "none"
    adjusted = "" if summary.p_adjusted is None else f"{summary.p_adjusted:.2g}"
    return [f"{estimate.ratio:.4f}", interval, adjusted]


def trade_off(comparison: Comparison, styles: Styles) -> Figure | None:
    """Ratios of memory and of the primary metric to the reference, by which the front is judged."""
    primary = comparison.metric(comparison.analysis.primary_metric)
    memory = comparison.metric(PEAK_MEMORY)
    points = []
    for row in render.ranked_rows(comparison):
        x, y = (_triple(row, spec.key, comparison.reference) for spec in (memory, primary))
        if x and y:
            points.append(Point(row.allocator, x, y, styles[row.allocator], row.pareto))
    if len(points) < 2 or primary.key == memory.key:
        return None
    cells = [[p.name, change(p.y[0] or 1.0), change(p.x[0] or 1.0), "yes" if p.front else ""]
             for p in points]  # fmt: skip
    heads = ("allocator", primary.name, memory.name, Column("on the front", left=True))
    direction = "up" if primary.higher_is_better else "down"
    return Figure(
        "tradeoff",
        f"{parts.capital(primary.name)} against memory",
        f"Ratios to {comparison.reference} with 95% intervals; better is {direction} and to the "
        "left. Filled points are on the front: no other allocator is better in both by more than "
        "the margin. Beyond the dashed line, one of them is better in both.",
        [charts.points(points, memory.name, primary.name, primary.higher_is_better)],
        table_of(f"Ratios to {comparison.reference}, as drawn", heads, cells),
        charts.legend({p.name: p.style for p in points}),
    )


def _triple(row: Row, key: str, reference: str) -> tuple[float | None, ...] | None:
    summary: MetricSummary | None = row.metrics.get(key)
    if row.allocator == reference:
        return (1.0, None, None) if summary else None
    estimate = summary.ratio if summary else None
    return (estimate.ratio, estimate.low, estimate.high) if estimate else None


def memory_over_time(comparison: Comparison, styles: Styles) -> Figure | None:
    """A curve for each allocator whose typical run was sampled."""
    curves = []
    for row in render.ranked_rows(comparison):
        sample = series.typical_run(comparison, row.allocator, TIME)
        if sample is not None:
            points = series.thinned(series.of_sample(sample))
            curves.append(Line(row.allocator, points, styles[row.allocator]))
    if not curves:
        return None
    cells = []
    for curve in curves:
        ys = [y for _, y in curve.points]
        sizes = (max(ys), series.mean_bytes(curve.points), ys[-1])
        duration = quantity(curve.points[-1][0], "seconds")
        cells.append([curve.name, duration, *(quantity(size, "bytes") for size in sizes)])
    heads = ("allocator", "run", "highest", "mean over time", "at the end")
    return Figure(
        "memory",
        "Memory over time",
        "Resident memory of the whole process tree in one run of each allocator: the one whose "
        "time is nearest to its median.",
        [charts.lines(curves, Axis("time since the start", "seconds", zero=True),
                      Axis("resident memory", "bytes", zero=True))],
        table_of("Memory of the runs shown", heads, cells),
        charts.legend({curve.name: curve.style for curve in curves}),
    )  # fmt: skip


def measured(comparison: Comparison, spec: MetricSpec) -> list[tuple[int, Sample, float]]:
    """All measured runs that did not fail, in their order: number, run, and its value over the
    median of its allocator, less one."""
    medians = {
        row.allocator: row.metrics[spec.key].median
        for row in comparison.analysis.rows
        if spec.key in row.metrics
    }
    runs = [sample for sample in comparison.samples if sample.phase == "measured"]
    return [
        (number, sample, sample.values[spec.key] / medians[sample.allocator] - 1.0)
        for number, sample in enumerate(runs, start=1)
        if sample.failure is None and spec.key in sample.values and medians.get(sample.allocator)
    ]


def run_order(comparison: Comparison, styles: Styles) -> Figure | None:
    runs = measured(comparison, comparison.metric(TIME))
    if len(runs) < 2:
        return None
    by_round: dict[int, list[tuple[int, float]]] = {}
    for number, sample, deviation in runs:
        by_round.setdefault(sample.round, []).append((number, deviation))
    medians = [tuple(map(float, (np.mean([n for n, _ in own]), np.median([d for _, d in own]))))
               for own in by_round.values()]  # fmt: skip
    cells = [
        [str(number), f"{median[1] * 100:+.2f}%", str(len(own))]
        for (number, own), median in zip(by_round.items(), medians, strict=True)
    ]
    shown = [(sample.allocator, float(number), deviation) for number, sample, deviation in runs]
    present = dict.fromkeys(name for name, _, _ in shown)
    own_styles = {name: styles[name] for name in present}
    return Figure(
        "run-order",
        "The runs in their order",
        "Each point is a run, against the median of its own allocator; the line joins the medians "
        "of the rounds. A slope or a step in it is drift of the machine, which pairing takes out "
        "of the ratios.",
        [charts.order(shown, [(x, y) for x, y in medians], own_styles, "time against own median")],
        table_of("Each round against all", ("round", "median deviation", "runs"), cells, left=0),
        charts.legend(own_styles),
    )


def distribution(comparison: Comparison, styles: Styles, key: str = "") -> Figure | None:
    """Of the primary metric, or of another."""
    spec = comparison.metric(key or comparison.analysis.primary_metric)
    rows = [row for row in render.ranked_rows(comparison) if spec.key in row.metrics]
    names = {row.allocator for row in rows}
    runs = [(s.allocator, s.values[spec.key]) for _, s, _ in measured(comparison, spec)
            if s.allocator in names]  # fmt: skip
    if len(runs) < 2:
        return None
    heads = ("allocator", "runs", "lowest", "median", "highest", "MAD")
    cells = []
    for row in rows:
        summary = row.metrics[spec.key]
        values = (summary.minimum, summary.median, summary.maximum, summary.mad)
        texts = [quantity(value, spec.unit) for value in values]
        odd = ", ".join(map(str, summary.outlier_rounds))
        cells.append([row.allocator, str(summary.runs), *texts, odd])
    positive = [value for _, value in runs if value > 0]
    log = len(positive) == len(runs) and max(positive) / min(positive) > LOG_FROM
    medians = {row.allocator: row.metrics[spec.key].median for row in rows}
    return Figure(
        "distribution",
        f"Each run's {spec.name}",
        "A tick for every run that did not fail, outliers included; the thick tick is the median. "
        "Two clusters in one row mean two states of the program or of the machine.",
        [charts.strips(runs, medians, styles, Axis(spec.name, spec.unit, log))],
        table_of(
            f"Distribution of {spec.name}", (*heads, Column("outlier rounds", left=True)), cells
        ),
    )


# --- sweeps ---------------------------------------------------------------------------------------

# A cell's mean with its interval.
Level = tuple[float, float, float]


def sweep_figures(comparison: Comparison) -> Iterator[Figure]:
    """Each metric that the tables have over a parameter, with a line for each allocator."""
    parameter = next((p for p in comparison.parameters if p.is_numeric), None)
    parameter = parameter or next((p for p in comparison.parameters if len(p.values) > 1), None)
    if parameter is not None:
        for spec in render.point_metrics(comparison):
            yield _sweep(comparison, parameter, spec)


def levels_of(comparison: Comparison, spec: MetricSpec) -> dict[tuple[int, str], Level]:
    """The geometric mean over the rounds of each cell without a failed run, and its interval."""
    cells: dict[tuple[int, str], list[Sample]] = {}
    for sample in comparison.samples:
        if sample.phase == "measured":
            cells.setdefault((sample.point, sample.allocator), []).append(sample)
    found = {}
    for (point, name), samples in cells.items():
        logs = list(logs_by_round(samples, name, spec.key).values())
        if not logs or any(sample.failure for sample in samples):
            continue
        middle = low = high = sum(logs) / len(logs)
        if len(logs) > 1:
            _, low, high = stats.mean_interval(stats.as_vector(logs))
        found[point, name] = (math.exp(middle), math.exp(low), math.exp(high))
    return found


def sweep_panels(
    comparison: Comparison, parameter: Parameter, spec: MetricSpec
) -> list[tuple[str, list[Line]]]:
    """The lines of a panel for each combination of the other parameters that has anything."""
    levels, styles = levels_of(comparison, spec), styles_of(comparison)
    grouped: dict[str, list[tuple[float, int]]] = {}
    for index, point in enumerate(comparison.points):
        others = describe({name: v for name, v in point.values.items() if name != parameter.name})
        value = point.values[parameter.name]
        at = float(value) if parameter.is_numeric else float(parameter.values.index(value))
        grouped.setdefault(others, []).append((at, index))
    panels = []
    for title, places in grouped.items():
        drawn = [
            Line(info.name, points, styles[info.name], marked=True)
            for info in comparison.allocators
            if (points := [(at, *levels[index, info.name]) for at, index in sorted(places)
                           if (index, info.name) in levels])
        ]  # fmt: skip
        drawn += [
            Line(curve.allocator, curve.points, styles[curve.allocator], model=True)
            for finding in comparison.findings
            for curve in finding.curves
            if (curve.metric, describe(curve.fixed)) == (spec.key, title)
            and styles[curve.allocator].is_strong
            and curve.points
        ]
        if drawn:
            panels.append((title, drawn))
    return panels


def _sweep(comparison: Comparison, parameter: Parameter, spec: MetricSpec) -> Figure:
    panels = sweep_panels(comparison, parameter, spec)
    shown = panels[:MOST_PANELS]
    laws = " Dotted: the fitted law." if any(line.model for _, p in shown for line in p) else ""
    left_out = len(panels) - len(shown)
    more = f" {left_out} more panels are left out; the table has all points." if left_out else ""
    better = "Higher" if spec.higher_is_better else "Lower"
    title = f"{parts.capital(spec.name)} over {parameter.title}"
    values = parameter.values
    log = parameter.is_numeric and min(values) > 0 and max(values) / min(values) >= LOG_FROM
    names = [] if parameter.is_numeric else list(map(str, values))
    x = Axis(parameter.title, "number", log, names=names)
    y = Axis(spec.name, spec.unit, zero=True)
    levels = levels_of(comparison, spec)

    def cell(index: int, name: str) -> str:
        if (index, name) not in levels:
            return ""
        middle, low, high = (quantity(value, spec.unit) for value in levels[index, name])
        return f"{middle} [{low}, {high}]"

    heads = [describe(point.values) for point in comparison.points]
    rows = [
        [info.name, *(cell(index, info.name) for index in range(len(heads)))]
        for info in comparison.allocators
    ]
    return Figure(
        f"sweep-{spec.key.replace('_', '-')}",
        title,
        f"{better} is better. Geometric means over the rounds with 95% intervals.{laws}{more}",
        [charts.lines(own, x, y, panel) for panel, own in shown],
        table_of(f"{title}, as drawn", ["allocator", *heads], rows),
        charts.legend({line.name: line.style for _, p in shown for line in p}),
    )


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
            heads = [Column(n.removesuffix("_ns").replace("_", " "), hint=n) for n in names]
            rows = [[Cell(a), *(_count(own.get(n), n) for n in names)] for a, own in counts.items()]
            caption = f"Counted{f' at {where}' if where else ''}, in runs that were not timed"
            tables.append(table_of(caption, [Column("allocator", left=True), *heads], rows))
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


def _count(value: float | None, name: str) -> Cell:
    if value is None:
        return Cell("", "muted")
    if name.endswith("_ns"):
        return Cell(quantity(value / 1e9, "seconds"))
    return Cell(quantity(value, unit_of(name)), "" if value else "muted", f"{value:,.0f}")
