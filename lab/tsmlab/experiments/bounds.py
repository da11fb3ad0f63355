"""Does a metric, or the ratio of two, stay at or below a limit at every point?

Why: blow-up is a promise broken at some point: peak memory over live bytes that is bounded for one
allocator grows with the number of threads, or of rounds, for another.
"""

from tsmlab import stats
from tsmlab.experiments import words
from tsmlab.experiments.estimates import median_interval
from tsmlab.experiments.measured import Measured
from tsmlab.experiments.model import AnalysisRequest, Estimate, Finding
from tsmlab.experiments.words import UNRESOLVED, cannot_tell, row
from tsmlab.toml_tables import is_number

KEEPS = "kept"
BREAKS = "broken"


def kept(level: Estimate, limit: float) -> str:
    """Whether a cell's metric is, by the interval; by the value alone where it was counted once,
    which is told."""
    low = level.value if level.low is None else level.low
    high = level.value if level.high is None else level.high
    if high <= limit:
        return KEEPS
    return BREAKS if low > limit else UNRESOLVED


def analyse(data: Measured, request: AnalysisRequest) -> Finding:
    allocators = data.names_for(request)
    over = request.options.get("over")
    other = over if isinstance(over, str) else None
    levels = {
        (name, point): level
        for name in allocators
        for point in data.chosen
        if (level := _level(data, point, name, request.metric, other)) is not None
    }
    metric = data.metric(request.metric)
    title = metric.title if other is None else f"{metric.title} over {data.metric(other).title}"
    if not levels:
        return cannot_tell(request, f"No point has figures of {title}.", allocators)
    unit = "number" if other is not None else metric.unit
    worst = {}
    for (name, point), level in sorted(levels.items(), key=lambda each: each[1].value):
        worst[name] = (point, level)
    told = [
        (-level.value, f"{name} {words.measure(level, unit)}{words.at(data, point)}")
        for name, (point, level) in worst.items()
    ]
    limit = request.options.get("limit")
    verdict, against = "measured", ""
    if is_number(limit):
        verdicts = {kept(level, limit) for level in levels.values()}
        verdict = next(v for v in (BREAKS, UNRESOLVED, KEEPS) if v in verdicts)
        against = f" (limit {words.measure(Estimate(limit, None, None), unit)})"
    estimates = {f"{name}{words.at(data, point)}": each for (name, point), each in levels.items()}
    text = f"Highest {title}{against}: {words.figures(told)}."
    return row(request, verdict, allocators, text, estimates)


def _level(data: Measured, point: int, name: str, metric: str, over: str | None) -> Estimate | None:
    values = list(data.quotients(point, name, metric, over).values())
    if not values:
        return None
    counted = data.is_counted(metric) and (over is None or data.is_counted(over))
    interval = median_interval([] if counted else values)
    return Estimate(stats.median(values), interval.low, interval.high)
