"""Is one allocator better than another, paired by rounds?

Why: the reports' central question (a heap per thread against one lock) and every one like it.
Refuses to: decide where the rounds do not, or to explain: counts that were asked for stand beside.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tsmlab import stats
from tsmlab.analysis import log_ratios
from tsmlab.experiments import words
from tsmlab.experiments.estimates import Logs, as_estimate, ratio_of
from tsmlab.experiments.measured import Measured, number_option
from tsmlab.experiments.model import AnalysisRequest, Estimate, Finding, Metric
from tsmlab.experiments.words import UNRESOLVED, cannot_tell, row
from tsmlab.stats import RatioEstimate, Verdict
from tsmlab.wording import names, quantity, rounds


@dataclass(frozen=True)
class Versus:
    """The first against the second at one point. verdict: the first is better, worse, ..."""

    point: int
    ratio: RatioEstimate
    verdict: Verdict
    rounds_more: int | None

    @property
    def estimate(self) -> Estimate:
        return as_estimate(self.ratio)


def versus(
    logs: Mapping[int, tuple[Logs, Logs]], metric: Metric, margin: float
) -> dict[int, Versus]:
    """By point, as far as rounds have both. Holm's family: the points."""
    ratios = {
        point: ratio
        for point, (first, second) in logs.items()
        if (ratio := ratio_of(log_ratios(first, second))) is not None
    }
    tested = [point for point, ratio in ratios.items() if ratio.p_value is not None]
    p_values = stats.holm_adjust([ratios[point].p_value or 0.0 for point in tested])
    adjusted = dict(zip(tested, p_values, strict=True))
    found = {}
    for point, ratio in ratios.items():
        judgement = stats.judge(
            ratio,
            margin,
            adjusted.get(point),
            comparisons=len(tested),
            higher_is_better=metric.higher_is_better,
        )
        found[point] = Versus(point, ratio, judgement.verdict, judgement.rounds_more)
    return found


def analyse(data: Measured, request: AnalysisRequest) -> Finding:
    sides = [str(request.options.get(each)) for each in ("first", "second")]
    if absent := [name for name in sides if name not in data.allocators]:
        return cannot_tell(request, f"{names(absent)} did not take part.", sides)
    metric = data.metric(request.metric)
    margin = number_option(request, "margin", stats.DEFAULT_MARGIN)
    logs = {
        point: (data.logs(point, sides[0], metric.name), data.logs(point, sides[1], metric.name))
        for point in data.chosen
    }
    found = versus(logs, metric, margin)
    if not found:
        return cannot_tell(request, "No round has figures above 0 of both.", sides)
    told = [
        (each.ratio.ratio, f"{words.ratio(each.estimate)}{words.at(data, each.point)}")
        for each in found.values()
    ]
    text = f"{metric.title}, {sides[0]} to {sides[1]}: {words.figures(told)}{_more(found)}."
    estimates = {f"ratio{words.at(data, each.point)}": each.estimate for each in found.values()}
    return row(
        request,
        _verdict(found, sides[0], sides[1]),
        sides,
        text + _counted(data, request, sides),
        estimates,
    )


def _verdict(found: Mapping[int, Versus], first: str, second: str) -> str:
    verdicts = [each.verdict for each in found.values()]
    better, worse = (verdicts.count(v) for v in (Verdict.BETTER, Verdict.WORSE))
    if better and worse:
        return "depends on the point"
    if better or worse:
        everywhere = max(better, worse) == len(found)
        where = "" if everywhere else f" at {max(better, worse)} of {len(found)}"
        return f"{first if better else second} better{where}"
    return "equal" if verdicts.count(Verdict.EQUAL) == len(found) else UNRESOLVED


def _more(found: Mapping[int, Versus]) -> str:
    """How many rounds would resolve what is not, where that can be told."""
    more = max((each.rounds_more or 0 for each in found.values()), default=0)
    return f"; about {rounds(more, more=True)} would tell" if more else ""


def _counted(data: Measured, request: AnalysisRequest, sides: list[str]) -> str:
    """The counts that were asked for, at the last point that has any of both."""
    show = request.options.get("show")
    wanted = [str(name) for name in show] if isinstance(show, list) else []
    for point in reversed(data.chosen):
        first, second = (data.counts(point, name) for name in sides)
        texts = [
            f"{data.metric(name).title} {quantity(first[name], data.metric(name).unit)} to "
            f"{quantity(second[name], data.metric(name).unit)}"
            for name in wanted
            if name in first and name in second
        ]
        if texts:
            return f" Counted{words.at(data, point)}: {'; '.join(texts)}."
    return ""
