"""Shared by all figures: matplotlib's style, the panels of a figure, and its way to SVG and PNG.

Why: a figure is drawn once, as narrow as a phone's page with letters that are legible there, and a
wide page shows the same drawing larger. All places are left to matplotlib's constrained layout.
Refuses to: know what a figure shows. It keeps the numbers beside the picture, for its table.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.layout_engine import ConstrainedLayoutEngine

from tsmlab.report import svg
from tsmlab.report.tables import DataTable
from tsmlab.report.theme import SURFACES, Style
from tsmlab.text import shortened, visible

# Of every figure, in units of which letters have 12; style.css says how large the page shows them.
WIDTH = 432.0
# A unit of matplotlib's figures is an inch of this many points.
_UNIT = 72.0
_PNG_SCALE = 3

PAPER = SURFACES["paper"].light
INK = SURFACES["ink"].light
SOFT = SURFACES["soft"].light
RULE = SURFACES["rule"].light
BAND = SURFACES["band"].light
REST = SURFACES["rest"].light

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "text.color": INK,
    "font.size": 12.0,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": RULE,
    "axes.labelcolor": SOFT,
    "axes.labelsize": 12.0,
    "axes.titlesize": 12.0,
    "axes.titlecolor": SOFT,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "xaxis.labellocation": "right",
    # A line of 1.0 needs no word of it.
    "axes.linewidth": 1.0,
    "grid.linewidth": 1.0,
    "grid.color": SURFACES["grid"].light,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "legend.borderaxespad": 0.0,
    "legend.borderpad": 0.0,
    "legend.columnspacing": 1.0,
    "legend.handletextpad": 0.5,
    "path.simplify_threshold": 0.3,
}


@dataclass(frozen=True)
class Panel:
    """A part of a figure, from its left edge to its right one: its height, and what draws it."""

    height: float
    draw: Callable[[Axes], object]


@dataclass(frozen=True)
class Figure:
    """A figure as the page has it, and as files of its own."""

    name: str
    title: str
    description: str
    caption: str
    svg: str
    svg_file: str
    png_file: bytes
    table: DataTable


def render(
    name: str,
    title: str,
    description: str,
    caption: str,
    table: DataTable,
    panels: Sequence[Panel],
    across: int = 1,
) -> Figure:
    """Draws a figure, with so many panels across. `name` is its anchor and its files' name."""
    title, description = visible(title), visible(description)
    with drawing(name):
        sheet = drawn(panels, across)
        about = {"Title": title, "Description": description, "Date": None, "Creator": None}
        source = _saved(sheet, "svg", about).decode()
        png = _saved(sheet, "png", {"Software": None})
    page = svg.compact(source, name, title, description)
    return Figure(name, title, description, caption, page, source, png, table)


def drawn(panels: Sequence[Panel], across: int = 1) -> Sheet:
    """The sheet, with every artist in its place. Panels of one row are as high as its first."""
    heights = [panel.height for panel in panels[::across]]
    size = (across * WIDTH / _UNIT, sum(heights) / _UNIT)
    sheet = Sheet(size, dpi=_UNIT)
    rows = {"height_ratios": heights}
    places = sheet.subplots(len(heights), across, squeeze=False, gridspec_kw=rows)
    for panel, axes in zip(panels, places.flat, strict=True):
        panel.draw(axes)
    for artist in sheet.findobj():
        artist.set_clip_on(False)  # Nothing is drawn beyond its axes, and clipping costs bytes.
    # A sheet that kept its layout's engine would be drawn once more for each file.
    ConstrainedLayoutEngine().execute(sheet)
    return sheet


def _saved(sheet: Sheet, form: str, metadata: dict[str, str | None]) -> bytes:
    data = io.BytesIO()
    dpi = _UNIT * _PNG_SCALE if form == "png" else _UNIT
    sheet.savefig(data, format=form, dpi=dpi, metadata=metadata)
    return data.getvalue()


@contextmanager
def drawing(name: str) -> Iterator[None]:
    """matplotlib in our style, without its remarks on fonts; the name makes identifiers differ."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update({**_STYLE, "svg.hashsalt": name})
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def label(words: str, limit: int = 18) -> str:
    """A text from elsewhere, so that it fits and can be shown."""
    return visible(shortened(words, limit))


def tip(artist: Artist, words: str) -> None:
    """A tooltip for an element."""
    artist.set_gid(f"{svg.TIP}{visible(words)}")


def legend(handles: Sequence[Artist]) -> Panel:
    """The names of the series in the panels below, in as many columns as fit."""
    # matplotlib takes a name that begins with an underscore for none.
    words = [label(f" {name}" if (name := str(h.get_label()))[:1] == "_" else name, 20)
             for h in handles]  # fmt: skip
    columns = 2 if max(map(len, words)) > 13 else 3

    def draw(axes: Axes) -> None:
        axes.axis("off")
        axes.legend(handles, words, loc="upper left", ncols=columns)

    return Panel(18.0 * -(-len(words) // columns) + 4.0, draw)


def name_rows(
    axes: Axes, names: Sequence[str], values: Sequence[str], styles: dict[str, Style] | None = None
) -> None:
    """A row for each name, from the top: the name on its left, and a value on its right. Those that
    have a style stand out in its colour."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), [label(name) for name in names])
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        style = (styles or {}).get(name)
        if style is not None:
            axes.get_yticklabels()[place].set(color=style.colour, fontweight="semibold")
        axes.annotate(
            value,
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center_baseline",
            color=SOFT if style is None else INK,
        )
