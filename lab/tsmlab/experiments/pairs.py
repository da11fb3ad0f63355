"""Is one allocator better than another, paired by rounds?

Why: the reports' central question (a heap per thread against one lock) and every one like it.
"""

from collections.abc import Mapping

from tsmlab import stats
from tsmlab.analysis import log_ratios
from tsmlab.experiments import words
from tsmlab.experiments.estimates import Logs, as_estimate, ratio_of
from tsmlab.experiments.measured import Measured, number_option
from tsmlab.experiments.model import AnalysisRequest, Finding, Metric
from tsmlab.experiments.words import UNRESOLVED, cannot_tell, row
from tsmlab.stats import Judgement, RatioEstimate, Verdict
from tsmlab.wording import names, quantity, rounds

# The first against the second at each point, and whether the first is better, worse, ...
Versus = dict[int, tuple[RatioEstimate, Judgement]]


def versus(logs: Mapping[int, tuple[Logs, Logs]], metric: Metric, margin: float) -> Versus:
    """As far as rounds have both. Holm's family: the points."""
    ratios = {
        point: ratio
        for point, (first, second) in logs.items()
        if (ratio := ratio_of(log_ratios(first, second))) is not None
    }
    adjusted = stats.holm_by_key({point: ratio.p_value for point, ratio in ratios.items()})
    higher = metric.higher_is_better
    return {
        point: (
            ratio,
            stats.judge(ratio, margin, adjusted.get(point), len(adjusted), higher_is_better=higher),
        )
        for point, ratio in ratios.items()
    }


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
    ratios = {point: as_estimate(ratio) for point, (ratio, _) in found.items()}
    told = [(r.value, f"{words.ratio(r)}{words.at(data, point)}") for point, r in ratios.items()]
    text = f"{metric.title}, {sides[0]} to {sides[1]}: {words.figures(told)}{_more(found)}."
    estimates = {f"ratio{words.at(data, point)}": ratio for point, ratio in ratios.items()}
    return row(
        request,
        _verdict(found, sides[0], sides[1]),
        sides,
        text + _counted(data, request, sides),
        estimates,
    )


def _verdict(found: Versus, first: str, second: str) -> str:
    verdicts = [judgement.verdict for _, judgement in found.values()]
    better, worse = (verdicts.count(v) for v in (Verdict.BETTER, Verdict.WORSE))
    if better and worse:
        return "depends on the point"
    if better or worse:
        everywhere = max(better, worse) == len(found)
        where = "" if everywhere else f" at {max(better, worse)} of {len(found)}"
        return f"{first if better else second} better{where}"
    return "equal" if verdicts.count(Verdict.EQUAL) == len(found) else UNRESOLVED


def _more(found: Versus) -> str:
    """How many rounds would resolve what is not, where that can be told."""
    more = max((judgement.rounds_more or 0 for _, judgement in found.values()), default=0)
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
