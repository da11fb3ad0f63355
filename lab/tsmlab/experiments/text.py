"""What a person reads of experiments: a table and an answer for each; the same as Markdown; CSV.

Why: the answer of an experiment belongs where its question was typed, beside the figures on which
it rests.
Refuses to: decide anything. Medians are all that is computed here; the answers come from
analysis.py.
"""

import math
from collections.abc import Iterator, Sequence

from tsmlab import export, stats, tables, warnings
from tsmlab.experiments import model
from tsmlab.experiments.catalogue import describe_point
from tsmlab.experiments.plan import FEWEST_ROUNDS
from tsmlab.render import failure_lines, full_name
from tsmlab.results import Row, Trouble
from tsmlab.tables import ROOMY, Column, Sheet, table_width
from tsmlab.wording import counted, names, quantity, rounds, three_digits

BEST = "*"
FAILED = "failed"
NOTHING = "-"


# --- medians -------------------------------------------------------------------------------------


def median(cell: model.Cell, metric: model.Metric) -> float | None:
    """Of the runs that did not fail; what was counted once is its own median."""
    if metric.source == "causes":
        return cell.causes.counts.get(metric.name) if cell.causes else None
    values = list(cell.values(metric.name).values())
    return stats.median(values) if values else None


def _shown_metric(experiment: model.Experiment) -> model.Metric:
    """The first of its metrics that has a value anywhere: one may need causes, which were not asked
    for."""
    definition = experiment.definition
    for metric in definition.metrics:
        if any(median(cell, metric) is not None for cell in experiment.cells):
            return metric
    return definition.main_metric


def _heads(experiment: model.Experiment) -> list[tuple[str, int, model.Metric]]:
    """The columns of numbers: a header, a point and a metric each. The main metric at each point;
    where there is only one point, every metric with a value."""
    definition = experiment.definition
    if len(experiment.points) > 1:
        main = _shown_metric(experiment)
        return [
            ("\n".join(map(str, values.values())), point, main)
            for point, values in enumerate(experiment.points)
        ]
    metrics = {m.name: m for m in (*definition.metrics, definition.main_metric)}
    metrics.setdefault(model.PEAK_BYTES, definition.metric(model.PEAK_BYTES))
    return [
        (metric.title, 0, metric)
        for metric in metrics.values()
        if metric == definition.main_metric
        or any(median(cell, metric) is not None for cell in experiment.cells)
    ]


def _columns(experiment: model.Experiment, titles: dict[str, str]) -> list[Column]:
    """Allocators with their medians; the best over all points comes first."""
    order = sorted(experiment.allocators, key=lambda name: _rank(experiment, name))
    columns = [Column("allocator", [tables.Cell(titles[name]) for name in order], left=True)]
    for text, point, metric in _heads(experiment):
        cells = [experiment.cell(point, name) for name in order]
        columns.append(Column(text, _numbers(cells, metric)))
    return columns


def _numbers(cells: Sequence[model.Cell | None], metric: model.Metric) -> list[tables.Cell]:
    """A column's cells, the best of several marked."""
    values = [median(cell, metric) if cell else None for cell in cells]
    known = [value for value in values if value is not None]
    best = (max if metric.higher_is_better else min)(known, default=None)
    found = []
    for cell, value in zip(cells, values, strict=True):
        if value is None:
            found.append(tables.Cell(missing(cell)))
        elif value == best and len(set(known)) > 1:
            found.append(tables.Cell(f"{_number(value, metric)}{BEST}", "green"))
        else:
            found.append(tables.Cell(_number(value, metric)))
    return found


def _number(value: float, metric: model.Metric) -> str:
    """Below a tenth, a plain number needs more digits than two behind the point."""
    if metric.unit == "number" and abs(value) >= 0.1:
        return three_digits(value)
    return quantity(value, metric.unit)


def missing(cell: model.Cell | None) -> str:
    """What stands in place of a number."""
    return FAILED if cell and any(run.failure for run in cell.runs) else NOTHING


def _rank(experiment: model.Experiment, name: str) -> tuple[int, float]:
    """By the mean of the logarithms of the main metric; those that lack points come later."""
    main = _shown_metric(experiment)
    found = []
    for point in range(len(experiment.points)):
        cell = experiment.cell(point, name)
        value = median(cell, main) if cell else None
        if value is not None and value > 0.0:
            found.append(math.log(value))
    mean = sum(found) / len(found) if found else 0.0
    return -len(found), -mean if main.higher_is_better else mean


# --- texts ---------------------------------------------------------------------------------------


def report(results: model.ExperimentResults, width: int, colours: bool = False) -> str:
    sheet = Sheet(width, colours)
    sheet.say(*_heading(results))
    for experiment in results.experiments:
        sheet.gap()
        definition = experiment.definition
        sheet.say(f"{definition.name}: {definition.title}", style="bold")
        sheet.say(definition.question, soft_wrap=False)
        sheet.say(_caption(experiment), style="dim")
        for part in _folded(_columns(experiment, _titles(results)), width):
            sheet.table(part)
        sheet.say(*failed_lines(experiment), style="red")
        sheet.say(*(f"{v}: {text}" for v, text in verdicts(experiment)), soft_wrap=False)
    return sheet.text


def _folded(columns: Sequence[Column], width: int) -> Iterator[list[Column]]:
    """The table in parts that are narrow enough, each with the allocators again."""
    part = [columns[0]]
    for column in columns[1:]:
        if len(part) > 1 and table_width([*part, column], ROOMY) > width:
            yield part
            part = [columns[0]]
        part.append(column)
    yield part


