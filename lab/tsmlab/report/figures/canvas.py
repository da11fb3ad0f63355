"""What all figures share: a sheet measured in pixels, and its way to SVG and PNG.

Why: a figure is drawn for a wide page and again for a phone, and both must keep their letters
legible; so sizes are pixels of the page, and places are computed rather than left to a layout.
Refuses to: know what a figure shows. It keeps the numbers beside the picture, for its table.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from tsmlab.report import svg
from tsmlab.report.tables import DataTable
from tsmlab.report.text import visible
from tsmlab.report.theme import SURFACES

# Pixels of a page: the column of text of a wide one, and a phone of 375 without its margins.
WIDE = 760.0
NARROW = 343.0
# A unit of matplotlib's figures is an inch of this many points; we say pixel instead.
_UNIT = 72.0
_PNG_SCALE = 2

PAPER = SURFACES["paper"].light
INK = SURFACES["ink"].light
SOFT = SURFACES["soft"].light
RULE = SURFACES["rule"].light
GRID = SURFACES["grid"].light
BAND = SURFACES["band"].light

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tsmalloc",
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "font.family": ["DejaVu Sans"],
    "font.size": 11.0,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": RULE,
    "axes.labelcolor": SOFT,
    "axes.linewidth": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 1.0,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
    "lines.markersize": 6.0,
    "text.color": INK,
    "path.simplify_threshold": 0.3,
}


@dataclass(frozen=True)
class Format:
    """For which page a figure is drawn. `size` is that of its letters."""

    width: float
    size: float

    @property
    def narrow(self) -> bool:
        return self.width < 500


FORMATS = (Format(WIDE, 11.5), Format(NARROW, 11.0))


class Canvas:
    """A sheet of paper: axes and texts are placed in pixels from its upper left corner."""

    def __init__(self, form: Format, height: float) -> None:
        self.form = form
        self.height = height
        self.sheet = Sheet(figsize=(form.width / _UNIT, height / _UNIT), dpi=_UNIT)
        self.tips: dict[str, str] = {}

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        wide, high = self.form.width, self.height
        place = (left / wide, 1.0 - (top + height) / high, width / wide, height / high)
        axes = self.sheet.add_axes(place)
        axes.tick_params(labelsize=self.form.size - 0.5, pad=5)
        return axes

    def text(self, x: float, y: float, words: str, **how: Any) -> None:
        how.setdefault("fontsize", self.form.size)
        how.setdefault("va", "center")
        self.sheet.text(x / self.form.width, 1.0 - y / self.height, visible(words), **how)

    def tip(self, artist: Any, words: str) -> None:
        """A tooltip for what was drawn."""
        gid = f"{svg.TIP}{len(self.tips)}"
        artist.set_gid(gid)
        self.tips[gid] = visible(words)

    def svg_source(self) -> str:
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        self.sheet.savefig(text, format="svg", metadata=nothing)
        return text.getvalue()

    def png(self) -> bytes:
        data = io.BytesIO()
        self.sheet.savefig(data, format="png", dpi=_UNIT * _PNG_SCALE, metadata={"Software": None})
        return data.getvalue()


Drawing = Callable[[Format], Canvas]


@dataclass(frozen=True)
class Figure:
    """A figure as the page has it, for wide and narrow screens, and as files of its own."""

    name: str
    title: str
    description: str
    caption: str
    wide: str
    narrow: str
    svg_file: str
    png_file: bytes
    table: DataTable
    notes: Sequence[str] = field(default=())


def render(
    name: str, title: str, description: str, caption: str, table: DataTable, draw: Drawing
) -> Figure:
    """Draws a figure in both widths. `name` is its anchor and its files' name."""
    title, description = visible(title), visible(description)
    with drawing():
        canvases = [draw(form) for form in FORMATS]
        sources = [canvas.svg_source() for canvas in canvases]
        png = canvases[0].png()
    pages = [
        svg.compact(source, f"{name}-{suffix}", title, description, canvas.tips, themed=True)
        for source, canvas, suffix in zip(sources, canvases, ("w", "n"), strict=True)
    ]
    alone = svg.compact(sources[0], name, title, description, canvases[0].tips, themed=False)
    return Figure(name, title, description, caption, pages[0], pages[1], alone, png, table)


@contextmanager
def drawing() -> Iterator[None]:
    """matplotlib with our settings, and without its remarks on fonts and caches."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield
