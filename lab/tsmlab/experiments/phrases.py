"""The words of the answers: ratios, intervals, points and lists, as a careful report writes them.

Why: every analysis must word the same fact in the same way, or the reader looks for a difference
that is not there.
Refuses to: show more digits than a measurement has, and to call a difference by its sign alone: it
is always said who has more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tsmlab.experiments.estimates import inverse
from tsmlab.experiments.measured import Measured, is_number
from tsmlab.experiments.model import Estimate, Metric, MetricUnit, Parameter, Point
from tsmlab.wording import quantity, three_digits

# From this ratio on, "1.62 times" is easier to grasp than "62 % more".
TIMES_FROM = 1.5
# The title of a metric that is a duration says so, or it is called time.
DURATIONS = ("time", "wall time", "seconds", "duration", "elapsed time", "execution time")


def and_list(items: Sequence[str]) -> str:
    """a, b and c."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def some(items: Sequence[str], limit: int = 6) -> str:
    """A list that does not get out of hand."""
    if len(items) <= limit:
        return and_list(items)
    return f"{', '.join(items[:limit])} and {len(items) - limit} more"


def number(value: float) -> str:
    """A count, a factor or an exponent, with three digits that say something."""
    size = abs(value)
    if size >= 1e6 and math.isfinite(value):
        return f"{value:,.0f}" if size < 1e9 else f"{value:.3g}"
    if size >= 99.95 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if size < 0.0995 else f"{value:.2f}" if size < 9.995 else f"{value:.1f}"


def fixed(value: float, digits: int = 2) -> str:
    """With so many digits behind the point, and no minus before nothing."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0.0 else text


def bracket(low: float | None, high: float | None, digits: int = 2) -> str:
    """An interval behind its number: " [1.75, 1.93]", or nothing."""
    if low is None or high is None:
        return ""
    return f" [{fixed(low, digits)}, {fixed(high, digits)}]"


def with_interval(estimate: Estimate, digits: int = 2) -> str:
    return fixed(estimate.value, digits) + bracket(estimate.low, estimate.high, digits)


def measure(value: float, unit: MetricUnit) -> str:
    """With its unit, as the tables write it; counts in full."""
    return number(value) if unit in ("count", "number") else quantity(value, unit)


def measure_with_interval(estimate: Estimate, unit: MetricUnit) -> str:
    text = measure(estimate.value, unit)
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{measure(estimate.low, unit)}, {measure(estimate.high, unit)}]"


def percent(fraction: float) -> str:
    """Of a difference: 3.2, 41; 0.04 for the small."""
    size = abs(fraction) * 100.0
    return fixed(fraction * 100.0, 0 if size >= 99.5 else 1 if size >= 0.1 else 2)


# --- ratios ---------------------------------------------------------------------------------------


def times(ratio: Estimate) -> str:
    """1.84 times [1.75, 1.93]."""
    if ratio.low is None or ratio.high is None:
        return f"{three_digits(ratio.value)} times"
    return f"{three_digits(ratio.value)} times [{_bound(ratio.low)}, {_bound(ratio.high)}]"


def _bound(ratio: float) -> str:
    return three_digits(ratio) if ratio < 1e6 else f"{ratio:.1e}"


def excess(ratio: Estimate) -> str:
    """14.1 % [12.0, 16.2], of a ratio to 1."""
    text = f"{percent(ratio.value - 1.0)} %"
    if ratio.low is None or ratio.high is None:
        return text
    return f"{text} [{percent(ratio.low - 1.0)}, {percent(ratio.high - 1.0)}]"


def shortfall(ratio: Estimate) -> str:
    """The same of a ratio below 1: by how much it falls short of it."""
    text = f"{percent(1.0 - ratio.value)} %"
    if ratio.low is None or ratio.high is None:
        return text
    return f"{text} [{percent(1.0 - ratio.high)}, {percent(1.0 - ratio.low)}]"


def is_duration(metric: Metric) -> bool:
    title = metric.title.lower().split(",")[0].split("(")[0].strip()
    return metric.unit == "seconds" and title in DURATIONS


def more_than(more: str, less: str, ratio: Estimate, metric: Metric) -> str:
    """Who has how much more of a metric than whom, as a clause; ratio is more's to less's."""
    large = ratio.value >= TIMES_FROM
    if is_duration(metric):
        if large:
            return f"{more} takes {times(ratio)} as long as {less}"
        return f"{more} takes {excess(ratio)} longer than {less}"
    if metric.unit == "count":
        if large:
            return f"{more} has {times(ratio)} as many {lower(metric.title)} as {less}"
        return f"{more} has {excess(ratio)} more {lower(metric.title)} than {less}"
    if large:
        return f"{lower(metric.title)} is {times(ratio)} as high under {more} as under {less}"
    return f"{lower(metric.title)} is {excess(ratio)} higher under {more} than under {less}"


def compared(first: str, second: str, ratio: Estimate, metric: Metric) -> str:
    """more_than(), whichever of the two has more; ratio is the first's to the second's."""
    if ratio.value >= 1.0:
        return more_than(first, second, ratio, metric)
    return more_than(second, first, inverse(ratio), metric)


def lower(title: str) -> str:
    """As it stands within a sentence: abbreviations keep their capitals."""
    return title if len(title) > 1 and title[1].isupper() else title[:1].lower() + title[1:]


def clause(data: Measured, text: str) -> str:
    """A clause as a sentence: a capital, unless it begins with the name of an allocator."""
    begins_with_name = any(text.startswith(name) for name in data.allocators)
    return f"{text if begins_with_name else capital(text)}."


def capital(clause: str) -> str:
    """At the beginning of a sentence, where no allocator's name stands there."""
    return clause[:1].upper() + clause[1:]


