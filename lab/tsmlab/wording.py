"""Numbers as people write them: 1.82 s, 412M, -14.1%, 8.10x."""

from collections.abc import Sequence

from tsmlab.metrics import Unit
from tsmlab.stats import RatioEstimate

# From this ratio on, "8.10x" is easier to grasp than "+710%".
TIMES_FROM = 2.0

# A larger share, from very few rounds, is not a figure worth stating.
MAX_SHARE = 10.0

# Unit, then its scales: suffix, size.
SCALES: dict[Unit, tuple[tuple[str, float], ...]] = {
    "seconds": ((" s", 1.0), (" ms", 1e-3), (" µs", 1e-6)),
    "bytes": (("G", 1024.0**3), ("M", 1024.0**2), ("K", 1024.0)),
    "count": (("M", 1e6), ("k", 1e3)),
}


def quantity(value: float, unit: Unit) -> str:
    """Three significant digits and the unit."""
    for text, size in SCALES.get(unit, ()):
        # The rounded number decides: 999.6 ms is 1.00 s, not 1000 ms.
        if value >= size * 0.9995:
            return f"{three_digits(value / size)}{text}"
    if unit == "seconds":
        return f"{three_digits(value * 1e9)} ns" if value else "0 ns"
    if unit == "bytes":
        return f"{value:.0f}B"
    return f"{value:.0f}" if unit == "count" else f"{value:.4g}"


def quantity_or(value: float | None, unit: Unit, absent: str = "") -> str:
    """The quantity, or `absent` if unknown."""
    return absent if value is None else quantity(value, unit)


def three_digits(number: float) -> str:
    """A plain number, with at most two decimals."""
    digits = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f}"


def change(ratio: float) -> str:
    """A ratio to the reference, as a person says it."""
    if ratio >= TIMES_FROM:
        return f"{three_digits(ratio)}x"
    return f"{_percent(ratio)}%"


def change_interval(estimate: RatioEstimate) -> str:
    """The confidence interval, in the same form as change()."""
    if estimate.low is None or estimate.high is None:
        return "[no interval]"
    form = three_digits if estimate.ratio >= TIMES_FROM else _percent
    return f"[{form(estimate.low)}, {form(estimate.high)}]"


def change_in_full(estimate: RatioEstimate | None) -> str:
    """The change and its interval; empty if there is none."""
    return f"{change(estimate.ratio)} {change_interval(estimate)}" if estimate else ""


def _percent(ratio: float) -> str:
    percent = (ratio - 1.0) * 100.0
    text = f"{percent:+.1f}" if abs(percent) < 99.95 else f"{percent:+.0f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def share(fraction: float) -> str:
    """A small fraction: 0.7%, 1%, 0.04%."""
    if fraction > MAX_SHARE:
        return f"over {share(MAX_SHARE)}"
    percent = fraction * 100.0
    digits = 0 if percent >= 10.0 else 1 if percent >= 0.1 else 2
    text = f"{percent:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def rounds(count: int, more: bool = False) -> str:
    return f"{count:,}{' more' if more else ''} round{'' if count == 1 else 's'}"


def counted(count: int, noun: str) -> str:
    """ "1 sample", "1,200 samples"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def names(items: Sequence[str], limit: int = 6) -> str:
    """A list of names, shortened if it is long."""
    shown = ", ".join(items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"