def _heading(results: model.ExperimentResults) -> Iterator[str]:
    count = counted(len(results.experiments), "experiment")
    yield f"{count}, seed {results.seed}; stopped: {results.stop.text}"


def _caption(experiment: model.Experiment) -> str:
    """How to read the table."""
    definition, done = experiment.definition, rounds_done(experiment)
    main = _shown_metric(experiment)
    what = "medians"
    if len(experiment.points) > 1:
        swept = ", ".join(parameter.title for parameter in definition.parameters)
        better = "higher" if main.higher_is_better else "lower"
        what = f"median of {main.title} ({better} is better), by {swept}"
    return f"{what}; {rounds(done)}; {BEST} the best median"


def rounds_done(experiment: model.Experiment) -> int:
    return max((run.round for cell in experiment.cells for run in cell.runs), default=0)


def _titles(results: model.ExperimentResults) -> dict[str, str]:
    return {info.name: full_name(info) for info in results.allocators}


def failed_cells(experiment: model.Experiment) -> list[model.Cell]:
    return [cell for cell in experiment.cells if any(run.failure for run in cell.runs)]


def verdicts(experiment: model.Experiment) -> list[tuple[str, str]]:
    """Each finding's verdict, as a sentence begins, and its text."""
    found = experiment.analysis.findings if experiment.analysis else []
    names = set(experiment.allocators)
    return [
        (v if v.split(" ")[0] in names else v[:1].upper() + v[1:], each.text)
        for each in found
        if (v := each.verdict)
    ]


def failed_lines(experiment: model.Experiment) -> list[str]:
    """Every failure, by cell."""
    lines = []
    for cell in failed_cells(experiment):
        failures = [run.failure for run in cell.runs if run.failure]
        where = describe_point(experiment.points[cell.point])
        name = f"{cell.allocator} at {where}" if where else cell.allocator
        row = Row(name, len(cell.runs), len(failures), failures[-1], cell.gave_up, {}, None, False)
        lines += failure_lines(name, row)
    return lines


def troubles(results: model.ExperimentResults) -> list[Trouble]:
    """What may be wrong with the measurements."""
    found = []
    if results.changed:
        changed = Trouble(
            "changed",
            f"changed during the run: {names(results.changed)}",
            "they were edited, built or installed anew",
            "measure again, and build elsewhere meanwhile: these numbers are of two versions",
        )
        found.append(changed)
    few = [e.definition.name for e in results.experiments if rounds_done(e) < FEWEST_ROUNDS]
    if few:
        cut_short = results.stop.reason in ("interrupted", "aborted")
        trouble = Trouble(
            "few-rounds",
            f"fewer than {rounds(FEWEST_ROUNDS)} of {names(few)}: intervals are wide, or missing",
            results.stop.text,
            "go on with --resume" if cut_short else "more rounds (-r)",
        )
        found.append(trouble)
    return [*found, *warnings.about_machine(results.machine)]


# --- files ---------------------------------------------------------------------------------------


def markdown(results: model.ExperimentResults) -> str:
    """The same report for a document, with date, machine and versions."""
    lines = [f"- {line}" for line in _heading(results)]
    for experiment in results.experiments:
        lines += ["", *_markdown_experiment(results, experiment)]
    lines += ["", *(f"- *warning* {t.symptom}. {t.cause}. {t.remedy}." for t in troubles(results))]
    lines += ["", tables.measured_on(results.machine, results.created), ""]
    lines += [f"- {full_name(info)}" for info in results.allocators]
    return "\n".join(lines) + "\n"


def _markdown_experiment(
    results: model.ExperimentResults, experiment: model.Experiment
) -> Iterator[str]:
    definition = experiment.definition
    yield from (f"## {definition.title}", "", definition.question, "", _caption(experiment), "")
    yield from tables.markdown_table(_columns(experiment, _titles(results)))
    for reported in definition.reported:
        yield from ("", f"Reported ({reported.report}; {reported.machine}):", "")
        yield from tables.markdown_table(_reported_columns(reported))
        if reported.note:
            yield from ("", reported.note)
    if failures := failed_lines(experiment):
        yield from ("", *(f"- {line.strip()}" for line in failures))
    if found := verdicts(experiment):
        yield from ("", *(f"- **{verdict}.** {text}" for verdict, text in found))
    if definition.answers:
        yield from ("", definition.answers.strip())


def _reported_columns(reported: model.Reported) -> list[Column]:
    return [
        Column(head, [tables.Cell(str(row[index])) for row in reported.rows], left=index == 0)
        for index, head in enumerate(reported.columns)
    ]


CSV_BEFORE = ("experiment", "point", "parameters", "allocator", "round", "position", "started")


def to_csv(results: model.ExperimentResults) -> str:
    """One line for each run, failed ones included; numbers in base units."""
    metrics = {metric.name: None for metric in model.BUILT_IN}
    for experiment in results.experiments:
        for cell in experiment.cells:
            for run in cell.runs:
                metrics.update(dict.fromkeys(run.values))
    lines: list[list[object]] = []
    for experiment in results.experiments:
        for cell in experiment.cells:
            where = describe_point(experiment.points[cell.point])
            for run in cell.runs:
                failure = [run.failure.kind, run.failure.text] if run.failure else ["", ""]
                values = [run.values.get(name, "") for name in metrics]
                begin = [experiment.definition.name, cell.point, where, cell.allocator]
                begin += [run.round, run.position, run.started_seconds]
                lines.append([*begin, *values, *failure])
    return export.csv_lines([*CSV_BEFORE, *metrics, "failure", "failure_text"], lines)


formatted = export.formatter(csv=to_csv, markdown=markdown)
