"""The page of a run of the suite: means first, then every workload, so that a loss is as easy to
find as a win."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace

from tsmlab import bench_text, texts
from tsmlab.bench import QUICK
from tsmlab.bench_text import SuiteResults, in_order, mean_number
from tsmlab.render import full_name
from tsmlab.report import charts, parts
from tsmlab.report.charts import Axis, Line, Ratio
from tsmlab.report.comparison import Styles
from tsmlab.report.page import DataTable, Figure, Page, Section, figure_sections, table_of
from tsmlab.report.theme import emphasised, styles_for
from tsmlab.results import MetricSummary
from tsmlab.stats import RatioEstimate, Verdict
from tsmlab.study import Mean, Score, WorkloadAnalysis
from tsmlab.tables import STYLES, Cell, Column, columns_of
from tsmlab.wording import quantity, rounds, three_digits

# The tint of a ratio: the first step that it does not exceed.
STEPS = (
    (0.9, "cool2"),
    (0.99, "cool1"),
    (1.01, "even"),
    (1.1, "warm1"),
    (1.5, "warm2"),
    (float("inf"), "warm3"),
)
# Beyond this ratio a workload's point is seen only zoomed out: one must not flatten all others.
FARTHEST = 4.0
TERMS = f"""\
Peer: An allocator that is not ours. The best peer is another one in each workload and for each
  quantity, so 1.00 everywhere would mean: as good as all rivals together.
Ratio: The geometric mean over the rounds, paired within each round. 0.90 is a tenth less.
Interval: 95% confidence; a mean's comes from its own value in each round.
Quick: Of the peers that take at most {QUICK:g} times the best time, the smallest: memory that is
  saved at any price in time is no merit.
Floor: Instruments that do less than any allocator must: they show how much of the time is the
  workload's own.
