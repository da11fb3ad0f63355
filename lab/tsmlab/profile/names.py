"""Names of functions of C++ and Rust, shortened so that they stay true.

A demangled name may have thousands of letters. It loses in turn its return type and parameters, its
template arguments (`<…>`), the paths of Rust's types, and at last its middle. A name that fits none
of the rules loses its middle alone.
"""

from __future__ import annotations

import re
from functools import cache

_OPERATOR = re.compile(r"(?<![\w$])operator(?![\w$])")
_OPERATORS_WITH_BRACKETS = re.compile(
    r"(?<![\w$])operator *(?:\(\)|\[\]|<=>|<<=?|>>=?|<=|>=|->\*?|<|>)|->|\bnew\[\]|\bdelete\[\]"
)
_PAIRS = {")": "(", ">": "<", "]": "[", "}": "{"}
# `virtual thunk to f(int)` is another function than f.
_OF_A_FUNCTION = re.compile(r"^(?:[\w-]+ )*?thunk to |^(?:[\w-]+ )+for ")
# What may follow the parameters.
_BEHIND = re.compile(
    r"(?: (?:const|volatile|noexcept|&&?|requires .*|\[.*\])|&&?|"
    r"\.(?:cold|isra|constprop|part|lto_priv|llvm|\d)[\w.]*)*$"
)
# Groups that are names: of a namespace, a lambda, Rust's types and their traits.
_NAME = re.compile(r"\(anonymous (?:namespace|class)\)$|<(?:lambda|unnamed|impl |dyn )")
_PATH = re.compile(r"(?:\w+::)+(?=[\w(\[])")


def pieces(name: str) -> list[str] | None:
    """The text of a name and the groups in brackets that follow one another in it; None if the
    brackets do not match."""
    found = [""]
    opened: list[str] = []
    at = 0
    while at < len(name):
        operator = _OPERATORS_WITH_BRACKETS.match(name, at)
        text = operator[0] if operator else name[at]
        at += len(text)
        if text in _PAIRS.values():
            if not opened:
                found.append("")
            opened.append(text)
        found[-1] += text
        if text in _PAIRS:
            while opened and opened[-1] == "<" and text != ">":
                opened.pop()  # it was a comparison
            if opened and opened[-1] == _PAIRS[text]:
                opened.pop()
                if not opened:
                    found.append("")
            elif text != ">":
                return None
    return [each for each in found if each] if not opened else None


@cache
def bare(name: str) -> tuple[str, bool]:
    """A name without the type that it returns and without parameters, and whether it had some."""
    prefix = _OF_A_FUNCTION.match(name)
    begin = prefix.end() if prefix else 0
    parts = pieces(name[begin:])
    if parts is None:
        return name, "(" in name
    ends = [at for at, part in enumerate(parts) if _is_parameters(parts, at)]
    if not ends or not _BEHIND.match("".join(parts[ends[-1] + 1 :])):
        return name, bool(ends)
    kept = _without_type(parts[: ends[-1]])
    kept = [part for at, part in enumerate(kept) if not _is_parameters(kept, at)]
    found = "".join(kept)
    if not found or found[0] in ":&*" or found.startswith("(*"):
        return name, True  # such as a function that returns a pointer to another
    return name[:begin] + found, True


def _is_parameters(parts: list[str], at: int) -> bool:
    # Go has (*T).method.
    return at > 0 and parts[at][0] == "(" and parts[at][1] != "*" and not _NAME.match(parts[at])


def _without_type(parts: list[str]) -> list[str]:
    """What stands behind the last space outside of brackets; an operator's name may have one."""
    for at in reversed(range(len(parts))):
        if parts[at][0] in "<([{":
            continue
        operator = _OPERATOR.search(parts[at])
        space = parts[at].rfind(" ", 0, operator.start() if operator else None)
        if space >= 0:
            return [parts[at][space + 1 :], *parts[at + 1 :]]
        if operator and operator.start() == 0 and at == 0:
            break
    return parts


def without_arguments(name: str) -> str:
    """A name with `<…>` in place of the arguments of templates and generics."""
    parts = pieces(name)
    if parts is None:
        return name
    return "".join(_short_group(part, parts[:at]) for at, part in enumerate(parts))


def _short_group(part: str, before: list[str]) -> str:
    if part[0] != "<" or len(part) <= len("<…>"):
        return part
    if not before or _NAME.match(part):  # Rust's <A as T>::method and ::<impl T for A>::method
        inner = pieces(part[1:-1]) or [part[1:-1]]
        return f"<{''.join(_short_group(each, ['']) for each in inner)}>"
    return "<…>"


def _cut(name: str, width: int) -> str:
    """A name without its middle: with all of its last part, if that leaves room for some more."""
    if len(name) <= width:
        return name
    parts = pieces(name) or [name]
    colons = [
        sum(map(len, parts[:at])) + part.rindex("::")
        for at, part in enumerate(parts)
        if part[0] not in "<([{" and "::" in part
    ]
    tail = len(name) - max(colons, default=0)
    if tail > width - 4:
        tail = 2 * width // 3
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}".replace("……", "…")


def shortened(name: str, width: int) -> str:
    """A name in so many columns."""
    short = name if len(name) <= width else bare(name)[0]
    if len(short) > width:
        short = without_arguments(short)
    if len(short) > width and short.startswith("<"):
        group, *others = pieces(short) or [""]
        short = _PATH.sub("", group) + "".join(others) or short
    return _cut(short, width)
