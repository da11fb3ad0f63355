"""The quantities of a comparison: built-in ones, and a number that the program itself prints.

Why: every quantity passes through the same statistics, table and exports, so each is described
once, here: its key in the results, its unit, and which direction is good.
Refuses to: guess. A run whose output lacks the promised number has failed.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

from tsmlab.errors import UserError
from tsmlab.measuring import Measurement

Unit = Literal["seconds", "bytes", "count", "number"]

TIME = "time_seconds"
PEAK_MEMORY = "peak_memory_bytes"
PAGE_FAULTS = "page_faults"
SYSTEM_TIME = "system_seconds"
USER_TIME = "user_seconds"
# The key of the user's own metric: fixed, because its name is free text.
CUSTOM = "custom"


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
)


def measured_values(measurement: Measurement) -> dict[str, float]:
    """The built-in quantities of one run, and what it has besides; a peak that could not be told is
    left out."""
    values = {
        TIME: measurement.wall_ns / 1e9,
        PAGE_FAULTS: float(measurement.minor_faults + measurement.major_faults),
        SYSTEM_TIME: measurement.system_ns / 1e9,
        USER_TIME: measurement.user_ns / 1e9,
    }
    if measurement.peak_rss_bytes > 0:
        values[PEAK_MEMORY] = float(measurement.peak_rss_bytes)
    return {**values, **measurement.extra}


_NAMED = re.compile(r"([A-Za-z][A-Za-z0-9 _/-]*)=(.+)", re.DOTALL)
_GROUPED_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_EXAMPLE = "For example: --metric 'requests/s=([0-9.]+) requests per second:higher'"


@dataclass(frozen=True)
class CustomMetric:
    """The user's own metric: the first group of the pattern's first match is the number."""

    name: str
    pattern: str
    higher_is_better: bool

    @property
    def spec(self) -> MetricSpec:
        return MetricSpec(CUSTOM, self.name, "number", True, self.higher_is_better)

    def find(self, *texts: str) -> float | None:
        """The number in the first text that has it; None where none does."""
        for text in texts:
            match = re.search(self.pattern, text, re.MULTILINE)
            if match and match.group(1) is not None:
                return _number(match.group(1))
        return None


def printed_number(text: str, name: str) -> float | None:
    """The number in the last line `name: NUMBER`; None where there is no such line."""
    found = re.findall(rf"^{re.escape(name)}:[ \t]*(\S+)[ \t]*$", text, re.MULTILINE)
    return _number(found[-1]) if found else None


def parse_custom(text: str) -> CustomMetric:
    """Reads NAME=REGEX or REGEX, with `:higher` or `:lower` (the default) at the end."""
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
            f"--metric: {pattern!r} does not say where the number is.",
            f"Put the number into a group, with parentheses. {_EXAMPLE}",
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
