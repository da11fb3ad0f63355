"""The page of a run of the suite: where the candidate stands, and where it does not.

Why: means first, then every workload, so that a loss is as easy to find as a win.
Refuses to: compute. Every number is from suite_analysis.py.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tsmlab import bench_text as suite_report
from tsmlab import texts
from tsmlab.bench import QUICK
from tsmlab.bench_text import SuiteResults
from tsmlab.render import full_name
from tsmlab.report.figures import of_suite
from tsmlab.report.pages import common
from tsmlab.report.tables import Cell, Column, DataTable
from tsmlab.stats import RatioEstimate, Verdict
from tsmlab.study import Score, WorkloadAnalysis
from tsmlab.tables import STYLES
from tsmlab.wording import rounds, three_digits

# The tint of a ratio: the first step that it does not exceed.
STEPS = (
    (0.9, "cool2"),
    (0.99, "cool1"),
    (1.01, "even"),
    (1.1, "warm1"),
    (1.5, "warm2"),
    (float("inf"), "warm3"),
)


def report(suite: SuiteResults) -> common.Report:
    """The whole report of a run of the suite."""
    figures = list(of_suite.figures(suite))
    head = list(suite_report.headline(suite))
    sentences = [_labelled(line) for line in head]
    subject = suite.candidate or "the allocators"
    tables = [heat_table(suite, "time")]
    if any(runs.workload.memory for runs in suite.runs):
        tables.append(heat_table(suite, "memory"))
    page: dict[str, Any] = {
        "title": f"{subject} and its peers: {len(suite.runs)} workloads",
        "kind": "bench",
        "kicker": f"{len(suite.runs)} workloads, {rounds(suite.analysis.rounds)}",
        "heading": f"Where {subject} stands among {len(suite.peers)} peers",
        "tiles": _tiles(suite),
        "verdict": sentences or [("Verdict", "There is no candidate whose goals are judged.")],
        "extent": [" · ".join(suite_report.heading(suite))],
        "troubles": suite.warnings,
        "failures": list(suite_report.failed_lines(suite)),
        "tables": tables,
        "goals": goals_table(suite) if suite.candidate else None,
        "figures": figures,
        **common.circumstances(
            suite,
            [*suite.allocators, *suite.floors],
            {"suite": suite.suite, **asdict(suite.settings)},
        ),
        "reading": "reading-suite.html",
        "quick": f"{QUICK:g}",
        "contents": [
            ("verdict", "Verdict"),
            *((f"s-{figure.name}", figure.title) for figure in figures),
            *([("goals", "Goals")] if suite.candidate else []),
            ("workloads", "All workloads"),
            *common.LAST_CONTENTS,
        ],
    }
    return common.Report(
        name="bench",
        title=page["heading"],
        summary="; ".join(f"{label.lower()}: {text}" for label, text in sentences),
        template="suite.html",
        page=page,
        figures=figures,
        markdown=texts.markdown(suite.study),
        csv=texts.to_csv(suite.study),
        data=asdict(suite.study),
        thin=thin,
    )


def thin(data: dict[str, Any]) -> None:
    for part in data["parts"]:
        for sample in part["samples"]:
            sample["measurement"].pop("series", None)


def _labelled(line: str) -> tuple[str, str]:
    """The terminal's lines begin with a word and spaces."""
    label, _, text = line.partition(" ")
    return common.capital(label), text.strip()


def _tiles(suite: SuiteResults) -> list[common.Tile]:
    """The candidate's means."""
    overall = next((o for o in suite.analysis.overall if o.name == suite.candidate), None)
    if overall is None:
        return []
    quick = suite.analysis.quick_memory
    items = [
        ("Time", overall.time, "of the fastest peer of each workload"),
        ("Memory", overall.memory, "of the smallest peer"),
        ("Memory, quick peers", quick, f"of the smallest within {QUICK:g} times the best time"),
    ]
    tiles = []
    for label, mean, what in items:
        if mean is None or mean.ratio is None:
            continue
        interval = suite_report.mean_number(mean).with_interval().partition(" ")[2]
        below = mean.high is not None and mean.high < 1.0
        mark = "better" if below else ""
        tiles.append(common.Tile(label, three_digits(mean.ratio), f"{interval} {what}", mark))
    return tiles


