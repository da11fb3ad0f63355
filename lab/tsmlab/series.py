"""Memory over time: which run's curve to show, and with how many points.

A run has hundreds of samples and a page a few hundred pixels; peaks are never left out. Of many
runs, the one whose time is nearest to the median is shown: an average would not be a real run.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from tsmlab.results import Comparison, Sample

Points = list[tuple[float, float]]

MAX_POINTS = 160
# Fewer points are not a curve.
MIN_POINTS = 3


def thinned(
    points: Sequence[Sequence[float]], max_points: int = MAX_POINTS
) -> list[tuple[float, ...]]:
    """At most about `max_points` of them: the lowest and the highest of each stretch of time."""
    whole = [tuple(map(float, p)) for p in points]
    if len(whole) <= max_points:
        return whole
    edges = np.linspace(0, len(whole), max(2, max_points // 2) + 1).astype(int)
    kept = [whole[0]]
    for start, stop in itertools.pairwise(edges):
        part = whole[start:stop]
        if part:
            low, high = min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])
            kept += sorted({low, high})
    if kept[-1] != whole[-1]:
        kept.append(whole[-1])
    return kept


def memory_curve(sample: Sample) -> Points:
    """Seconds and bytes of a run's memory; empty if it was not sampled."""
    series = sample.measurement.get("series") or []
    return [(nanoseconds / 1e9, float(size)) for nanoseconds, size in series]


def has_curve(sample: Sample) -> bool:
    return len(memory_curve(sample)) > MIN_POINTS


def typical_run(
    comparison: Comparison, allocator: str, key: str, fits: Callable[[Sample], bool] = has_curve
) -> Sample | None:
    """Of the successful runs that match, the one whose `key` is nearest to the median."""
    row = next(row for row in comparison.analysis.rows if row.allocator == allocator)
    if key not in row.metrics:
        return None
    middle = row.metrics[key].median
    able = [
        sample
        for sample in comparison.samples
        if sample.allocator == allocator
        and sample.phase == "measured"
        and sample.failure is None
        and key in sample.values
        and fits(sample)
    ]
    return min(able, key=lambda sample: abs(sample.values[key] - middle), default=None)


def mean_bytes(points: Sequence[Sequence[float]]) -> float:
    """The mean over time; each value holds until the next."""
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return float(points[-1][1]) if points else 0.0
    held = [a[1] * (b[0] - a[0]) for a, b in itertools.pairwise(points)]
    return float(sum(held)) / (points[-1][0] - points[0][0])
