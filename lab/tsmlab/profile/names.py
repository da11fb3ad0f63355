"""Shortens names of functions without making them wrong.

A demangled name may have thousands of characters. It loses its return type and parameters, then its
template arguments, then its middle.
"""

from __future__ import annotations

import re

from tsmlab.profile.model import Frame

# Brackets that enclose nothing.
_SIGNS = re.compile(r"(?<![\w$])operator *(?:<=>|<<=?|>>=?|<=|>=|->\*?|<|>)|->")
# `<lambda()>` is a name, as are Rust's `<A as T>` at the beginning and `<impl T for A>`.
_ARGUMENTS = re.compile(
    r"(?:(?<=[\w)\]>:\x00\ue000-\uf8ff])|(?<=[\ue000-\uf8ff] ))"
    r"<(?!lambda|unnamed|impl |dyn )[^<>]*>"
)


def without_arguments(name: str) -> str:
    """A name with `<…>` in place of the arguments of templates and generics; unchanged if its
    brackets do not match."""
    signs = {sign: chr(0xE000 + at) for at, sign in enumerate(set(_SIGNS.findall(name)))}
    short, count = _SIGNS.sub(lambda sign: signs[sign[0]], name), 1
    while count:  # the innermost first
        short, count = _ARGUMENTS.subn("\0", short)
    if any(short.count(opening) != short.count(closing) for opening, closing in ("<>", "()", "[]")):
        return name
    for sign, placeholder in signs.items():
        short = short.replace(placeholder, sign)
    return short.replace("\0", "<…>")


def shortened(frame: Frame, width: int) -> str:
    """The name of a frame's function, shortened to this many columns."""
    name = frame.function
    if len(name) > width:
        name = frame.bare or name
    if len(name) > width:
        name = without_arguments(name)
    if len(name) <= width:
        return name
    tail = len(name) - max(name.rfind("::"), 0)  # all of the last part, if there is room for more
    if tail > width - 4:
        tail = 2 * width // 3
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}".replace("……", "…")
