"""Axes as people read them: ratios in per cent, sizes and times with their units, few ticks.

Why: matplotlib's own ticks say 10^0 and 1e7; ours say "-20 %", "2x", "16M" and "1 ms".
"""

import math
import re
from collections.abc import Sequence

from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator, NullLocator

from tsmlab.metrics import Unit
from tsmlab.wording import quantity

# From this spread on, equal ratios get equal distances.
LOG_FROM = 4.0
MOST_TICKS = 6
# An axis holds a little more than its values, as a share of their spread.
ROOM = 0.08


def change_words(ratio: float) -> str:
    """A ratio on an axis: -20 %, 0, 3x."""
    if abs(ratio - 1.0) < 1e-9:
        return "0"
    return f"{ratio:g}x" if ratio >= 2.0 else f"{(ratio - 1.0) * 100.0:+.0f} %"


def ratio_axis(axis: Axis, values: Sequence[float], plain: bool = False) -> None:
    """A logarithmic axis for ratios, which always shows 1.

    plain: with numbers instead of changes."""
    low, high = _around(min([*values, 1.0]), max([*values, 1.0]), True, 1.04)
    ticks = _log_ticks(low, high, "number") if high / low > LOG_FROM else _ticks(low, high)
    _set(axis, (low, high), ticks, [f"{t:g}" if plain else change_words(t) for t in ticks], True)


def quantity_axis(
    axis: Axis, values: Sequence[float], unit: Unit, log: bool | None = None, zero: bool = False
) -> None:
    """An axis for quantities; logarithmic where asked for or, by default, where they spread.

    zero: it begins there, unless it is logarithmic."""
    positive = [value for value in values if value > 0.0]
    low, high = min(positive, default=1.0), max(positive, default=1.0)
    if log is None:
        log = high / low >= LOG_FROM and len(positive) == len(values)
    if log and positive:
        low, high = _around(low, high, True, 1.2)
        ticks = _log_ticks(low, high, unit)
    else:
        log = False
        low, high = _around(min([*values, high]), high, False, 0.0)
        low = min(low, 0.0) if zero and min(values, default=0.0) < 0.0 else 0.0 if zero else low
        # Bytes go in powers of 1024, so their steps are counted in the unit that they are shown in.
        base = 1024.0 ** max(0, int(math.log(high, 1024))) if unit == "bytes" and high > 1 else 1.0
        ticks = [tick * base for tick in _ticks(low / base, high / base)]
    _set(axis, (low, high), ticks, [tick_words(tick, unit) for tick in ticks], log)


def tick_words(value: float, unit: Unit) -> str:
    """quantity(), without the zeros that a round number does not need: 2 ms, 16M, 1.5 s."""
    if unit == "number" or value == 0.0:
        return f"{value:g}"
    words = quantity(abs(value), unit)
    short = re.sub(r"\.(\d*?)0+(?!\d)", lambda match: f".{match[1]}" if match[1] else "", words)
    return f"-{short}" if value < 0.0 else short


def _set(
    axis: Axis, bounds: tuple[float, float], ticks: Sequence[float], words: Sequence[str], log: bool
) -> None:
    side = "x" if axis is axis.axes.xaxis else "y"
    if log:
        axis.axes.set(**{f"{side}scale": "log"})
    axis.axes.set(**{f"{side}lim": bounds})
    axis.set_minor_locator(NullLocator())
    axis.set_ticks(list(ticks), labels=list(words))


def _around(low: float, high: float, log: bool, least: float) -> tuple[float, float]:
    """Bounds with a little room, even where all values are the same. least: the spread of a
    logarithmic axis at least."""
    if log:
        room = max(high / low, least) ** ROOM
        return low / room, high * room
    room = max(ROOM * (high - low), 0.02 * abs(high)) or 1.0
    return low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    locator = MaxNLocator(MOST_TICKS - 1, steps=[1, 2, 2.5, 5, 10])
    return [float(tick) for tick in locator.tick_values(low, high) if low <= tick <= high]


def _log_ticks(low: float, high: float, unit: Unit) -> list[float]:
    """The finest of some grids that has few enough ticks; where even that is too coarse, evenly."""
    if unit == "bytes":
        grids = [[2.0**k for k in range(0, 60, every)] for every in (1, 2, 5, 10)]
    else:
        factors = ((1, 1.5, 2, 3, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))
        grids = [[f * 10.0**k for k in range(-12, 16) for f in each] for each in factors]
    inside = [[tick for tick in grid if low <= tick <= high] for grid in grids]
    if len(inside[0]) < 3:
        return _ticks(low, high)
    few = [ticks for ticks in inside if 2 <= len(ticks) <= MOST_TICKS]
    return few[0] if few else inside[-1][:: math.ceil(len(inside[-1]) / MOST_TICKS)]
