"""The page of experiments: the answers in short, then each experiment with all that supports it.

Why: a question gets the answer first, then the figure that shows it, then the causes.
Refuses to: mix our figures with those of the reports, which were measured on other machines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tsmlab.experiments import text as experiment_text
from tsmlab.experiments.model import CellSummary, Experiment, ExperimentResults, Metric, Reported
from tsmlab.metrics import Unit
from tsmlab.report.figures import of_experiments, sweeps
from tsmlab.report.figures.canvas import Figure
from tsmlab.report.figures.sweeps import describe
from tsmlab.report.pages.common import LAST_CONTENTS, Report, circumstances
from tsmlab.report.tables import Cell, Column, DataTable, of_texts
from tsmlab.report.theme import Style, styles_for
from tsmlab.text import slug
from tsmlab.wording import counted, quantity, rounds

# A table of medians has a column for each point up to so many; else a row for each.
MOST_POINTS_ACROSS = 12


@dataclass(frozen=True)
class Section:
    """One experiment as the template shows it."""

    anchor: str
    title: str
    question: str
    source: str
    how: str
    verdicts: list[tuple[str, str]]
    reading: str
    figures: list[Figure]
    medians: list[DataTable]
    reported: list[tuple[Reported, DataTable]]
    causes: list[DataTable]
    cause_notes: list[str]
    maps: list[Figure]
    maps_note: str
    failures: list[str]
    settings: DataTable

    @property
    def short(self) -> str:
        """The first verdict, for the overview."""
        return ": ".join(self.verdicts[0]) if self.verdicts else "No analysis is asked for."


def report(results: ExperimentResults) -> Report:
    """The whole report of a run of experiments."""
    styles = styles_for([info.name for info in results.allocators])
    sections = [_section(each, styles) for each in results.experiments]
    count = len(sections)
    what = counted(count, "experiment")
    title = sections[0].title if count == 1 else f"{what}, {len(results.allocators)} allocators"
    stop = f"; stopped: {results.stop.text}"
    page: dict[str, Any] = {
        "title": title,
        "kind": "experiments",
        "heading": title,
        "kicker": f"{what} on {len(results.allocators)} allocators, seed {results.seed}{stop}",
        "sections": sections,
        "names": [info.name for info in results.allocators],
        "troubles": experiment_text.troubles(results),
        "failures": [line for section in sections for line in section.failures],
        **circumstances(
            results,
            results.allocators,
            {"seed": results.seed, "cpus": results.cpus, "changed": results.changed},
        ),
        "reading": "reading-experiments.html",
        "contents": [
            ("answers", "The answers in short"),
            *((section.anchor, section.title) for section in sections),
            *LAST_CONTENTS,
        ],
    }
    names = (
        "-".join(e.definition.name for e in results.experiments) if count == 1 else "experiments"
    )
    return Report(
        name=slug(names),
        title=title,
        summary=sections[0].short if count == 1 else ", ".join(s.title for s in sections),
        template="experiments.html",
        page=page,
        figures=[f for section in sections for f in (*section.figures, *section.maps)],
        markdown=experiment_text.markdown(results),
        csv=experiment_text.to_csv(results),
        data=asdict(results),
        thin=thin,
    )


def thin(data: dict[str, Any]) -> None:
    """Curves, maps and counts by thread are most of the data; the analysis can be made again."""
    for experiment in data["experiments"]:
        experiment["analysis"] = None
        for cell in experiment["cells"]:
            if cell["causes"]:
                cell["causes"]["memory"] = None
                cell["causes"]["maps"] = []
                cell["causes"]["threads"] = []


def _section(experiment: Experiment, styles: Mapping[str, Style]) -> Section:
    definition = experiment.definition
    subject = of_experiments.subject_of(experiment, styles)
    maps, note = of_experiments.maps(subject)
    notes = {n for cell in experiment.cells if cell.causes for n in cell.causes.notes}
    done = rounds(experiment_text.rounds_done(experiment))
    return Section(
        anchor=subject.anchor,
        title=definition.title or definition.name,
        question=definition.question,
        source=definition.source,
        how=f"{counted(len(experiment.points), 'point')}, "
        f"{len(experiment.allocators)} allocators, {done}",
        verdicts=experiment_text.verdicts(experiment),
        reading=definition.answers,
        figures=list(of_experiments.figures(subject)),
        medians=medians_tables(experiment),
        reported=[(each, _reported_table(each)) for each in definition.reported],
        causes=cause_tables(experiment),
        cause_notes=sorted(notes),
        maps=maps,
        maps_note=note,
        failures=experiment_text.failed_lines(experiment),
        settings=_settings(experiment),
    )


# --- tables ---------------------------------------------------------------------------------------


def medians_tables(experiment: Experiment) -> list[DataTable]:
    """A table of medians of the main metric, then of those that no figure shows the numbers of."""
    definition = experiment.definition
    drawn = {plot.metric for plot in definition.plots}
    others = [m.name for m in definition.metrics if m.name not in drawn]
    names = [definition.main_metric.name, *others]
    metrics = [definition.metric(name) for name in dict.fromkeys(names)]
    return [table for metric in metrics if (table := _medians(experiment, metric)) is not None]


def _medians(experiment: Experiment, metric: Metric) -> DataTable | None:
    known = sweeps.summaries_of(experiment, metric.name)
    if not known:
        return None
    points = sorted({point for point, _ in known})
    shown = [name for name in experiment.allocators if any((p, name) in known for p in points)]
    best = {point: _best(known, point, metric) for point in points}

    def cell(point: int, name: str) -> Cell:
        summary = known.get((point, name))
        if summary is None:
            return Cell(experiment_text.missing(experiment.cell(point, name)), "failed")
        mark = "better" if len(shown) > 1 and name == best[point] else ""
        return Cell(quantity(summary.median, metric.unit), mark)

    heads = [sweeps.heading(experiment.points[point]) or metric.title for point in points]
    better = "higher" if metric.higher_is_better else "lower"
    by = sweeps.swept(experiment.definition)
    caption = f"{metric.title}{by}: medians ({better} is better; the best is green)"
    if len(points) <= MOST_POINTS_ACROSS:
        columns = [Column("allocator", left=True), *(Column(head) for head in heads)]
        rows = [[Cell(name), *(cell(point, name) for point in points)] for name in shown]
        return DataTable(caption, columns, rows)
    columns = [Column("point", left=True), *(Column(name) for name in shown)]
    rows = [
        [Cell(head), *(cell(point, name) for name in shown)]
        for point, head in zip(points, heads, strict=True)
    ]
    return DataTable(caption, columns, rows)


def _best(known: Mapping[tuple[int, str], CellSummary], point: int, metric: Metric) -> str:
    own = {name: s.median for (p, name), s in known.items() if p == point}
    choose = max if metric.higher_is_better else min
    return choose(own, key=lambda name: own[name])


def _reported_table(reported: Reported) -> DataTable:
    rows = [["" if v is None else str(v) for v in row] for row in reported.rows]
    name = reported.report  # reports have letters; whatever is longer says itself what it is
    return of_texts(f"Report {name}" if len(name) == 1 else name, reported.columns, rows)


def _settings(experiment: Experiment) -> DataTable:
    definition = experiment.definition
    rows = [
        ["program", definition.program],
        ["arguments", " ".join(definition.arguments)],
        *([p.title, ", ".join(map(str, p.values))] for p in definition.parameters),
        ["allocators", ", ".join(experiment.allocators)],
        ["a run's limit", quantity(definition.timeout_seconds, "seconds")],
        ["file", definition.file],
        ["its SHA-256", definition.sha256],
    ]
    cells = [[Cell(name), Cell(value, "wrap")] for name, value in rows]
    return DataTable("What was run", [Column("", left=True), Column("", left=True)], cells)


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


def cause_tables(experiment: Experiment) -> list[DataTable]:
    """Of dozens of counts those that tell the allocators apart, since a table of all hides the two
    that explain the result. One for each point where anything was counted, the last one's first."""
    points = sorted({cell.point for cell in experiment.cells if cell.causes}, reverse=True)
    return [table for point in points if (table := _table(experiment, point)) is not None]


def _table(experiment: Experiment, point: int) -> DataTable | None:
    counts = {
        cell.allocator: cell.causes.counts
        for cell in experiment.cells
        if cell.point == point and cell.causes and cell.causes.counts
    }
    names = telling(list(counts.values()))
    if not names:
        return None
    where = describe(experiment.points[point], experiment.definition)
    shown = [name for name in experiment.allocators if name in counts]
    columns = [Column("allocator", left=True), *(Column(_title(n), hint=n) for n in names)]
    rows = [
        [Cell(allocator), *(_cell(counts[allocator].get(name), name) for name in names)]
        for allocator in shown
    ]
    at = f" at {where}" if where else ""
    return DataTable(f"Counted{at}, in runs that were not timed", columns, rows)


def telling(counts: Sequence[dict[str, float]]) -> list[str]:
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


def _cell(value: float | None, name: str) -> Cell:
    if value is None:
        return Cell("", "muted")
    unit: Unit = "count"
    if name.endswith("_ns"):
        return Cell(quantity(value / 1e9, "seconds"))
    if name.endswith("_bytes") or "_bytes_" in name:
        unit = "bytes"
    return Cell(quantity(value, unit), "muted" if value == 0 else "", f"{value:,.0f}")
