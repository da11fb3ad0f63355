"""Axes as people read them: ratios in per cent, sizes and times with their units, few ticks.

Why: matplotlib's own ticks say 10^0 and 1e7; ours say "-20 %", "2x", "16M" and "1 ms".
Refuses to: choose what is on an axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from tsmlab.metrics import Unit
from tsmlab.wording import quantity

Side = Literal["x", "y"]

# From this spread on, equal ratios get equal distances.
LOG_FROM = 4.0

# Ticks of a ratio's axis, the most welcome first.
_RATIOS = (
    *(1.0, 2.0, 0.5, 10.0, 0.1, 100.0, 0.01, 5.0, 0.2, 20.0, 50.0, 1000.0, 3.0, 1.5, 0.8, 1.2),
    *(0.9, 1.1, 0.7, 1.3, 0.95, 1.05, 0.98, 1.02, 0.99, 1.01, 4.0, 7.0, 30.0, 0.6, 0.33),
)


def change_words(ratio: float) -> str:
    """A ratio on an axis: -20 %, 0, 3x."""
    if abs(ratio - 1.0) < 1e-9:
        return "0"
    if ratio >= 2.0:
        return f"{ratio:g}x"
    return f"{(ratio - 1.0) * 100.0:+.0f} %"


def ratio_axis(axes: Axes, values: Sequence[float], most: int, plain: bool = False) -> None:
    """A logarithmic x axis for ratios, which always shows 1; at most about `most` ticks.

    plain: with numbers instead of changes."""
    low, high = min([*values, 1.0]), max([*values, 1.0])
    span = max(math.log(high / low), math.log(1.04))
    low, high = low * math.exp(-0.06 * span), high * math.exp(0.06 * span)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    gap = math.log(high / low) / most
    kept: list[float] = []
    for ratio in _RATIOS:
        apart = all(abs(math.log(ratio / other)) >= gap for other in kept)
        if low <= ratio <= high and apart:
            kept.append(ratio)
    words = [f"{r:g}" if plain else change_words(r) for r in sorted(kept)]
    _set_ticks(axes.xaxis, sorted(kept), words)


def quantity_axis(
    axes: Axes, side: Side, values: Sequence[float], unit: Unit, most: int, log: bool | None = None
) -> None:
    """An axis for quantities; logarithmic where asked for or, by default, where they spread."""
    positive = [value for value in values if value > 0.0]
    low, high = min(positive, default=1.0), max(positive, default=1.0)
    if log is None:
        log = high / low >= LOG_FROM and len(positive) == len(values)
    if log and positive:
        spread = max(math.log(high / low), math.log(1.2))
        bounds = (low * math.exp(-0.08 * spread), high * math.exp(0.08 * spread))
        axes.set(**{f"{side}scale": "log"})
        ticks = _log_ticks(*bounds, unit, most)
    else:
        bottom = min([*values, high]) if values else 0.0
        room = 0.08 * ((high - bottom) or abs(high) or 1.0)
        bounds = (bottom - room, max([*values, high]) + room)
        ticks = _linear_ticks(*bounds, unit, most)
    axes.set(**{f"{side}lim": bounds})
    _set_ticks(_axis(axes, side), ticks, [_tick_words(tick, unit) for tick in ticks])


def from_zero(axes: Axes, side: Side, highest: float, unit: Unit, most: int) -> None:
    """A linear axis that begins at zero."""
    top = (highest or 1.0) * 1.06
    axes.set(**{f"{side}lim": (0.0, top)})
    ticks = _linear_ticks(0.0, top, unit, most)
    _set_ticks(_axis(axes, side), ticks, [_tick_words(tick, unit) for tick in ticks])


def named_ticks(axes: Axes, side: Side, places: Sequence[float], words: Sequence[str]) -> None:
    _set_ticks(_axis(axes, side), places, words)


def _axis(axes: Axes, side: Side) -> Axis:
    return axes.xaxis if side == "x" else axes.yaxis


def _set_ticks(axis: Axis, ticks: Sequence[float], words: Sequence[str]) -> None:
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_ticklabels(list(words))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _tick_words(value: float, unit: Unit) -> str:
    """quantity(), without the zeros that a round number does not need: 2 ms, 16M, 1.5 s."""
    if value == 0.0:
        return "0"
    if unit == "number":
        return f"{value:g}" if abs(value) < 10_000 else f"{value:.3g}"
    sign, words = ("-", quantity(-value, unit)) if value < 0 else ("", quantity(value, unit))
    number = "".join(c for c in words if c.isdigit() or c == ".")
    rest = words[len(number) :]
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return f"{sign}{number}{rest}"


def _base(unit: Unit, around: float) -> float:
    """Bytes go in powers of 1024, so their steps are counted in the unit that they are shown in."""
    if unit != "bytes":
        return 1.0
    for scale in (1024.0**3, 1024.0**2, 1024.0):
        if around >= scale:
            return scale
    return 1.0


def _linear_ticks(low: float, high: float, unit: Unit, most: int) -> list[float]:
    base = _base(unit, max(abs(low), abs(high)))
    raw = (high - low) / base / max(1, most)
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next(f * power for f in (1.0, 2.0, 2.5, 5.0, 10.0) if f * power >= raw * 0.999) * base
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _log_ticks(low: float, high: float, unit: Unit, most: int) -> list[float]:
    if unit == "bytes":
        grids = [[2.0**k for k in range(60) if k % every == 0] for every in (1, 2, 5, 10)]
    else:
        tens = range(-12, 16)
        grids = [
            [f * 10.0**k for k in tens for f in factors]
            for factors in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))
        ]
    inside = [[tick for tick in grid if low <= tick <= high] for grid in grids]
    fitting = [ticks for ticks in inside if 2 <= len(ticks) <= most]
    if fitting:
        return fitting[0]
    few = inside[0]
    if len(few) < 2:
        return _linear_ticks(low, high, unit, min(4, most))
    return inside[-1][:: max(1, math.ceil(len(inside[-1]) / most))]
