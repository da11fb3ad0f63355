"""From matplotlib's SVG to a small one that a page can hold, in the colours of its theme.

Why: matplotlib writes long styles, identifiers and numbers with six digits. Here they are rounded,
shared and renamed, each colour becomes the page's variable of its name, and the root gets the
title and the description that a screen reader speaks.
Refuses to: draw, and to let a colour through that theme.py does not know: it would not change with
the theme.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from xml.etree import ElementTree

from tsmlab.report.theme import TONES

NAMESPACE = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
# An artist with a gid that begins so gets a tooltip: the gid goes on with a number.
TIP = "tip-"

_VARIABLES = {tone.light: f"var(--{name})" for name, tone in TONES.items()}
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?|-?\d+e-?\d+")
_DROPPED_STYLES = {"font-family", "font", "stroke-linejoin", "stroke-linecap", "font-style"}
_PRESENTATION = (
    "fill",
    "fill-opacity",
    "opacity",
    "stroke",
    "stroke-opacity",
    "stroke-width",
    "stroke-dasharray",
    "text-anchor",
    "font-size",
    "font-weight",
)
_DEFAULTS = {
    "stroke-dashoffset": "0",
    "stroke-opacity": "1",
    "fill-opacity": "1",
    "opacity": "1",
    "text-anchor": "start",
    "stroke-width": "1",
    "font-weight": "400",
}


def compact(
    source: str,
    name: str,
    title: str,
    description: str,
    tips: Mapping[str, str],
    themed: bool,
) -> str:
    """The SVG for a page (`themed`), or for a file of its own, in the light colours.

    `name` makes identifiers unique on the page; `tips` are tooltips by the gid of an artist."""
    root = ElementTree.fromstring(source)
    writer = _Writer(name, tips, themed)
    body = "".join(writer.element(child) for child in root)
    box = _rounded(root.get("viewBox", "0 0 1 1"))
    return wrapped(body, name, title, description, box, themed)


def wrapped(body: str, name: str, title: str, description: str, box: str, themed: bool) -> str:
    """An image around a body: for a page, which sizes it, or for a file of its own."""
    _, _, width, height = box.split()
    size = "" if themed else f' width="{width}" height="{height}"'
    style = "" if themed else f' font-family="{escape(FONT)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}"{size}{style} role="img" '
        f'aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(description)}</desc>{body}</svg>'
    )


def paint(colour: str, themed: bool) -> str:
    """A colour of theme.py as it stands in the image."""
    return _VARIABLES[colour] if themed else colour


class _Writer:
    """Writes the elements of one image; knows the identifiers that it has given."""

    def __init__(self, name: str, tips: Mapping[str, str], themed: bool) -> None:
        # Short, since it is written often; different names differ in it.
        self._prefix = f"i{zlib.crc32(name.encode()):x}-"
        self._tips = tips
        self._themed = themed
        self._identifiers: dict[str, str] = {}

    def element(self, element: ElementTree.Element) -> str:
        tag = element.tag.removeprefix(NAMESPACE)
        if not element.tag.startswith(NAMESPACE) or tag in ("metadata", "style"):
            return ""
        if tag == "text":
            return self._text(element)
        attributes = self._attributes(element, tag)
        if tag == "path" and (not attributes.get("d") or self._is_invisible(attributes)):
            return ""
        children = list(element)
        if tag == "g":
            self._share(children, attributes)
        inner = "".join(self.element(child) for child in children)
        tip = self._tips.get(element.get("id", ""))
        if tip:
            inner = f"<title>{escape(tip)}</title>{inner}"
        if tag in ("g", "defs") and not inner:
            return ""
        if tag == "g" and not attributes and not tip:
            return inner
        return _tagged(tag, attributes, inner)

    def _attributes(self, element: ElementTree.Element, tag: str) -> dict[str, str]:
        attributes = self._style(element)
        for key in ("d", "x", "y", "width", "height", "transform", "cx", "cy", "r"):
            if value := element.get(key):
                attributes[key] = _path(value) if key == "d" else _rounded(value)
        if reference := element.get(HREF):
            attributes["href"] = f"#{self._identifier(reference.removeprefix('#'))}"
        if clip := element.get("clip-path"):
            attributes["clip-path"] = f"url(#{self._identifier(clip[5:-1])})"
        if tag in ("clipPath", "path") and (own := element.get("id")) and _is_referred(own):
            attributes["id"] = self._identifier(own)
        return attributes

    def _style(self, element: ElementTree.Element) -> dict[str, str]:
        found = {}
        for part in (element.get("style") or "").split(";"):
            key, _, value = (piece.strip() for piece in part.partition(":"))
            if key and key not in _DROPPED_STYLES:
                found[key] = value.removesuffix("px")
        for key in _PRESENTATION:
            if (plain := element.get(key)) is not None:
                found[key] = plain
        kept = {}
        for key, value in found.items():
            if _DEFAULTS.get(key) == value or key not in _PRESENTATION:
                continue
            kept[key] = self._colour(value) if key in ("fill", "stroke") else _rounded(value)
        return kept

    def _colour(self, value: str) -> str:
        if value == "none":
            return value
        if value not in _VARIABLES:
            raise ValueError(f"{value} is no colour of the theme")
        return paint(value, self._themed)

    def _share(self, children: list[ElementTree.Element], attributes: dict[str, str]) -> None:
        """Markers that all look alike: their style goes to the group."""
        uses = [child for child in children if child.tag == f"{NAMESPACE}use"]
        styles = {use.get("style") for use in uses}
        if len(uses) < 2 or len(styles) != 1 or len(uses) != len(children):
            return
        attributes.update(self._style(uses[0]))
        for use in uses:
            use.attrib.pop("style", None)

    def _text(self, element: ElementTree.Element) -> str:
        attributes = self._style(element)
        for key in ("x", "y"):
            if value := element.get(key):
                attributes[key] = _rounded(value)
        transform = _rounded(element.get("transform") or "")
        if transform and not transform.startswith(("rotate(-0", "rotate(0")):
            attributes["transform"] = transform
        # All texts are drawn in a colour of the theme; what has none is black, which is an error.
        if "fill" not in attributes:
            raise ValueError(f"a text without a colour: {''.join(element.itertext())!r}")
        return _tagged("text", attributes, escape("".join(element.itertext())))

    def _is_invisible(self, attributes: Mapping[str, str]) -> bool:
        """Not painted, or paper on the page's paper. (What is referred to is painted elsewhere.)"""
        if "id" in attributes:
            return False
        paper = attributes.get("fill") == _VARIABLES[TONES["paper"].light]
        unpainted = attributes.get("fill") == "none" or paper
        return unpainted and "stroke" not in attributes

    def _identifier(self, theirs: str) -> str:
        return self._identifiers.setdefault(theirs, f"{self._prefix}{len(self._identifiers)}")


