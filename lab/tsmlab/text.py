"""Makes foreign text safe for a terminal, a page, a figure and a file name."""

import re

# Characters that cannot be shown (controls, lone surrogates, non-characters), and bidirectional
# controls, which would reorder the text around them.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff"
    r"\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text with unprintable characters in Python's notation: \\x1b, \\udcff."""
    return _UNSEEN.sub(lambda match: _escaped(match[0]), text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def slug(text: str, fallback: str = "result") -> str:
    """A short name for files and anchors: lower case, digits and dashes."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return words[:48].strip("-") or fallback


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters on one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def with_minus(text: str) -> str:
    """Negative numbers with a minus sign instead of the hyphen."""
    return re.sub(r"(?<![^\s\[(])-(?=\d)", "−", text)


def capital(text: str) -> str:
    """Capitalises the first letter, unless it belongs to a symbol (p99); the rest is unchanged."""
    return text if text[1:2].isdigit() else text[:1].upper() + text[1:]