# --- tables ---------------------------------------------------------------------------------------


def heat_table(suite: SuiteResults, which: str) -> DataTable:
    """Workloads by allocators: the ratio to the best peer, tinted, the candidate first."""
    names = suite_report.in_order(suite)
    columns = [Column("workload", left=True)]
    columns += [Column(name, hint=full_name(suite.allocator(name))) for name in names]
    columns.append(Column("1.00 is", left=True))
    rows = []
    for runs, workload in zip(suite.runs, suite.analysis.workloads, strict=True):
        if which == "time" or runs.workload.memory:
            rows.append(_heat_row(workload, which, names))
    means = {o.name: o.time if which == "time" else o.memory for o in suite.analysis.overall}
    last = [Cell(suite_report.MEAN)]
    for name in names:
        number = suite_report.mean_number(means[name])
        mark = "" if number.ratio is None else tint(number.ratio)
        last.append(Cell(number.plain(), mark, number.with_interval()))
    rows.append([*last, Cell(suite_report.BY_DEFINITION)])
    caption = f"{which.capitalize()} as a ratio to the best peer of each row; below 1.00 is better"
    return DataTable(caption, columns, rows)


def _heat_row(workload: WorkloadAnalysis, which: str, names: list[str]) -> list[Cell]:
    best = workload.fastest_peer if which == "time" else workload.smallest_peer
    scores = {score.name: score for score in workload.scores}
    cells = [_heat_cell(scores.get(name), best, which) for name in names]
    return [
        Cell(workload.workload),
        *cells,
        Cell(suite_report.best_with_median(workload, best, which)),
    ]


def _heat_cell(score: Score | None, best: str | None, which: str) -> Cell:
    if score is None:
        return Cell("-", "muted")
    if score.failures:
        hint = score.failure.text if score.failure else ""
        return Cell("failed", "failed", hint)
    if score.name == best:
        return Cell("1.00", "even", "the best peer")
    summary = score.time if which == "time" else score.memory
    if summary is None or summary.ratio is None:
        return Cell("-", "muted")
    estimate = summary.ratio
    interval = ""
    if estimate.low is not None and estimate.high is not None:
        interval = f"95 % interval {three_digits(estimate.low)} to {three_digits(estimate.high)}"
    return Cell(three_digits(estimate.ratio), tint(estimate.ratio), interval)


def tint(ratio: float) -> str:
    """The mark of a ratio's step."""
    return next(mark for most, mark in STEPS if ratio <= most)


def goals_table(suite: SuiteResults) -> DataTable:
    """The candidate's verdict in each workload: time, memory among the quick, distance to floor."""
    columns = [
        Column("workload", left=True),
        Column("time to the fastest peer"),
        Column("verdict", left=True),
        Column("memory to the smallest quick peer"),
        Column("verdict", left=True),
        Column("time to the best floor"),
    ]
    return DataTable(
        f"Goals of {suite.candidate}, with 95 % confidence intervals",
        columns,
        [list(_goal_cells(suite, each)) for each in suite.analysis.workloads],
    )


def _goal_cells(suite: SuiteResults, workload: WorkloadAnalysis) -> Iterator[Cell]:
    score = workload.score(suite.candidate or "")
    yield Cell(workload.workload)
    time = score.time.ratio if score.time else None
    yield Cell(_interval(time) if not score.failures else "failed")
    yield _verdict_cell(suite_report.goal_of_time(suite, workload))
    yield Cell(_interval(workload.quick_memory))
    yield _verdict_cell(suite_report.verdict(workload.quick_memory))
    floor = f" ({workload.best_floor})" if workload.best_floor and score.to_floor else ""
    yield Cell(_interval(score.to_floor) + floor)


def _interval(estimate: RatioEstimate | None) -> str:
    return "" if estimate is None else suite_report.number_of(estimate).with_interval()


def _verdict_cell(found: Verdict | None) -> Cell:
    if found is None:
        return Cell("")
    return Cell(found.value, common.MARKS.get(STYLES.get(found, ""), ""))
