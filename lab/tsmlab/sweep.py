"""Sweeps: parameters with their values, the points that they form, and placeholders for them.

`{NAME}` in a command is replaced by the parameter's value at the current point, `{{NAME}}` by the
text `{NAME}` itself. Other braces stay as they are, so that awk and shell programs need no quoting.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from tsmlab.errors import UserError
from tsmlab.toml_tables import is_number

# The allocator's name has a placeholder, too.
ALLOCATOR = "allocator"
PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")
# Each point runs under every allocator in every round.
MAX_POINTS = 1000

# A value for each parameter by its name; {} without a sweep.
Point = dict[str, Any]


@dataclass(frozen=True)
class Parameter:
    """values: distinct numbers, or distinct texts. title: for readers, with the unit."""

    name: str
    title: str
    values: list[Any]

    @property
    def is_numeric(self) -> bool:
        return all(map(is_number, self.values))


def points_of(parameters: Sequence[Parameter]) -> list[Point]:
    """Every combination of values; the last parameter changes fastest."""
    points: list[Point] = [{}]
    for parameter in parameters:
        points = [{**point, parameter.name: v} for point in points for v in parameter.values]
    return points


def filled(text: str, values: Mapping[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] in values:
            return f"{{{match[1]}}}"
        return str(values[match[2]]) if match[2] in values else match[0]

    return PLACEHOLDER.sub(value, text)


def used_in(texts: Iterable[str]) -> set[str]:
    """The names with a placeholder somewhere."""
    return {match[2] for text in texts for match in PLACEHOLDER.finditer(text) if match[2]}


def describe(point: Mapping[str, Any]) -> str:
    """threads=4, fit=best; empty without a sweep."""
    return ", ".join(f"{name}={value}" for name, value in point.items())


def parameter_list(name: str, text: str) -> Parameter:
    """-L NAME a,b,c: numbers if all values are, otherwise texts."""
    words = [word.strip() for word in text.split(",")]
    numbers = [_number(word) for word in words]
    values: list[Any] = words if None in numbers else [_plain(n) for n in numbers if n is not None]
    if "" in words or len(set(values)) < len(values):
        raise UserError(
            f"-L {name} {text}: values must be distinct and not empty.",
            f"For example: -L {name} 1,2,4",
        )
    return Parameter(name, name, values)


def parameter_scan(name: str, minimum: str, maximum: str, step: str | None) -> Parameter:
    """-P NAME MIN MAX: from MIN to MAX in steps of 1, or of -D."""
    bounds = [_number(text) for text in (minimum, maximum, "1" if step is None else step)]
    low, high, by = bounds
    example = f"For example: -P {name} 1 8 -D 1"
    if low is None or high is None or by is None or by <= 0:
        raise UserError(f"-P {name} {minimum} {maximum}: not a range of numbers.", example)
    if low > high:
        raise UserError(f"-P {name} {minimum} {maximum}: the range is empty.", example)
    count = int((high - low) / by) + 1
    if count > MAX_POINTS:
        raise UserError(f"-P {name} has {count:,} values.", "Choose a larger step: -D")
    return Parameter(name, name, [_plain(low + number * by) for number in range(count)])


def check(parameters: Sequence[Parameter], texts: Iterable[str]) -> None:
    """Raises UserError unless each parameter has its own name and its placeholder somewhere in the
    texts: a sweep whose values never reach the program would compare noise."""
    names = [parameter.name for parameter in parameters]
    used = used_in(texts)
    for name in names:
        if not re.fullmatch(r"[A-Za-z]\w*", name) or name == ALLOCATOR:
            raise UserError(
                f"{name!r} is not a valid parameter name.",
                f"Use letters, digits and underscores; {{{ALLOCATOR}}} is the allocator's name.",
            )
        if names.count(name) > 1:
            raise UserError(f"two parameters are called {name}.", "Rename one of them.")
        if name not in used:
            raise UserError(
                f"the parameter {name} is not used.",
                f"Write {{{name}}} where its value belongs in the command.",
            )
    if (count := len(points_of(parameters))) > MAX_POINTS:
        raise UserError(
            f"these parameters make {count:,} points, which is too many.", "Choose fewer values."
        )


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _plain(number: Decimal) -> int | float:
    return int(number) if number == number.to_integral_value() else float(number)
