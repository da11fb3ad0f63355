"""Does memory grow under load? A slope with an interval, robust against steps and outliers."""

from collections.abc import Sequence

import numpy as np

from tsmlab import stats
from tsmlab.service.results import Growth, GrowthTrend

Points = Sequence[tuple[float, float]]  # seconds, bytes

BINS = 60
MIN_BINS = 8
FULL_SHARE = 0.75
# At the beginning, the load fills caches and heaps.
SETTLING_SHARE = 0.25
# Neighbours in time are similar; beyond this factor the interval would be useless.
MAX_ALIKE = 0.9
HOUR = 3600.0


def settled(points: Points) -> Points:
    """Without the initial time in which the load fills up caches and heaps."""
    if not points:
        return points
    begin, end = points[0][0], points[-1][0]
    return [p for p in points if p[0] >= begin + SETTLING_SHARE * (end - begin)]


def slope(points: Points) -> stats.Trend | None:
    """Bytes an hour, by Theil and Sen over medians of equal stretches of time. The variance is
    increased for autocorrelation (Hamed and Rao, A Modified Mann-Kendall Trend Test for
    Autocorrelated Data, 1998, first lag only)."""
    if len(points) < MIN_BINS:
        return None
    times, sizes = np.asarray(points, dtype=np.float64).T
    bins = min(BINS, max(MIN_BINS, len(points) // 3))
    while True:
        edges = np.linspace(times[0], times[-1], bins + 1)
        places = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, bins - 1)
        filled = np.unique(places)
        # If sampling paused, use fewer and longer stretches; those still empty lie within the
        # pause.
        if bins == MIN_BINS or len(filled) >= FULL_SHARE * bins:
            break
        bins = max(MIN_BINS, bins // 2)
    # A stretch's points may lie at one end of it: sampling is denser at first.
    at, known = ([float(np.median(v[places == n])) for n in filled] for v in (times, sizes))
    grid = np.linspace(at[0], at[-1], bins)
    medians = np.interp(grid, at, known)
    plain = stats.theil_sen(medians)
    if plain is None:
        return None
    rest = medians - plain.slope * np.arange(bins)
    rest -= np.mean(rest)
    power = float(np.sum(rest**2))
    alike = float(np.sum(rest[1:] * rest[:-1])) / power if power > 0.0 else 0.0
    alike = min(MAX_ALIKE, max(0.0, alike))
    found = stats.theil_sen(medians, inflation=(1.0 + alike) / (1.0 - alike))
    assert found is not None
    scale = HOUR / float(grid[1] - grid[0])
    return stats.Trend(found.slope * scale, found.low * scale, found.high * scale)


def growth_of(allocator: str, runs: Sequence[Points], margin: float) -> Growth | None:
    """From the longest run. Growing and shrinking mean beyond chance and beyond the margin, as a
    share of the memory per hour; level means within it."""
    longest = max(map(settled, runs), key=lambda p: p[-1][0] - p[0][0] if p else 0.0, default=[])
    found = slope(longest)
    if found is None:
        return None
    limit = margin * float(np.median([size for _, size in longest]))
    standing: GrowthTrend = "not clear"
    if found.low > 0.0 and found.slope > limit:
        standing = "growing"
    elif found.high < 0.0 and found.slope < -limit:
        standing = "shrinking"
    elif -limit <= found.low and found.high <= limit:
        standing = "level"
    hours = (longest[-1][0] - longest[0][0]) / HOUR
    return Growth(allocator, found.slope, found.low, found.high, hours, standing)