def in_metric(metric: Metric) -> str:
    """ " in peak memory"; nothing for a time, which needs no name."""
    return "" if is_duration(metric) else f" in {lower(metric.title)}"


# --- points ---------------------------------------------------------------------------------------


def noun(parameter: Parameter) -> str:
    """What a sentence calls it: "threads" for "number of threads", "iterations" for "iterations of
    2,000 allocations"."""
    words = parameter.title.strip().removeprefix("number of ").split(",")[0].split(" of ")[0]
    return lower(words)


def setting(parameter: Parameter, value: object) -> str:
    """4 threads; 1 thread; a growth of 64 bytes; growth = 64; or, for texts, shape series."""
    if not is_number(value):
        return f"{parameter.name.replace('_', ' ')} {value}"
    words = noun(parameter)
    if words.endswith("s") and not words.endswith("ss") and "," not in parameter.title:
        return f"{plain(value)} {words.removesuffix('s') if value == 1 else words}"
    name = parameter.name.replace("_", " ")
    unit = parameter.title.rpartition(",")[2].strip() if "," in parameter.title else ""
    return f"a {name} of {plain(value)} {unit}" if unit else f"{name} = {plain(value)}"


def plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,g}"
    return f"{value:,}" if is_number(value) else str(value)


def place(data: Measured, point: Point) -> str:
    """A point in words, texts behind numbers; empty where nothing is swept."""
    return at(data, point).removeprefix(" at ").removeprefix(" with ")


def label(data: Measured, name: str, point: Point) -> str:
    """An allocator's curve, where each allocator may have several: "glibc (circle)"."""
    known = {each.name: each for each in data.definition.parameters}
    texts = [
        setting(known[n], v) if is_number(v) else str(v) for n, v in point.items() if n in known
    ]
    return f"{name} ({', '.join(texts)})" if texts else name


def at(data: Measured, point: Point) -> str:
    """ " at 4 threads with shape series", or nothing: to stand behind a clause."""
    known = {each.name: each for each in data.definition.parameters}
    numbers = [setting(known[n], v) for n, v in point.items() if n in known and is_number(v)]
    texts = [setting(known[n], v) for n, v in point.items() if n in known and not is_number(v)]
    return (f" at {and_list(numbers)}" if numbers else "") + (
        f" with {and_list(texts)}" if texts else ""
    )


def at_points(data: Measured, indices: Sequence[int], denied: bool = False) -> str:
    """Several points behind a clause: " at 1, 2 and 4 threads", or nothing if nothing is swept.
    denied: the clause says that something is not so there."""
    points = [data.points[index] for index in indices]
    if not any(points):
        return ""
    if len(points) > 1 and len(points) == len(data.chosen):
        return " at any point" if denied else " at every point"
    if len(points) == 1:
        return at(data, points[0])
    together = _at_one_parameter(data, points)
    return together or f" at {len(points)} of {len(data.chosen)} points"


def _at_one_parameter(data: Measured, points: Sequence[Point]) -> str:
    """Where the points differ in one number only, its unit is said once."""
    first = points[0]
    moving = [name for name in first if any(point.get(name) != first[name] for point in points)]
    if len(moving) != 1:
        return ""
    parameter = next((p for p in data.definition.parameters if p.name == moving[0]), None)
    if parameter is None or not all(is_number(point.get(moving[0])) for point in points):
        return ""
    values = [plain(point[moving[0]]) for point in points]
    last = setting(parameter, points[-1][moving[0]])
    before, _, after = last.rpartition(values[-1])
    rest = {name: value for name, value in first.items() if name != moving[0]}
    return f" at {before}{and_list(values)}{after}{at(data, rest)}"


def key(data: Measured, name: str, point: Point) -> str:
    """An estimate's name: "ratio", or "ratio at 4 threads"."""
    return f"{name}{at(data, point)}"