Failed: An allocator that failed one run of a workload has no ratio there, and its mean says so.
"""


def page(suite: SuiteResults) -> Page:
    sentences = [line.partition(" ") for line in bench_text.headline(suite)]
    facts = [(parts.capital(label), text.strip()) for label, _, text in sentences]
    subject = suite.candidate or "the allocators"
    tables = [heat_table(suite, "time")]
    if any(runs.workload.memory for runs in suite.runs):
        tables.append(heat_table(suite, "memory"))
    goals = [Section("Goals", [goals_table(suite)])] if suite.candidate else []
    settings = {"suite": suite.suite, **asdict(suite.settings)}
    return Page(
        kind="bench",
        name="bench",
        title=f"Where {subject} stands among {len(suite.peers)} peers",
        window_title=f"{subject} and its peers: {len(suite.runs)} workloads",
        question=f"{len(suite.runs)} workloads, {rounds(suite.analysis.rounds)}",
        answer=": ".join(facts[0]) if facts else "There is no candidate whose goals are judged.",
        facts=facts[1:],
        warnings=parts.warned(suite.warnings),
        failures=list(bench_text.failed_lines(suite)),
        extent=" · ".join(bench_text.heading(suite)),
        sections=[
            *figure_sections(list(figures(suite))),
            *goals,
            Section("All workloads", tables, anchor="workloads"),
            *parts.circumstances(suite, [*suite.allocators, *suite.floors], settings, TERMS),
        ],
        footer=parts.footer(suite),
        files={"results.md": texts.markdown(suite.study), "runs.csv": texts.to_csv(suite.study)},
    )


# --- tables ---------------------------------------------------------------------------------------


def heat_table(suite: SuiteResults, which: str) -> DataTable:
    names = in_order(suite)
    heads = [Column("workload", left=True)]
    heads += [Column(name, hint=full_name(suite.allocator(name))) for name in names]
    heads.append(Column("1.00 is", left=True))
    rows = []
    for runs, workload in zip(suite.runs, suite.analysis.workloads, strict=True):
        if which == "time" or runs.workload.memory:
            rows.append(_heat_row(workload, which, names))
    means = {o.name: o.time if which == "time" else o.memory for o in suite.analysis.overall}
    last = [Cell(bench_text.MEAN)]
    for name in names:
        number = mean_number(means[name])
        mark = "" if number.ratio is None else tint(number.ratio)
        last.append(Cell(number.plain(), mark, number.with_interval()))
    rows.append([*last, Cell(bench_text.BY_DEFINITION)])
    caption = f"{which.capitalize()} as a ratio to the best peer of each row; below 1.00 is better"
    return DataTable(caption, columns_of(heads, rows), heat=True)


def _heat_row(workload: WorkloadAnalysis, which: str, names: list[str]) -> list[Cell]:
    best = workload.fastest_peer if which == "time" else workload.smallest_peer
    scores = {score.name: score for score in workload.scores}
    cells = [_heat_cell(scores.get(name), best, which) for name in names]
    return [
        Cell(workload.workload),
        *cells,
        Cell(bench_text.best_with_median(workload, best, which)),
    ]


def _heat_cell(score: Score | None, best: str | None, which: str) -> Cell:
    if score is None:
        return Cell("-", "muted")
    if score.failures:
        return Cell("failed", "failed", score.failure.text if score.failure else "")
    if score.name == best:
        return Cell("1.00", "even", "the best peer")
    summary = score.time if which == "time" else score.memory
    if summary is None or summary.ratio is None:
        return Cell("-", "muted")
    estimate = summary.ratio
    return Cell(three_digits(estimate.ratio), tint(estimate.ratio), _ends(estimate))


def _ends(estimate: RatioEstimate | Ratio) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{three_digits(estimate.low)} to {three_digits(estimate.high)}"


def tint(ratio: float) -> str:
    return next(mark for most, mark in STEPS if ratio <= most)


def goals_table(suite: SuiteResults) -> DataTable:
    heads = [
        Column("workload", left=True),
        Column("time to the fastest peer"),
        Column("verdict", left=True),
        Column("memory to the smallest quick peer"),
        Column("verdict", left=True),
        Column("time to the best floor"),
    ]
    caption = f"Goals of {suite.candidate}, with 95% confidence intervals"
    rows = [list(_goal_cells(suite, each)) for each in suite.analysis.workloads]
    return table_of(caption, heads, rows)


def _goal_cells(suite: SuiteResults, workload: WorkloadAnalysis) -> Iterator[Cell]:
    score = workload.score(suite.candidate or "")
    yield Cell(workload.workload)
    time = score.time.ratio if score.time else None
    yield Cell(_interval(time) if not score.failures else "failed")
    yield _verdict_cell(bench_text.goal_of_time(suite, workload))
    yield Cell(_interval(workload.quick_memory))
    yield _verdict_cell(bench_text.verdict(workload.quick_memory))
    floor = f" ({workload.best_floor})" if workload.best_floor and score.to_floor else ""
    yield Cell(_interval(score.to_floor) + floor)


def _interval(estimate: RatioEstimate | None) -> str:
    return "" if estimate is None else bench_text.number_of(estimate).with_interval()


def _verdict_cell(found: Verdict | None) -> Cell:
    if found is None:
        return Cell("")
    return Cell(found.value, STYLES.get(found, ""))


# --- figures --------------------------------------------------------------------------------------


def figures(suite: SuiteResults) -> Iterator[Figure]:
    order = in_order(suite)
    every = [*order, *(i.name for i in (*suite.allocators, *suite.floors) if i.name not in order)]
    styles = emphasised(every, order)
    if any(each.time.ratio is not None for each in suite.analysis.overall):
        yield means(suite, styles)
    if (figure := scaling(suite, styles)) is not None:
        yield figure
    if suite.candidate is None:
        return
    for which in ("time", "memory"):
        if found := field_ratios(suite, which):
            yield field(suite.candidate, which, found)


def mean_ratios(suite: SuiteResults, which: str) -> list[Ratio]:
    found = []
    for each in suite.analysis.overall:
        mean: Mean = each.time if which == "time" else each.memory
        if mean.ratio is not None and each.time.ratio is not None:
            said = mean_number(mean).with_interval()
            found.append(Ratio(each.name, mean.ratio, mean.low, mean.high, said))
    return found


def means(suite: SuiteResults, styles: Styles) -> Figure:
    """A forest plot of the geometric means."""
    names = [each.name for each in suite.analysis.overall if each.time.ratio is not None]
    panels = []
    for which, good, bad in (("time", "faster", "slower"), ("memory", "smaller", "larger")):
        if own := mean_ratios(suite, which):
            title = f"{which}, mean of all workloads (← {good}, {bad} →)"
            panels.append(charts.ratios(own, names, styles, title, plain=True))
    cells = [
        [
            each.name,
            mean_number(each.time).with_interval(),
            mean_number(each.memory).with_interval(),
            f"{each.time.workloads} of {each.time.possible}",
        ]
        for each in suite.analysis.overall
    ]
    heads = ("allocator", "time [95% CI]", "memory [95% CI]", "workloads")
    return Figure(
        "means",
        "Means over all workloads",
        "Geometric means of the ratios to the best peer of each workload, with 95% intervals. 1.00 "
        "means as good as the best peer on every single workload.",
        panels,
        table_of("Means", heads, cells),
    )


def scaling(suite: SuiteResults, styles: Styles) -> Figure | None:
    runs = [each for each in suite.runs if each.workload.pattern]
    if not runs:
        return None
    threads = sorted({each.workload.threads for each in runs})
    x = Axis("threads", names=[str(count) for count in threads])
    panels, rows, drawn = [], [], {}
    for pattern in dict.fromkeys(each.workload.pattern for each in runs):
        own = []
        for name in in_order(suite):
            medians = _medians(suite, pattern, name)
            points = [(threads.index(count), median) for count, median in sorted(medians.items())]
            if points:
                own.append(Line(name, points, styles[name], marked=True))
                drawn[name] = styles[name]
            times = (quantity(medians[n], "seconds") if n in medians else "-" for n in threads)
            rows.append([pattern, name, *times])
        panels.append(charts.lines(own, x, Axis("time", "seconds", log=True), pattern))
    heads = [Column(head, left=True) for head in ("pattern", "allocator")]
    heads += [Column(str(count)) for count in threads]
    return Figure(
        "scaling",
        "Time by the number of threads",
        "Median times. Lower is better; where each thread has the same work and a core of its own, "
        "a flat line is as good as it gets.",
        panels,
        table_of("Median time by the number of threads", heads, rows),
        charts.legend(drawn),
    )


def _medians(suite: SuiteResults, pattern: str, name: str) -> Mapping[int, float]:
    """By the number of threads, of workloads that did not fail."""
    found = {}
    for runs, workload in zip(suite.runs, suite.analysis.workloads, strict=True):
        score = next((s for s in workload.scores if s.name == name), None)
        if runs.workload.pattern == pattern and score and score.time and not score.failures:
            found[runs.workload.threads] = score.time.median
    return found


def field_ratios(suite: SuiteResults, which: str) -> list[Ratio]:
    """Each workload's ratios in one quantity, of the candidate and its peers where they did not
    fail; peers come first, so that the candidate is drawn over them."""
    shown = [*suite.peers, suite.candidate]
    found = [
        Ratio(workload.workload, ratio.ratio, ratio.low, ratio.high,
              f"{three_digits(ratio.ratio)} {_ends(ratio)}", name)
        for workload in suite.analysis.workloads
        for name in shown
        for score in workload.scores
        if score.name == name and (ratio := _ratio(workload, score, which)) is not None
    ]  # fmt: skip
    return found if any(each.series == suite.candidate for each in found) else []


def _ratio(workload: WorkloadAnalysis, score: Score, which: str) -> Ratio | None:
    """The best peer's own ratio is 1 by definition."""
    summary: MetricSummary | None = score.time if which == "time" else score.memory
    best = workload.fastest_peer if which == "time" else workload.smallest_peer
    if score.failures or summary is None:
        return None
    if score.name == best:
        return Ratio(score.name, 1.0)
    estimate = summary.ratio
    return Ratio(score.name, estimate.ratio, estimate.low, estimate.high) if estimate else None


