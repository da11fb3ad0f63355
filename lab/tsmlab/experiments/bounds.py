"""Does a metric, or the ratio of two, stay at or below a limit at every point?

Why: blow-up is a promise broken at some point: peak memory over live bytes that is bounded for one
allocator grows with the number of threads, or of rounds, for another.
Refuses to: call a limit kept where the interval reaches beyond it.
"""

from dataclasses import dataclass

from tsmlab import stats
from tsmlab.experiments import words
from tsmlab.experiments.estimates import median_interval
from tsmlab.experiments.measured import Measured
from tsmlab.experiments.model import AnalysisRequest, Estimate, Finding
from tsmlab.experiments.words import UNRESOLVED, cannot_tell, row
from tsmlab.toml_tables import is_number

KEEPS = "kept"
BREAKS = "broken"


@dataclass(frozen=True)
class Level:
    """The metric of one cell against the limit."""

    point: int
    allocator: str
    value: Estimate

    def verdict(self, limit: float) -> str:
        """By the interval; by the value alone where it was counted once, which is told."""
        low = self.value.value if self.value.low is None else self.value.low
        high = self.value.value if self.value.high is None else self.value.high
        if high <= limit:
            return KEEPS
        return BREAKS if low > limit else UNRESOLVED


def analyse(data: Measured, request: AnalysisRequest) -> Finding:
    allocators = data.names_for(request)
    over = request.options.get("over")
    other = over if isinstance(over, str) else None
    levels = [
        level
        for name in allocators
        for point in data.chosen
        if (level := _level(data, point, name, request.metric, other)) is not None
    ]
    metric = data.metric(request.metric)
    title = metric.title if other is None else f"{metric.title} over {data.metric(other).title}"
    if not levels:
        return cannot_tell(request, f"No point has figures of {title}.", allocators)
    unit = "number" if other is not None else metric.unit
    worst = {}
    for level in sorted(levels, key=lambda level: level.value.value):
        worst[level.allocator] = level
    told = [
        (
            -level.value.value,
            f"{name} {words.measure(level.value, unit)}{words.at(data, level.point)}",
        )
        for name, level in worst.items()
    ]
    limit = request.options.get("limit")
    verdict, against = "measured", ""
    if is_number(limit):
        verdicts = {level.verdict(limit) for level in levels}
        verdict = next(v for v in (BREAKS, UNRESOLVED, KEEPS) if v in verdicts)
        against = f" (limit {words.measure(Estimate(limit, None, None), unit)})"
    estimates = {f"{level.allocator}{words.at(data, level.point)}": level.value for level in levels}
    text = f"Highest {title}{against}: {words.figures(told)}."
    return row(request, verdict, allocators, text, estimates)


def _level(data: Measured, point: int, name: str, metric: str, over: str | None) -> Level | None:
    values = list(data.quotients(point, name, metric, over).values())
    if not values:
        return None
    counted = data.is_counted(metric) and (over is None or data.is_counted(over))
    interval = median_interval([] if counted else values)
    return Level(point, name, Estimate(stats.median(values), interval.low, interval.high))
