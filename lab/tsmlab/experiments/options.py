"""The options that an analysis may have, by its kind: which there are, and what they may be.

Why: a misspelt option that is silently ignored answers another question than the one that was
asked, and shows only after all has been measured.
Refuses to: know what an option does (the analyses do; docs/formats/experiment.md tells it).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tsmlab.experiments.model import AnalysisKind, Parameter

Rule = tuple[Callable[[Any], bool], str]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


def _one_of(*choices: str) -> Rule:
    return lambda value: value in choices, f"one of {', '.join(choices)}"


SHAPES = ("constant", "linear", "quadratic", "logarithmic")
TEXT: Rule = (lambda value: isinstance(value, str) and bool(value), "a text")
TEXTS: Rule = (_is_texts, "a list of texts")
NUMBER: Rule = (_is_number, "a number")
POSITIVE: Rule = (lambda value: _is_number(value) and value > 0, "a number above 0")
SHAPE: Rule = (
    lambda value: _is_number(value) or value in SHAPES,
    f"a number, or one of {', '.join(SHAPES)}",
)

OF_ALL: Mapping[str, Rule] = {"allocators": TEXTS}
OF_KIND: Mapping[AnalysisKind, Mapping[str, Rule]] = {
    "pair": {"first": TEXT, "second": TEXT, "show": TEXTS, "margin": POSITIVE},
    "winner": {"margin": POSITIVE},
    "amdahl": {"work": _one_of("fixed", "per-thread"), "margin": POSITIVE},
    "growth": {"expected": SHAPE, "tolerance": POSITIVE},
    "order": {"margin": POSITIVE},
    "bound": {"limit": NUMBER, "over": TEXT},
}
NEEDED: Mapping[AnalysisKind, tuple[str, ...]] = {"pair": ("first", "second")}


def complaint(
    kind: AnalysisKind,
    options: Mapping[str, Any],
    parameters: Sequence[Parameter],
    metrics: Sequence[str],
) -> tuple[str, str] | None:
    """What is wrong with the options, and the remedy; None if nothing is."""
    rules = {**OF_ALL, **OF_KIND[kind]}
    known = sorted([*rules, "at"])
    for key, value in options.items():
        if key not in known:
            return f"the key {key!r} is unknown", f"Options of {kind}: {', '.join(known)}."
        if key in rules and not rules[key][0](value):
            return f"{key} is {value!r}", f"It must be {rules[key][1]}."
    for key in NEEDED.get(kind, ()):
        if key not in options:
            return f"{key} is missing", "Name two allocators, first and second."
    if "over" in options and options["over"] not in metrics:
        return f"over is {options['over']!r}, which is no metric", f"Metrics: {', '.join(metrics)}."
    return _place(options.get("at", {}), {each.name: each.values for each in parameters})


def _place(at: Any, values: Mapping[str, Sequence[Any]]) -> tuple[str, str] | None:
    """What is wrong with the points that are asked for."""
    if not isinstance(at, dict):
        return f"at is {at!r}", "Write it as {parameter = value}."
    for name, value in at.items():
        if name not in values:
            there_are = ", ".join(values) or "none"
            return f"at names {name!r}, which is no parameter", f"Parameters: {there_are}."
        if value not in values[name]:
            known = ", ".join(map(str, values[name]))
            return f"{name} is never {value!r}", f"Its values: {known}."
    return None
