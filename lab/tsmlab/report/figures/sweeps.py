"""The figures of a sweep: each metric over a parameter, a line for each allocator."""

import math
from collections.abc import Iterator, Mapping, Sequence

from tsmlab import stats
from tsmlab.analysis import logs_by_round
from tsmlab.metrics import MetricSpec
from tsmlab.render import point_metrics
from tsmlab.report.figures import lines
from tsmlab.report.figures.canvas import Figure, render
from tsmlab.report.figures.of_comparison import Look
from tsmlab.report.tables import DataTable, of_texts
from tsmlab.results import Comparison, Sample
from tsmlab.sweep import Parameter, describe
from tsmlab.wording import quantity

# More panels than this make a figure too long to look at.
MOST_PANELS = 8
# From this ratio of the largest value to the smallest, a parameter's axis is logarithmic.
LOG_FROM = 10.0

# A cell's mean with its interval.
Level = tuple[float, float, float]


def figures(comparison: Comparison, look: Look) -> Iterator[Figure]:
    """One for each metric that the tables have."""
    parameter = next((p for p in comparison.parameters if p.is_numeric), None)
    parameter = parameter or next((p for p in comparison.parameters if len(p.values) > 1), None)
    if parameter is not None:
        for spec in point_metrics(comparison):
            yield _figure(comparison, look, parameter, spec)


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
        middle = sum(logs) / len(logs)
        low = high = middle
        if len(logs) > 1:
            _, low, high = stats.mean_interval(stats.as_vector(logs))
        found[point, name] = (math.exp(middle), math.exp(low), math.exp(high))
    return found


def panels_of(
    comparison: Comparison, look: Look, parameter: Parameter, spec: MetricSpec
) -> list[lines.Panel]:
    """A panel for each combination of the other parameters that has anything."""
    levels = levels_of(comparison, spec)
    places, _ = _axis(parameter)
    panels = []
    for title, indices in _panels(comparison, parameter):
        drawn = []
        for info in comparison.allocators:
            known = [i for i in indices if (i, info.name) in levels]
            at = {i: places[repr(comparison.points[i].values[parameter.name])] for i in known}
            if known:
                drawn.append(_line(info.name, known, at, levels, look))
        drawn += _laws(comparison, title, spec, look)
        if drawn:
            panels.append(lines.Panel(title, drawn))
    return panels


def _figure(comparison: Comparison, look: Look, parameter: Parameter, spec: MetricSpec) -> Figure:
    panels = panels_of(comparison, look, parameter, spec)
    _, x = _axis(parameter)
    shown = panels[:MOST_PANELS]
    laws = " Dotted: the fitted law." if any(line.model for p in shown for line in p.lines) else ""
    left_out = len(panels) - len(shown)
    more = f" {left_out} more panels are left out; the table has all points." if left_out else ""
    better = "Higher" if spec.higher_is_better else "Lower"
    count = len(comparison.allocators)
    title = f"{spec.name[:1].upper()}{spec.name[1:]} over {parameter.title}"
    return render(
        f"sweep-{spec.key.replace('_', '-')}",
        title,
        f"{spec.name} of {count} allocators at {len(comparison.points)} points.",
        f"{better} is better. Geometric means over the rounds with 95 % intervals.{laws}{more}",
        _table(comparison, spec, f"{title}, as drawn"),
        lines.panels(shown, x, lines.Scale(spec.name, spec.unit)),
    )


def _table(comparison: Comparison, spec: MetricSpec, caption: str) -> DataTable:
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
    return of_texts(caption, ["allocator", *heads], rows)


def _axis(parameter: Parameter) -> tuple[Mapping[str, float], lines.Scale]:
    """Where each value lies; words get places in their order."""
    values = parameter.values
    if not parameter.is_numeric:
        places = {repr(value): float(place) for place, value in enumerate(values)}
        return places, lines.Scale(parameter.title, "number", False, list(map(str, values)))
    log = min(values) > 0 and max(values) / min(values) >= LOG_FROM
    return {repr(v): float(v) for v in values}, lines.Scale(parameter.title, "number", log)


def _panels(comparison: Comparison, parameter: Parameter) -> list[tuple[str, list[int]]]:
    """One for each combination of the other parameters, with its points in order."""
    found: dict[str, list[int]] = {}
    for index, point in enumerate(comparison.points):
        others = {name: v for name, v in point.values.items() if name != parameter.name}
        found.setdefault(describe(others), []).append(index)
    return list(found.items())


def _line(
    name: str,
    indices: Sequence[int],
    at: Mapping[int, float],
    levels: Mapping[tuple[int, str], Level],
    look: Look,
) -> lines.Line:
    ordered = sorted(indices, key=lambda index: at[index])
    cells = [levels[index, name] for index in ordered]
    return lines.Line(
        name,
        [at[index] for index in ordered],
        [middle for middle, _, _ in cells],
        look.styles[name],
        name in look.emphasised,
        [low for _, low, _ in cells],
        [high for _, _, high in cells],
        marked=True,
    )


def _laws(comparison: Comparison, title: str, spec: MetricSpec, look: Look) -> list[lines.Line]:
    return [
        lines.through(curve.points, curve.label, look.styles[curve.allocator], True, model=True)
        for finding in comparison.findings
        for curve in finding.curves
        if curve.metric == spec.key
        and curve.allocator in look.emphasised
        and curve.points
        and describe(curve.fixed) == title
    ]
