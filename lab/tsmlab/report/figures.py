"""The figures of pages: of comparisons and sweeps, and the special ones of service, bench, replay
and analyze. They show what is judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tsmlab import render, series, stats
from tsmlab.allocators import ENGINE
from tsmlab.analysis import logs_by_round, measured_cells
from tsmlab.bench_text import in_order, mean_number
from tsmlab.metrics import PEAK_MEMORY, TIME, MetricSpec
from tsmlab.report import charts
from tsmlab.report.charts import Axis, Line, Point, Ratio
from tsmlab.report.page import Figure, table_of
from tsmlab.report.theme import REQUESTED, Style, emphasised
from tsmlab.results import Comparison, MetricSummary, Row, Sample
from tsmlab.service.loads import PERCENTILES, THROUGHPUT, key_of
from tsmlab.service.render import ordered
from tsmlab.service.results import END, READY
from tsmlab.service.study import ServerRun, memory_of, server_runs_of
from tsmlab.stats import Verdict
from tsmlab.study import Study, given
from tsmlab.sweep import Parameter, describe
from tsmlab.tables import Column
from tsmlab.text import capital, shortened, slug
from tsmlab.traces.analysis import TraceAnalysis
from tsmlab.traces.replay_results import Replay, line_of
from tsmlab.wording import change, change_in_full, counted, quantity, rounds

Styles = Mapping[str, Style]

# More panels than this make a figure too long to read.
MAX_PANELS = 8
# From this ratio of the largest value to the smallest, an axis is logarithmic.
LOG_FROM = 10.0


def styles_of(comparison: Comparison) -> Styles:
    """A colour for each allocator; of many, only for the most important ones."""
    analysis = comparison.analysis
    wanted = [ENGINE, comparison.reference, analysis.recommended or comparison.reference]
    wanted += [leaders.best for leaders in analysis.leaders.values()]
    wanted += [info.name for info in comparison.allocators if info.family == "user"]
    wanted += [info.name for info in comparison.allocators if info.family != "tsmalloc"]
    wanted += [row.allocator for row in analysis.rows]
    return emphasised([info.name for info in comparison.allocators], wanted)


def figures(comparison: Comparison, front: bool = True) -> Iterator[Figure]:
    """All figures that the results have data for; for the runs of a sweep together, only ratios are
    meaningful. front: whether to show the trade-off between allocators."""
    if all(row.rank is None for row in comparison.analysis.rows):
        return
    styles = styles_of(comparison)
    whole = (*((trade_off,) if front else ()), memory_of_runs, distribution)
    for make in (ratios, *(() if comparison.points else whole)):
        if (figure := make(comparison, styles)) is not None:
            yield figure


def ratios(comparison: Comparison, styles: Styles) -> Figure | None:
    """A panel for each judged metric, the primary one first."""
    rows = render.ranked_rows(comparison)
    specs = [spec for spec in comparison.metrics if spec.judged]
    specs.sort(key=lambda spec: spec.key != comparison.analysis.primary_metric)
    panels = [panel for spec in specs if (panel := _ratio_panel(comparison, spec, rows, styles))]
    if not panels:
        return None
    headers = ["allocator"]
    for spec in specs:
        headers += [f"{spec.name}, ratio", "95% interval", "p adjusted"]
    cells = [[row.allocator, *(t for s in specs for t in _ratio_texts(row, s))] for row in rows]
    return Figure(
        "ratios",
        f"Ratios to {comparison.reference}",
        f"Geometric means over {rounds(comparison.analysis.rounds)} with 95% intervals; a hollow "
        "point is unresolved. Differences within the shaded band are below the margin or the "
        "noise floor, and are ignored.",
        panels,
        table_of("Ratios, as drawn", headers, cells),
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
    title = f"{spec.name} (← {good}, {bad} →)"
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
    """Ratios of memory and of the primary metric to the reference, from which the Pareto front is
    made."""
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
    headers = ("allocator", primary.name, memory.name, Column("on the front", left=True))
    direction = "up" if primary.higher_is_better else "down"
    return Figure(
        "tradeoff",
        f"{capital(primary.name)} against memory",
        f"Ratios to {comparison.reference} with 95% intervals; better is {direction} and to the "
        "left. Filled points are on the front: no other allocator is better in both by more than "
        "the margin. Beyond the dashed line, one of them is better in both.",
        [charts.points(points, memory.name, primary.name, primary.higher_is_better)],
        table_of(f"Ratios to {comparison.reference}, as drawn", headers, cells),
        {p.name: p.style for p in points},
    )


def _triple(row: Row, key: str, reference: str) -> tuple[float | None, ...] | None:
    summary: MetricSummary | None = row.metrics.get(key)
    if row.allocator == reference:
        return (1.0, None, None) if summary else None
    estimate = summary.ratio if summary else None
    return (estimate.ratio, estimate.low, estimate.high) if estimate else None


def memory(
    panels: Sequence[tuple[str, Sequence[Line]]],
    x: Axis,
    caption: str,
    bands: Sequence[tuple[str, float, float]] = (),
    name: str = "memory",
    title: str = "Memory over time",
) -> Figure | None:
    """Named curves of memory, in a panel or several with titles."""
    panels = [(head, own) for head, own in panels if own]
    if not panels:
        return None
    cells = [
        [f"{head}: {line.name}" if head else line.name,
         *(quantity(size, "bytes") for size in (
             max(y for _, y in line.points), series.mean_bytes(line.points), line.points[-1][1]))]
        for head, own in panels
        for line in own
    ]  # fmt: skip
    y = Axis("memory", "bytes", zero=True)
    return Figure(
        name,
        title,
        caption,
        [charts.lines(own, x, y, head, bands) for head, own in panels],
        table_of("Memory, as drawn", ("", "highest", "mean", "at the end"), cells),
        {line.name: line.style for _, own in panels for line in own},
    )


SINCE_START = Axis("time since the start", "seconds", zero=True)


def memory_of_runs(comparison: Comparison, styles: Styles) -> Figure | None:
    """A curve for each allocator with a sampled run, from its typical run."""
    curves = [
        Line(row.allocator, series.thinned(series.memory_curve(sample)), styles[row.allocator])
        for row in render.ranked_rows(comparison)
        if (sample := series.typical_run(comparison, row.allocator, TIME))
    ]
    return memory(
        [("", curves)],
        SINCE_START,
        "Resident memory of the whole process tree in one run of each allocator: the one whose "
        "time is nearest to its median.",
    )


def distribution(comparison: Comparison, styles: Styles, key: str = "") -> Figure | None:
    """Of the primary metric, or of another."""
    spec = comparison.metric(key or comparison.analysis.primary_metric)
    rows = [row for row in render.ranked_rows(comparison) if spec.key in row.metrics]
    names = {row.allocator for row in rows}
    runs = [
        (s.allocator, s.values[spec.key])
        for s in comparison.samples
        if s.phase == "measured" and not s.failure and s.allocator in names and spec.key in s.values
    ]
    if len(runs) < 2:
        return None
    headers = ("allocator", "runs", "lowest", "median", "highest", "MAD")
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
        "One tick per successful run, including outliers; the thick tick is the median. "
        "Two clusters in one row mean two states of the program or of the machine.",
        [charts.strips(runs, medians, styles, Axis(spec.name, spec.unit, log))],
        table_of(
            f"Distribution of {spec.name}", (*headers, Column("outlier rounds", left=True)), cells
        ),
    )


# --- sweeps ---------------------------------------------------------------------------------------

# A cell's mean with its interval.
Level = tuple[float, float, float]


def sweep_figures(comparison: Comparison) -> Iterator[Figure]:
    """Each metric of the tables over a parameter, with a line for each allocator."""
    parameter = next((p for p in comparison.parameters if p.is_numeric), None)
    parameter = parameter or next((p for p in comparison.parameters if len(p.values) > 1), None)
    if parameter is not None:
        for spec in render.point_metrics(comparison):
            yield _sweep(comparison, parameter, spec)


def levels_of(comparison: Comparison, spec: MetricSpec) -> dict[tuple[int, str], Level]:
    """The geometric mean over the rounds of each cell without failed runs, and its interval."""
    found = {}
    for (point, name), samples in measured_cells(comparison.samples).items():
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
    """The lines of a panel for each combination of the other parameters with data."""
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


def _spreads(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) >= LOG_FROM


def _sweep(comparison: Comparison, parameter: Parameter, spec: MetricSpec) -> Figure:
    panels = sweep_panels(comparison, parameter, spec)
    shown = panels[:MAX_PANELS]
    laws = " Dotted: the fitted law." if any(line.model for _, p in shown for line in p) else ""
    left_out = len(panels) - len(shown)
    more = f" The table has {counted(left_out, 'more panel')}." if left_out > 0 else ""
    better = "Higher" if spec.higher_is_better else "Lower"
    title = f"{capital(spec.name)} over {parameter.title}"
    values = parameter.values
    levels = levels_of(comparison, spec)
    log = parameter.is_numeric and _spreads(values)
    shown_at = {"marks": values} if parameter.is_numeric else {"names": list(map(str, values))}
    x = Axis(parameter.title, log=log, **shown_at)
    # On logarithmic axes a power law is a straight line, and small values are visible.
    y = Axis(spec.name, spec.unit, log and _spreads([m for m, *_ in levels.values()]), zero=True)

    def cell(index: int, name: str) -> str:
        if (index, name) not in levels:
            return ""
        middle, low, high = (quantity(value, spec.unit) for value in levels[index, name])
        return f"{middle} [{low}, {high}]"

    headers = [describe(point.values) for point in comparison.points]
    rows = [
        [info.name, *(cell(index, info.name) for index in range(len(headers)))]
        for info in comparison.allocators
    ]
    return Figure(
        f"sweep-{spec.key.replace('_', '-')}",
        title,
        f"{better} is better. Geometric means over the rounds with 95% intervals.{laws}{more}",
        [charts.lines(own, x, y, panel) for panel, own in shown],
        table_of(f"{title}, as drawn", ["allocator", *headers], rows),
        {line.name: line.style for _, p in shown for line in p},
    )


# --- a service ------------------------------------------------------------------------------------


def service_figures(study: Study) -> Iterator[Figure]:
    found = study.comparison
    styles = styles_of(found)
    known = {key for row in found.analysis.rows for key in row.metrics}
    yield from filter(None, [
        trade_off(found, styles),
        memory_of_servers(found, styles),
        percentiles(found, styles),
        distribution(found, styles, THROUGHPUT) if THROUGHPUT in known else None,
        ratios(found, styles),
    ])  # fmt: skip


def percentiles(found: Comparison, styles: Styles) -> Figure | None:
    """Medians over the rounds of each percentile that the load generator reported."""
    names = [n for n in PERCENTILES.values() if any(key_of(n) == m.key for m in found.metrics)]
    rows = [row for row in ordered(found) if key_of(names[0]) in row.metrics] if names else []
    if not rows or len(names) < 2:
        return None
    medians = {
        row.allocator: [row.metrics[key_of(n)].median for n in names if key_of(n) in row.metrics]
        for row in rows
    }
    drawn = [Line(name, list(enumerate(own)), styles[name], marked=True)
             for name, own in medians.items()]  # fmt: skip
    cells = [[name, *(quantity(each, "seconds") for each in own)] for name, own in medians.items()]
    return Figure(
        "percentiles",
        "Latency by percentile",
        "Medians over the rounds, as reported by the load generator. Lower is better.",
        [charts.lines(drawn, Axis("requests", names=names), Axis("latency", "seconds", log=True))],
        table_of("Latency by percentile", ["allocator", *names], cells),
        {line.name: line.style for line in drawn},
    )


def memory_of_servers(found: Comparison, styles: Styles) -> Figure | None:
    """One server for each allocator: the run whose memory after the load is nearest to the
    median."""
    runs: dict[str, ServerRun] = {}
    for row in ordered(found):
        key = END if END in row.metrics else READY
        sample = series.typical_run(found, row.allocator, key, _was_watched)
        if sample is not None:
            runs[row.allocator] = server_runs_of(sample)[0]
    curves = [Line(name, series.thinned(memory_of(run)), styles[name])
              for name, run in runs.items()]  # fmt: skip
    return memory(
        [("", curves)],
        SINCE_START,
        "Memory of all processes of one server under each allocator, in the run whose memory "
        "after the load is nearest to the median. The loads are shaded.",
        phases(next(iter(runs.values()))) if runs else (),
    )


def _was_watched(sample: Sample) -> bool:
    return any(len(run.series) > 1 for run in server_runs_of(sample)[:1])


def phases(run: ServerRun) -> Sequence[tuple[str, float, float]]:
    """The phases with load: name, begin and end. Consecutive ones of the same name are merged."""
    found: list[tuple[str, float, float]] = []
    for part in run.loaded:
        begin, end = part.before.at_seconds, part.after.at_seconds
        if found and found[-1][0] == part.phase.name:
            begin = found.pop()[1]
        found.append((part.phase.name, begin, end))
    return found


# --- a bench, a replay, a trace -------------------------------------------------------------------


def bench_figures(study: Study) -> Iterator[Figure]:
    """A forest plot of the geometric means over all workloads."""
    suite = given(study.suite)
    overall = [each for each in suite.analysis.overall if each.time.ratio is not None]
    if not overall:
        return
    names = [each.name for each in overall]
    styles = emphasised(names, in_order(suite))
    panels = []
    for which, good, bad in (("time", "faster", "slower"), ("memory", "smaller", "larger")):
        own = [
            Ratio(each.name, mean.ratio, mean.low, mean.high, mean_number(mean).with_interval())
            for each in overall
            if (mean := getattr(each, which)).ratio is not None
        ]
        if own:
            title = f"mean {which} (← {good}, {bad} →)"
            panels.append(charts.ratios(own, names, styles, title, plain=True))
    cells = [
        [each.name, *(mean_number(mean).with_interval() for mean in (each.time, each.memory))]
        for each in overall
    ]
    yield Figure(
        "means",
        "Means over all workloads",
        "Geometric means of the ratios to the best peer of each workload, with 95% intervals. 1.00 "
        "means as good as the best peer on every single workload.",
        panels,
        table_of("Means", ("allocator", "time [95% CI]", "memory [95% CI]"), cells),
    )


def replay_figures(replays: Sequence[Replay]) -> Iterator[Figure]:
    """For one trace, under one schedule or several."""
    trace, several = replays[0].trace, len(replays) > 1
    figure = memory(
        [(replay.schedule if several else "", curves(replay)) for replay in replays],
        Axis("event", "count", zero=True),
        "Resident memory of the allocator, without replay's own. The dotted line is what the "
        "program had requested: anything above it is overhead and fragmentation. All allocators "
        "are sampled at the same events.",
        name=f"{slug(trace.name, 'trace')}-memory",
        title=f"Memory over the events of {shortened(trace.name, 32)}",
    )
    if figure:
        yield figure
    if not several:
        yield from figures(replays[0].comparison)


def curves(replay: Replay) -> list[Line]:
    """A line for each allocator, over events; and one for the requested bytes."""
    found, requested = [], None
    styles = styles_of(replay.comparison)
    for info in replay.comparison.allocators:
        sample = series.typical_run(
            replay.comparison, info.name, TIME, lambda sample: line_of(sample) is not None
        )
        line = line_of(sample) if sample else None
        if points := line.points if line else []:
            own = [(p.event, p.resident_bytes) for p in points]
            found.append(Line(info.name, series.thinned(own), styles[info.name]))
            requested = requested or [(p.event, p.live_bytes) for p in points]
    if requested:
        found.append(Line("requested", series.thinned(requested), REQUESTED))
    return found


def trace_figures(analysis: TraceAnalysis) -> Iterator[Figure]:
    blue = Style("blue")
    if len(stretches := analysis.curve) > 1:
        # Each stretch is drawn at its maximum, so that no peak is lost.
        highest = [float(each.highest_bytes) for each in stretches]
        times = [0.0, *(each.time_ns / 1e9 for each in stretches)]
        points = list(zip(times, [*highest, highest[-1]], strict=True))
        figure = memory(
            [("", [Line("live", points, blue, stepped=True)])],
            Axis("time", "seconds", zero=True),
            f"Requested bytes of all live objects, in {len(stretches):,} intervals of equally "
            "many events, each drawn at its maximum. No allocator can use less.",
            name="live",
            title="Live bytes over time",
        )
        assert figure is not None
        yield figure
    buckets = [bucket for bucket in analysis.buckets if bucket.allocated_bytes]
    if not buckets:
        return
    whole = sum(bucket.allocated_bytes for bucket in buckets)
    spans = [(max(b.lower, 0.5), max(b.upper, 1.0), b.allocated_bytes / whole) for b in buckets]
    cells = [
        [f"{b.upper:,}", f"{b.allocations:,}", quantity(b.allocated_bytes, "bytes"),
         quantity(b.at_peak_bytes, "bytes")]
        for b in buckets
    ]  # fmt: skip
    yield Figure(
        "sizes",
        "Sizes",
        "Bytes of all allocations by size, eight bars per octave.",
        [
            charts.bars(
                spans, blue, Axis("size in bytes", "bytes", log=True), "share of allocated bytes"
            )
        ],
        table_of("Sizes", ("up to", "allocations", "bytes", "at the peak"), cells, left=0),
    )
