"""Numbers, points and lists as the findings of all analyses word them.

Why: every analysis must word the same fact in the same way, or the reader looks for a difference
that is not there.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from tsmlab.experiments.measured import Measured
from tsmlab.experiments.model import (
    AnalysisRequest,
    Estimate,
    Finding,
    FittedCurve,
    MetricUnit,
    Parameter,
    Point,
)
from tsmlab.toml_tables import is_number
from tsmlab.wording import names, quantity

# Of more figures than these, the least and the largest are told.
TOLD = 4


def fixed(value: float, digits: int = 2) -> str:
    """With so many digits behind the point, and no minus before nothing."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0.0 else text


def with_interval(estimate: Estimate, digits: int = 2) -> str:
    """1.84 [1.75, 1.93], or without the interval where there is none."""
    return _told(estimate, lambda value: fixed(value, digits))


def _told(estimate: Estimate, form: Callable[[float], str]) -> str:
    text = form(estimate.value)
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{form(estimate.low)}, {form(estimate.high)}]"


def ratio(estimate: Estimate) -> str:
    """With a third digit where it is close to 1."""
    return with_interval(estimate, 3 if abs(math.log(estimate.value)) < 0.05 else 2)


def measure(estimate: Estimate, unit: MetricUnit) -> str:
    return _told(estimate, lambda value: quantity(value, unit))


def figures(told: Sequence[tuple[float, str]]) -> str:
    """Each value's text from the least to the largest; of many the two extremes."""
    texts = [text for _, text in sorted(told)]
    if len(texts) <= TOLD:
        return "; ".join(texts)
    return f"from {texts[0]} to {texts[-1]}, {len(texts)} in all"


# --- points ---------------------------------------------------------------------------------------


def noun(parameter: Parameter) -> str:
    """What a sentence calls it: "threads" for "number of threads", "iterations" for "iterations of
    2,000 allocations"."""
    title = parameter.title.strip().removeprefix("number of ").split(",")[0].split(" of ")[0]
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,g}"
    return f"{value:,}" if is_number(value) else str(value)


def setting(parameter: Parameter, value: object) -> str:
    """4 threads; 1 thread; growth 64; shape series."""
    words = noun(parameter)
    plural = words.endswith("s") and not words.endswith("ss") and "," not in parameter.title
    if is_number(value) and plural:
        return f"{plain(value)} {words.removesuffix('s') if value == 1 else words}"
    return f"{parameter.name.replace('_', ' ')} {plain(value)}"


def place(data: Measured, point: Point) -> str:
    """A point: "4 threads, shape series"; empty where nothing is swept."""
    known = {each.name: each for each in data.definition.parameters}
    return ", ".join(setting(known[n], v) for n, v in point.items() if n in known)


def at(data: Measured, *indices: int) -> str:
    """ " at 4 threads", " at 3 points", " everywhere", or nothing: to stand behind a clause."""
    points = [data.points[index] for index in indices]
    if not any(points):
        return ""
    if len(points) > 1 and len(points) == len(data.chosen):
        return " everywhere"
    if len(points) > TOLD:
        return f" at {len(points)} of {len(data.chosen)} points"
    return f" at {names([place(data, point) for point in points])}"


def label(data: Measured, name: str, point: Point) -> str:
    """An allocator's curve, where each allocator may have several: "glibc (shape circle)"."""
    where = place(data, point)
    return f"{name} ({where})" if where else name


# --- findings -------------------------------------------------------------------------------------


CONFIRMED = "confirmed"
REFUTED = "refuted"
UNRESOLVED = "unresolved"
CANNOT_TELL = "cannot be told"


def row(
    request: AnalysisRequest,
    verdict: str,
    allocators: Sequence[str],
    text: str,
    estimates: Mapping[str, Estimate],
    curves: Sequence[FittedCurve] = (),
) -> Finding:
    return Finding(
        kind=request.kind,
        metric=request.metric,
        allocators=list(dict.fromkeys(allocators)),
        verdict=verdict,
        estimates=dict(estimates),
        curves=list(curves),
        text=text,
    )


def cannot_tell(request: AnalysisRequest, why: str, allocators: Sequence[str] = ()) -> Finding:
    """`why`: a whole sentence."""
    return row(request, CANNOT_TELL, allocators, why, {})
