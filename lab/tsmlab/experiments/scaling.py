"""How much of the work is serial, and where does the measured curve leave Amdahl's law?

Why: report E's curve falls, turns and rises; the law says how far it could have fallen.
Refuses to: call a departure what the rounds do not show.
"""

from dataclasses import dataclass

from tsmlab.experiments import amdahl, words
from tsmlab.experiments.amdahl import AmdahlFit, Departure
from tsmlab.experiments.estimates import complete_rounds
from tsmlab.experiments.measured import Measured, Series, number_option
from tsmlab.experiments.model import AnalysisRequest, Finding, FittedCurve, Parameter
from tsmlab.experiments.outcome import cannot_tell, row

# A law that is off by less than this describes the curve well enough.
LAW_MARGIN = 0.05
PER_THREAD = "per-thread"


@dataclass(frozen=True)
class Fitted:
    """One allocator's curve with the law fitted to it. label: the allocator, and the other
    parameters' values if there are any."""

    allocator: str
    label: str
    law: AmdahlFit
    left: Departure | None


def analyse(data: Measured, request: AnalysisRequest) -> Finding:
    allocators = data.names_for(request)
    metric = data.metric(request.metric)
    parameter = data.swept(request)
    if parameter is None:
        return cannot_tell(request, "No parameter is swept.", allocators)
    found = [
        fitted
        for series in data.series(parameter)
        for name in allocators
        if (fitted := _fitted(data, data.numeric(series), name, request)) is not None
    ]
    if not found:
        return cannot_tell(
            request,
            f"That takes two numbers of {words.noun(parameter)} up to the processors', with "
            "figures above 0 in a common round.",
            allocators,
        )
    told = [(each.law.serial.value, _text(each, parameter)) for each in found]
    processors = data.processors
    limit = "" if processors is None else f" on {processors} processors"
    return row(
        request,
        _verdict(found, parameter),
        [each.allocator for each in found],
        f"Serial fraction by Amdahl's law{limit}: {words.figures(told)}.",
        {f"serial fraction of {each.label}": each.law.serial for each in found},
        [_curve(each, metric.name) for each in found],
    )


def _fitted(data: Measured, series: Series, name: str, request: AnalysisRequest) -> Fitted | None:
    columns = {point: data.logs(point, name, request.metric) for point in series.points}
    columns = {point: logs for point, logs in columns.items() if logs}
    rounds, table = complete_rounds(list(columns.values()))
    if not rounds:
        return None
    threads = data.x(Series(series.parameter, series.fixed, tuple(columns)))
    per_thread = request.options.get("work") == PER_THREAD
    law = amdahl.fit(threads, table, data.processors, per_thread)
    if law is None:
        return None
    left = amdahl.leaves(law, number_option(request, "margin", LAW_MARGIN))
    return Fitted(name, words.label(data, name, series.fixed), law, left)


def _text(fitted: Fitted, parameter: Parameter) -> str:
    law = fitted.law
    beyond = {"": "", "above": " (slower with more)", "below": " (more than the law allows)"}
    text = f"{fitted.label} {words.with_interval(law.serial)}{beyond[law.limit]}"
    if fitted.left is None:
        return text
    off = words.ratio(fitted.left.ratio)
    return f"{text}, off by {off} at {words.setting(parameter, _whole(fitted.left.threads))}"


def _verdict(found: list[Fitted], parameter: Parameter) -> str:
    left = [each for each in found if each.left]
    if len(found) > 1:
        return f"the law is left by {len(left)} of {len(found)}"
    text = f"s = {words.with_interval(found[0].law.serial)}"
    if found[0].left is None:
        return text
    return f"{text}, left at {words.setting(parameter, _whole(found[0].left.threads))}"


def _curve(fitted: Fitted, metric: str) -> FittedCurve:
    law = fitted.law
    points = [list(pair) for pair in zip(law.threads, law.predicted, strict=True)]
    label = f"Amdahl's law, s = {words.fixed(law.serial.value)}"
    label = f"{label}{fitted.label.removeprefix(fitted.allocator)}"
    return FittedCurve(fitted.allocator, metric, label, points)


def _whole(value: float) -> float | int:
    return int(value) if value % 1 == 0 else value
