"""The figures of a run of the suite, from its results.

Why: the means say where each allocator stands; the field says in which workloads.
"""

from collections.abc import Iterator, Mapping

from tsmlab.bench_text import SuiteResults, in_order, mean_number
from tsmlab.report.figures import lines, ratios
from tsmlab.report.figures.canvas import Figure, render
from tsmlab.report.figures.of_comparison import ALL_IN_COLOUR
from tsmlab.report.tables import Column, of_texts
from tsmlab.report.theme import Style, styles_for
from tsmlab.results import MetricSummary
from tsmlab.study import Mean, Score, WorkloadAnalysis
from tsmlab.wording import quantity, three_digits


def figures(suite: SuiteResults) -> Iterator[Figure]:
    """All figures that the results have data for."""
    styles = styles_for([info.name for info in (*suite.allocators, *suite.floors)])
    if any(each.time.ratio is not None for each in suite.analysis.overall):
        yield means(suite, styles)
    if (figure := scaling(suite, styles)) is not None:
        yield figure
    if suite.candidate is None:
        return
    for which in ("time", "memory"):
        rows = field_rows(suite, suite.candidate, which)
        if any(row.candidate for row in rows):
            yield field_figure(suite.candidate, which, rows, styles)


def mean_ratios(suite: SuiteResults, which: str) -> list[ratios.Ratio]:
    found = []
    for each in suite.analysis.overall:
        mean: Mean = each.time if which == "time" else each.memory
        if mean.ratio is not None:
            found.append(ratios.Ratio(each.name, mean.ratio, mean.low, mean.high))
    return found


def means(suite: SuiteResults, styles: Mapping[str, Style]) -> Figure:
    """A forest plot of the geometric means."""
    names = [each.name for each in suite.analysis.overall if each.time.ratio is not None]
    panels = []
    for which, good, bad in (("time", "faster", "slower"), ("memory", "smaller", "larger")):
        if own := [ratio for ratio in mean_ratios(suite, which) if ratio.name in names]:
            title = f"{which.capitalize()}, mean of all workloads"
            panels.append(ratios.Panel(title, good, bad, own, None))
    emphasised = frozenset(names if len(names) <= 8 else [suite.candidate or names[0]])
    cells = [
        [
            each.name,
            mean_number(each.time).with_interval(),
            mean_number(each.memory).with_interval(),
            f"{each.time.workloads} of {each.time.possible}",
        ]
        for each in suite.analysis.overall
    ]
    heads = ("allocator", "time [95 % CI]", "memory [95 % CI]", "workloads")
    return render(
        "means",
        "Means over all workloads",
        f"Geometric means of {len(names)} allocators' ratios to the best peer of each workload.",
        "Geometric means of the ratios to the best peer of each workload, which is another one in "
        "each; so 1 is an imaginary allocator as good as all peers together. Lines "
        "are 95 % intervals.",
        of_texts("Means", heads, cells),
        ratios.panels(ratios.Rows(names, emphasised, "", styles, plain=True), panels),
    )


def scaling(suite: SuiteResults, styles: Mapping[str, Style]) -> Figure | None:
    """A panel for each pattern that is run with several numbers of threads: median times."""
    runs = [each for each in suite.runs if each.workload.pattern]
    if not runs:
        return None
    threads = sorted({each.workload.threads for each in runs})
    order = in_order(suite)
    parts, rows = [], []
    for pattern in dict.fromkeys(each.workload.pattern for each in runs):
        curves = []
        for name in order:
            medians = _medians(suite, pattern, name)
            points = [(threads.index(count), median) for count, median in medians.items()]
            strong = name in order[:ALL_IN_COLOUR]
            curves.append(lines.through(points, name, styles[name], strong, marked=True))
            times = (quantity(medians[n], "seconds") if n in medians else "-" for n in threads)
            rows.append([pattern, name, *times])
        parts.append(lines.Panel(pattern, [curve for curve in curves if curve.xs]))
    heads = [Column(head, left=True) for head in ("pattern", "allocator")]
    heads += [Column(str(count)) for count in threads]
    return render(
        "scaling",
        "Time by the number of threads",
        f"{len(parts)} patterns of work with {threads[0]} to {threads[-1]} threads.",
        "Median times. Lower is better; where each thread has the same work and a core of its own, "
        "a flat line is as good as it gets.",
        of_texts("Median time by the number of threads", heads, rows),
        lines.panels(
            parts,
            lines.Scale("threads", "count", names=[str(count) for count in threads]),
            lines.Scale("time", "seconds", log=True),
            shared=False,
        ),
    )


def _medians(suite: SuiteResults, pattern: str, name: str) -> dict[int, float]:
    """An allocator's median time in a pattern by the number of threads, where no run failed."""
    found = {}
    for runs, workload in zip(suite.runs, suite.analysis.workloads, strict=True):
        score = workload.score(name)
        if runs.workload.pattern == pattern and score.time is not None and not score.failures:
            found[runs.workload.threads] = score.time.median
    return found


def field_rows(suite: SuiteResults, candidate: str, which: str) -> list[ratios.FieldRow]:
    """Each workload's ratios in one quantity, of those that did not fail in it."""
    peers = set(suite.peers)
    rows = []
    for workload in suite.analysis.workloads:
        found = {
            score.name: ratio
            for score in workload.scores
            if (ratio := _ratio(workload, score, which)) is not None
        }
        if found:
            others = [ratio for name, ratio in found.items() if name in peers]
            rows.append(ratios.FieldRow(workload.workload, others, found.get(candidate)))
    return rows


def _ratio(workload: WorkloadAnalysis, score: Score, which: str) -> ratios.Ratio | None:
    """The best peer's own ratio is 1 by definition."""
    summary: MetricSummary | None = score.time if which == "time" else score.memory
    best = workload.fastest_peer if which == "time" else workload.smallest_peer
    if score.failures or summary is None:
        return None
    if score.name == best:
        return ratios.Ratio(score.name, 1.0)
    return ratios.Ratio.of(score.name, summary.ratio) if summary.ratio else None


def field_figure(
    candidate: str, which: str, rows: list[ratios.FieldRow], styles: Mapping[str, Style]
) -> Figure:
    cells = []
    for row in rows:
        own = row.candidate
        interval = ""
        if own and own.low is not None and own.high is not None:
            interval = f"{three_digits(own.low)} to {three_digits(own.high)}"
        others = ", ".join(f"{r.name} {three_digits(r.ratio)}" for r in row.peers)
        cells.append([row.name, three_digits(own.ratio) if own else "-", interval, others])
    heads = ("workload", candidate, "95 % interval", Column("peers", left=True))
    return render(
        f"field-{which}",
        f"{which.capitalize()} in each workload",
        f"A row for each of {len(rows)} workloads with the ratios of {candidate} and its peers.",
        f"Ratios to the best peer of the row, in {which}. {candidate} is in colour with its 95 % "
        f"interval, its peers are grey. A ratio above {ratios.FARTHEST:g} is drawn at "
        "the edge.",
        of_texts(f"{which.capitalize()} in each workload, as drawn", heads, cells),
        ratios.field(rows, candidate, styles),
    )
