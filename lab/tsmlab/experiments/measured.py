"""An experiment's numbers as its analyses need them: by point, allocator and metric.

Why: was a number timed in rounds or counted once, did a run fail, which points belong to one curve?
Every analysis asks that, and all must answer alike.
Refuses to: let a failure pass for a result. A cell in which even one run failed has values to
show, but none to compare.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tsmlab import stats
from tsmlab.experiments import model
from tsmlab.experiments.estimates import NO_INTERVAL, Logs, median_interval
from tsmlab.toml_tables import is_number

# The round of a run that was counted instead of timed.
COUNTED_ROUND = 0

# The unit of a metric that no file describes, by the end of its name.
UNITS: tuple[tuple[str, model.MetricUnit], ...] = (("seconds", "seconds"), ("bytes", "bytes"))


@dataclass(frozen=True)
class Series:
    """The points that differ in one parameter only, in the order of its values; `fixed` are the
    values of the others."""

    parameter: model.Parameter
    fixed: model.Point
    points: tuple[int, ...]


class Measured:
    """One experiment's cells, found by point and allocator.

    points: as sentences name them; where an analysis looks at a part of the sweep (focused),
    without what is the same in all of that part. chosen: the indices of that part."""

    def __init__(self, experiment: model.Experiment, processors: int | None) -> None:
        self.definition = experiment.definition
        self.points = experiment.points
        self.chosen = list(range(len(experiment.points)))
        self.allocators = experiment.allocators
        self.processors = processors
        self._cells = {(cell.point, cell.allocator): cell for cell in experiment.cells}
        known = (*experiment.definition.metrics, *model.BUILT_IN)
        self._metrics = {metric.name: metric for metric in reversed(known)}

    # --- metrics ----------------------------------------------------------------------------------

    def metric(self, name: str) -> model.Metric:
        """The one so named; what the file does not describe is described by its name."""
        if name in self._metrics:
            return self._metrics[name]
        units = (unit for end, unit in UNITS if name.endswith(end))
        unit: model.MetricUnit = next(units, "count")
        return model.Metric(name, name.replace("_", " "), unit, higher_is_better=False)

    def is_counted(self, name: str) -> bool:
        """Counted in a run of its own, so that there is one number for each cell."""
        if name in self._metrics:
            return self._metrics[name].source == "causes"
        return not any(name in run.values for cell in self._cells.values() for run in cell.runs)

    def summaries(self) -> list[model.CellSummary]:
        """Every metric of every cell that has one, in the order of points and allocators."""
        names = dict.fromkeys(reversed(self._metrics))
        for cell in self._cells.values():
            for run in cell.runs:
                names.update(dict.fromkeys(run.values))
        found = (
            self.summary(point, allocator, name)
            for point in range(len(self.points))
            for allocator in self.allocators
            for name in names
        )
        return [summary for summary in found if summary is not None]

    def summary(self, point: int, allocator: str, name: str) -> model.CellSummary | None:
        """Of the runs that did not fail; None if there is none."""
        values = list(self.shown(point, allocator, name).values())
        if not values:
            return None
        interval = NO_INTERVAL if self.is_counted(name) else median_interval(values)
        return model.CellSummary(
            point=point,
            allocator=allocator,
            metric=name,
            runs=len(values),
            median=stats.median(values),
            low=interval.low,
            high=interval.high,
            minimum=min(values),
            maximum=max(values),
            method=interval.method,
        )

    # --- values -----------------------------------------------------------------------------------

    def cell(self, point: int, allocator: str) -> model.Cell | None:
        return self._cells.get((point, allocator))

    def shown(self, point: int, allocator: str, name: str) -> dict[int, float]:
        """By round, of the runs that did not fail; what was counted is in one made-up round."""
        cell = self.cell(point, allocator)
        if cell is None:
            return {}
        if self.is_counted(name):
            counts = {} if cell.causes is None else cell.causes.counts
            values = {COUNTED_ROUND: counts[name]} if name in counts else {}
        else:
            values = cell.values(name)
        return {number: value for number, value in values.items() if math.isfinite(value)}

    def values(self, point: int, allocator: str, name: str) -> dict[int, float]:
        """As shown(), and empty if a run of the cell failed."""
        return {} if self.failures(point, allocator) else self.shown(point, allocator, name)

    def logs(self, point: int, allocator: str, name: str) -> Logs:
        """The logarithms of values(); empty if even one value has none."""
        values = self.values(point, allocator, name)
        if any(value <= 0.0 for value in values.values()):
            return {}
        return {number: math.log(value) for number, value in values.items()}

    def quotients(
        self, point: int, allocator: str, name: str, over: str | None
    ) -> dict[int, float]:
        """The metric's values over another one's of the same round, or as they are without one.
        A value that was counted once divides, or is divided by, every round's value."""
        values = self.values(point, allocator, name)
        if over is None:
            return values
        below = self.values(point, allocator, over)
        if self.is_counted(over) and not self.is_counted(name):
            below = dict.fromkeys(values, below[COUNTED_ROUND]) if below else {}
        elif self.is_counted(name) and not self.is_counted(over):
            values = dict.fromkeys(below, values[COUNTED_ROUND]) if values else {}
        pairs = ((number, value, below.get(number, 0.0)) for number, value in values.items())
        ratios = {number: value / divisor for number, value, divisor in pairs if divisor > 0.0}
        return {number: ratio for number, ratio in ratios.items() if math.isfinite(ratio)}

    def has(self, name: str) -> bool:
        """Whether any of the chosen points has a figure of the metric."""
        return any(self.shown(point, who, name) for point in self.chosen for who in self.allocators)

    def failures(self, point: int, allocator: str) -> int:
        cell = self.cell(point, allocator)
        return 0 if cell is None else sum(run.failure is not None for run in cell.runs)

    def counts(self, point: int, allocator: str) -> dict[str, float]:
        """The counts of the cell, and the medians of the other quantities of its runs: an analysis
        explains by either."""
        cell = self.cell(point, allocator)
        if cell is None:
            return {}
        names = {name for run in cell.runs for name in run.values}
        medians = {
            name: stats.median(list(values.values()))
            for name in names
            if (values := self.shown(point, allocator, name))
        }
        return medians | (cell.causes.counts if cell.causes is not None else {})

    # --- points -----------------------------------------------------------------------------------

    def focused(self, request: model.AnalysisRequest) -> tuple[Measured, model.Point]:
        """The points of a request by its option `at`, and the values that this fixes."""
        option = request.options.get("at")
        wanted: model.Point = dict(option) if isinstance(option, Mapping) else {}
        part = copy.copy(self)
        part.chosen = [
            index
            for index in self.chosen
            if all(self.points[index].get(name) == value for name, value in wanted.items())
        ]
        part.points = [
            {name: value for name, value in point.items() if name not in wanted}
            for point in self.points
        ]
        return part, wanted

    def swept(self, request: model.AnalysisRequest) -> model.Parameter | None:
        """The parameter that a request names; without one, the first whose values are numbers, or
        the first, if any is swept."""
        swept = self.definition.parameters
        if request.parameter is None:
            numeric = [each for each in swept if all(is_number(v) for v in each.values)]
            return next(iter([*numeric, *swept]), None)
        return next((each for each in swept if each.name == request.parameter), None)

    def curve(self, series: Series, allocator: str, name: str) -> tuple[list[float], list[Logs]]:
        """The parameter's values, as far as they are numbers above 0, and the metric's logarithms
        there; of the points that have any."""
        values = {index: self.points[index][series.parameter.name] for index in series.points}
        found = [
            (float(value), logs)
            for index, value in values.items()
            if is_number(value) and value > 0 and (logs := self.logs(index, allocator, name))
        ]
        return [x for x, _ in found], [logs for _, logs in found]

    def series(self, parameter: model.Parameter) -> list[Series]:
        """The chosen points in curves over the parameter, one for each combination of the others;
        none where the parameter is fixed."""
        groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for index in self.chosen:
            point = self.points[index]
            if parameter.name in point:
                rest = {n: v for n, v in point.items() if n != parameter.name}
                key = tuple(sorted((n, repr(v)) for n, v in rest.items()))
                groups.setdefault(key, []).append(index)
        found = []
        for members in groups.values():
            fixed = {n: v for n, v in self.points[members[0]].items() if n != parameter.name}
            ordered = self._in_order(parameter, members)
            found.append(Series(parameter, fixed, tuple(ordered)))
        return found

    def _in_order(self, parameter: model.Parameter, members: Sequence[int]) -> list[int]:
        values = {index: self.points[index][parameter.name] for index in members}
        if all(is_number(value) for value in values.values()):
            return sorted(members, key=lambda index: float(values[index]))
        return list(members)

    def names_for(self, request: model.AnalysisRequest) -> list[str]:
        """The allocators that an analysis is about: those that match its option, or all."""
        patterns = request.options.get("allocators")
        if not isinstance(patterns, list) or not patterns:
            return list(self.allocators)
        return [
            name for name in self.allocators if any(fnmatchcase(name, str(p)) for p in patterns)
        ]


def number_option(request: model.AnalysisRequest, name: str, default: float) -> float:
    """A positive number among the options; what is none is as if it were not there."""
    value = request.options.get(name)
    return float(value) if is_number(value) and value > 0 else default
