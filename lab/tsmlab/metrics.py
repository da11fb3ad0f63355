"""The quantities of a comparison: built-in ones, and numbers that the program itself prints.

All quantities go through the same statistics, tables and exports, so each is described once, here:
its key in the results, its unit, and which direction is better.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tsmlab.errors import UserError
from tsmlab.measuring import Measurement

Unit = Literal["seconds", "bytes", "count", "number"]

TIME = "time_seconds"
PEAK_MEMORY = "peak_memory_bytes"
# Sum over all processes of the program: of their shares (PSS) if those were sampled, otherwise of
# each one's resident memory.
TREE_MEMORY = "tree_memory_bytes"
PAGE_FAULTS = "page_faults"
SYSTEM_TIME = "system_seconds"
USER_TIME = "user_seconds"
# The key of the user's own metric: fixed, because its name is free text. Further ones are custom2,
# custom3, ...
CUSTOM = "custom"
# A program may print the most bytes that it had requested and not yet freed. Then the peak is also
# shown as a multiple of it.
LIVE_BYTES = "live_bytes"
# The time of a run, or its instructions, times its memory in MiB.
COST = "cost"
PEAK_OVER_LIVE = "peak_over_live"


@dataclass(frozen=True)
class MetricSpec:
    """A measured quantity. Only those with `judged` are compared with the reference."""

    key: str
    name: str
    unit: Unit
    judged: bool
    higher_is_better: bool = False


BUILT_IN = (
    MetricSpec(TIME, "time", "seconds", judged=True),
    MetricSpec(PEAK_MEMORY, "peak memory", "bytes", judged=True),
    MetricSpec(PAGE_FAULTS, "page faults", "count", judged=False),
    MetricSpec(SYSTEM_TIME, "system time", "seconds", judged=False),
    MetricSpec(USER_TIME, "user time", "seconds", judged=False),
    MetricSpec(TREE_MEMORY, "memory of all processes", "bytes", judged=False),
)


def measured_values(measurement: Measurement) -> dict[str, float]:
    """The built-in quantities of one run, and its extra ones; an unknown peak is left out."""
    values = {
        TIME: measurement.wall_ns / 1e9,
        PAGE_FAULTS: float(measurement.minor_faults + measurement.major_faults),
        SYSTEM_TIME: measurement.system_ns / 1e9,
        USER_TIME: measurement.user_ns / 1e9,
    }
    if measurement.peak_rss_bytes > 0:
        values[PEAK_MEMORY] = float(measurement.peak_rss_bytes)
    raw = measurement.raw
    together = raw.get("tree_peak_pss_bytes") or raw.get("tree_peak_rss_bytes")
    if together:
        values[TREE_MEMORY] = float(together)
    return {**values, **measurement.extra}


_NAMED = re.compile(r"([A-Za-z][A-Za-z0-9 _/-]*)=(.+)", re.DOTALL)
_GROUPED_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_EXAMPLE = "For example: --metric 'requests/s=([0-9.]+) requests per second:higher'"


# Meanings of units after a number: 174us, 3.61ms, 45.9k, 1.5 GiB/s. Single letters are units only
# directly after the number.
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "msec": 1e-3}
_SECONDS |= dict.fromkeys(("s", "sec", "secs"), 1.0)
SECONDS = _SECONDS | {"m": 60.0, "h": 3600.0}
_TOUCHING_COUNTS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_BYTES = {
    "B": 1.0,
    **{f"{p}B": 1e3**n for n, p in enumerate("kMGT", start=1)},
    "KB": 1e3,
    **{f"{p}iB": 1024.0**n for n, p in enumerate("KMGT", start=1)},
}
_TOUCHING: Mapping[Unit, Mapping[str, float]] = {
    "seconds": SECONDS,
    "bytes": _BYTES,
    "count": _TOUCHING_COUNTS,
}
_APART: Mapping[Unit, Mapping[str, float]] = {"seconds": _SECONDS, "bytes": _BYTES}
# What an option can say of a number without a unit.
NAMED_UNITS: Mapping[str, tuple[Unit, float]] = {
    "": ("number", 1.0),
    "count": ("count", 1.0),
    **{name: (unit, size) for unit, sizes in _APART.items() for name, size in sizes.items()},
}
_WITH_UNIT = re.compile(r"([+-]?[\d.,]+(?:[eE][+-]?\d+)?)([ \t]?)([A-Za-zµμ]+)")
_UNIT_BEHIND = re.compile(r"[ \t]?[A-Za-zµμ]+")


@dataclass(frozen=True)
class CustomMetric:
    """The user's own metric: the first group of the pattern's first match is the number. A unit in
    the group or right after it counts, too; default_unit: of a number without one."""

    name: str
    pattern: str
    higher_is_better: bool
    key: str = CUSTOM
    default_unit: str = ""

    @property
    def spec(self) -> MetricSpec:
        unit, _ = NAMED_UNITS[self.default_unit]
        return MetricSpec(self.key, self.name, unit, True, self.higher_is_better)

    def find(self, *texts: str) -> tuple[float, Unit] | None:
        """The number in the first text that matches, in seconds, bytes or ones, and the kind of its
        unit ("number" if it has none); None if no text matches."""
        for text in texts:
            match = re.search(self.pattern, text, re.MULTILINE)
            if match and match.group(1) is not None:
                behind = _UNIT_BEHIND.match(text, match.end(1))
                found = _with_unit(match.group(1), behind[0] if behind else "")
                if found and self.default_unit and found[1] in ("number", "count"):
                    unit, size = NAMED_UNITS[self.default_unit]
                    return found[0] * size, unit
                return found
        return None


def _with_unit(text: str, behind: str) -> tuple[float, Unit] | None:
    """A number, and the unit in the text or after it."""
    for candidate in (text.strip(), f"{text.strip()}{behind}"):
        if match := _WITH_UNIT.fullmatch(candidate):
            known = _APART if match[2] else _TOUCHING
            for unit, sizes in known.items():
                number = _number(match[1])
                if match[3] in sizes and number is not None:
                    return number * sizes[match[3]], unit
    number = _number(text)
    return None if number is None else (number, "number")


def printed_number(text: str, name: str) -> float | None:
    """The number in the last line `name: NUMBER`; None without such a line."""
    found = re.findall(rf"^{re.escape(name)}:[ \t]*(\S+)[ \t]*$", text, re.MULTILINE)
    return _number(found[-1]) if found else None


def parse_all(texts: Sequence[str]) -> tuple[CustomMetric, ...]:
    """Parses several --metric; the first one ranks."""
    found = [
        replace(parse_custom(text), key=CUSTOM if number == 1 else f"{CUSTOM}{number}")
        for number, text in enumerate(texts, start=1)
    ]
    names = [metric.name for metric in found]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"two --metric options have the name {name!r}.",
                "Give each its own: --metric 'NAME=REGEX'",
            )
    return tuple(found)


def parse_custom(text: str) -> CustomMetric:
    """Parses NAME=REGEX or REGEX, optionally followed by `:higher` or `:lower` (the default)."""
    body, direction = text, "lower"
    for suffix in ("higher", "lower"):
        if text.endswith(f":{suffix}"):
            body, direction = text.removesuffix(f":{suffix}"), suffix
    named = _NAMED.fullmatch(body)
    name, pattern = (named[1].strip(), named[2]) if named else ("metric", body)
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise UserError(
            f"--metric: {pattern!r} is not a regular expression: {error}.", _EXAMPLE
        ) from error
    if groups == 0:
        raise UserError(
            f"--metric: {pattern!r} has no group for the number.",
            f"Put the number into parentheses. {_EXAMPLE}",
        )
    return CustomMetric(name, pattern, direction == "higher")


def _number(text: str) -> float | None:
    digits = text.strip()
    if _GROUPED_THOUSANDS.fullmatch(digits):
        digits = digits.replace(",", "")
    try:
        value = float(digits)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