def _is_referred(identifier: str) -> bool:
    """matplotlib names what is referred to by a letter and a hash; all else by what it is."""
    return re.fullmatch(r"[a-zA-Z]+[0-9a-f]{10}.*|C\d+_.*", identifier) is not None


def _tagged(tag: str, attributes: Mapping[str, str], inner: str) -> str:
    words = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    return f"<{tag}{words}>{inner}</{tag}>" if inner else f"<{tag}{words}/>"


def _rounded(text: str) -> str:
    return _NUMBER.sub(lambda match: _short(float(match[0])), text)


def _short(number: float, digits: int = 1) -> str:
    text = f"{number:.{digits}f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _path(data: str) -> str:
    """Path data in whole tenths of a pixel: straight lines as steps, all else as it was."""
    segments = re.findall(r"([A-Za-z])([^A-Za-z]*)", data)
    if all(command in "MLz" for command, _ in segments):
        return "".join(_steps(segments))
    return re.sub(r" ?([A-Za-z]) ?", r"\1", " ".join(_rounded(data).split()))


def _steps(segments: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Each point as its distance from the one before, which takes fewer digits. The distances are
    between rounded points, so that no error adds up."""
    x = y = 0
    for command, numbers in segments:
        if command == "z":
            yield "z"
            continue
        new_x, new_y = (round(float(number) * 10) for number in numbers.split())
        if command == "M":
            yield f"M{_tenths(new_x)} {_tenths(new_y)}"
        elif new_y == y and new_x != x:
            yield f"h{_tenths(new_x - x)}"
        elif new_x == x and new_y != y:
            yield f"v{_tenths(new_y - y)}"
        elif new_x != x:
            second = _tenths(new_y - y)
            yield f"l{_tenths(new_x - x)}{second if second.startswith('-') else ' ' + second}"
        x, y = new_x, new_y


def _tenths(number: int) -> str:
    sign, whole, rest = "-" if number < 0 else "", abs(number) // 10, abs(number) % 10
    if rest == 0:
        return f"{sign}{whole}"
    return f"{sign}{whole or ''}.{rest}"
