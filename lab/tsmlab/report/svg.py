"""From matplotlib's SVG to a small one that a page can hold, in the colours of its theme.

Why: matplotlib writes styles, identifiers and numbers at length. Here numbers are rounded to tenths
of a pixel, styles become attributes, and each colour becomes the page's variable of its name. The
root gets the title and the description that a screen reader speaks.
Refuses to: draw, to touch a text, and to let a colour through that theme.py does not know: it would
not change with the theme.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from xml.etree import ElementTree

from tsmlab.report.theme import TONES

NAMESPACE = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"
# The group of an artist whose gid begins so has the rest of it as its tooltip.
TIP = "tip "

_VARIABLES = {tone.light: f"var(--{name})" for name, tone in TONES.items()}
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?|-?\d+e-?\d+")
# Of most texts; the image says it once, and that nothing is filled that does not say so.
FONT_SIZE = "12"
# Only what matters is kept, with the value that goes without saying.
_KEPT = {
    "d": "",
    "x": "",
    "y": "",
    "transform": "",
    "fill": "none",
    "fill-opacity": "1",
    "opacity": "1",
    "stroke": "",
    "stroke-opacity": "1",
    "stroke-width": "1",
    "stroke-dasharray": "",
    "text-anchor": "start",
    "font-size": FONT_SIZE,
    "font-weight": "400",
}


def compact(source: str, name: str, title: str, description: str) -> str:
    """The SVG for a page. `name` is that of the figure, which is there once on the page."""
    root = ElementTree.fromstring(source)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{_rounded(root.get("viewBox", ""))}" '
        f'fill="none" font-size="{FONT_SIZE}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(description)}</desc>{"".join(map(_written, root))}</svg>'
    )


def _written(element: ElementTree.Element) -> str:
    """One element with all that is in it; nothing if it is not seen."""
    tag = element.tag.removeprefix(NAMESPACE)
    if tag in ("metadata", "style", "title"):
        return ""
    if tag == "g":
        _gather(element)
    attributes = _attributes(element, tag)
    inner = "".join(map(_written, element))
    if tag == "text":
        if "fill" not in attributes:  # Black, which does not change with the theme.
            raise ValueError(f"a text without a colour: {element.text!r}")
        inner = escape("".join(element.itertext()))
    elif tag == "path" and not _is_seen(attributes):
        return ""
    elif tag in ("g", "defs"):
        if not inner:
            return ""
        tip = element.get("id", "")
        if tip.startswith(TIP):
            inner = f"<title>{escape(tip.removeprefix(TIP))}</title>{inner}"
        elif tag == "g" and not attributes:
            return inner
    words = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    return f"<{tag}{words}>{inner}</{tag}>" if inner else f"<{tag}{words}/>"


def _gather(group: ElementTree.Element) -> None:
    """What looks alike: the style of markers goes to their group, lines become one path."""
    tags = {child.tag.removeprefix(NAMESPACE) for child in group}
    styles = {child.get("style") for child in group}
    if len(group) < 2 or len(styles) > 1:
        return
    if tags == {"use"}:
        group.set("style", group[0].get("style", ""))
        for child in group:
            child.attrib.pop("style", None)
    elif tags == {"path"}:
        group[0].set("d", " ".join(child.get("d", "") for child in group))
        del group[1:]


def _attributes(element: ElementTree.Element, tag: str) -> dict[str, str]:
    parts = (part.partition(":") for part in element.get("style", "").split(";"))
    given = {key.strip(): value.strip().removesuffix("px") for key, _, value in parts}
    given |= element.attrib
    found = {}
    for key, value in given.items():
        if key in ("fill", "stroke") and value != "none":
            if value not in _VARIABLES:
                raise ValueError(f"{value} is no colour of the theme")
            found[key] = _VARIABLES[value]
        elif key == HREF:
            found["href"] = value
        elif key == "id" and tag != "g":
            found[key] = value
        elif key in _KEPT and value != _KEPT[key] and not re.match(r"rotate\(-?0 ", value):
            found[key] = _path(value) if key == "d" else _rounded(value)
    return found


def _is_seen(attributes: dict[str, str]) -> bool:
    """Not if it is paper on the page's paper. (What is referred to is painted elsewhere.)"""
    plain = attributes.get("fill") == "var(--paper)" and "stroke" not in attributes
    return "id" in attributes or (bool(attributes.get("d")) and not plain)


def _rounded(text: str) -> str:
    return _NUMBER.sub(lambda match: _tenths(round(float(match[0]) * 10)), text)


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
    before = "z"
    for command, numbers in segments:
        if command == "z":
            yield "z"
            before = "z"
            continue
        new_x, new_y = (round(float(number) * 10) for number in numbers.split())
        across, down = _tenths(new_x - x), _tenths(new_y - y)
        if command == "M":
            moves = (f"M{_pair(_tenths(new_x), _tenths(new_y))}", f"m{_pair(across, down)}")
            yield moves[0] if before == "z" else min(moves, key=len)
        elif down == "0":
            yield f"h{across}" if across != "0" else ""
        elif across == "0":
            yield f"v{down}"
        else:
            yield f"l{_pair(across, down)}"
        x, y, before = new_x, new_y, command


def _pair(x: str, y: str) -> str:
    return f"{x}{'' if y.startswith('-') else ' '}{y}"


def _tenths(number: int) -> str:
    return f"{number / 10:.1f}".removesuffix(".0").replace("0.", ".", abs(number) < 10)