def field(candidate: str, which: str, found: list[Ratio]) -> Figure:
    """The candidate in colour with its interval, before its peers in grey."""
    names = list(dict.fromkeys(each.series for each in found))
    styles = {
        n: s if n == candidate else replace(s, hue="rest") for n, s in styles_for(names).items()
    }
    rows = list(dict.fromkeys(each.row for each in found))
    drawn = [each if each.series == candidate else replace(each, low=None, high=None)
             for each in found]  # fmt: skip
    cells = []
    for row in rows:
        own = next((r for r in found if (r.row, r.series) == (row, candidate)), None)
        others = ", ".join(f"{r.series} {three_digits(r.ratio)}" for r in found
                           if r.row == row and r.series != candidate)  # fmt: skip
        cells.append(
            [row, three_digits(own.ratio) if own else "-", _ends(own) if own else "", others]
        )
    heads = ("workload", candidate, "95% interval", Column("peers", left=True))
    return Figure(
        f"field-{which}",
        f"{which.capitalize()} in each workload",
        f"Ratios to the best peer of the row, in {which}: {candidate} in colour with its 95% "
        f"interval, its peers in grey. Ratios above {FARTHEST:g} are seen zoomed out.",
        [charts.ratios(drawn, rows, styles, f"{which} over the best peer's (← better)", plain=True,
                       most=FARTHEST)],
        table_of(f"{which.capitalize()} in each workload, as drawn", heads, cells),
        charts.legend(styles),
    )  # fmt: skip
