"""A row for each workload, with every allocator's ratio in it: the candidate before its peers.

Why: a mean hides where one leads and where it loses; here both are seen for all workloads at once.
Refuses to: order the rows by merit. They come in the suite's order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from tsmlab.report.figures.canvas import INK, RULE, SOFT, Canvas, Drawing, Format
from tsmlab.report.figures.ratios import Ratio
from tsmlab.report.figures.scales import ratio_axis
from tsmlab.report.text import shortened
from tsmlab.report.theme import REST_COLOUR, Style
from tsmlab.wording import three_digits

ROW, HEAD, FOOT = 20.0, 30.0, 34.0
# Beyond this ratio a point is drawn at the edge: one slow peer must not flatten all others.
FARTHEST = 4.0


@dataclass(frozen=True)
class FieldRow:
    """One workload: the peers' ratios and, if it has one, the candidate's."""

    name: str
    peers: Sequence[Ratio]
    candidate: Ratio | None


def drawing(rows: Sequence[FieldRow], candidate: str, styles: Mapping[str, Style]) -> Drawing:
    def draw(form: Format) -> Canvas:
        label, value = (176.0, 46.0) if not form.narrow else (118.0, 42.0)
        height = HEAD + len(rows) * ROW + FOOT
        canvas = Canvas(form, height)
        width = form.width - label - value
        axes = canvas.axes(label, HEAD, width, len(rows) * ROW)
        shown = [min(r.ratio, FARTHEST) for row in rows for r in _all(row)]
        ends = [end for row in rows if row.candidate for end in _ends(row.candidate)]
        ratio_axis(axes, [*shown, *ends], 7 if not form.narrow else 4, plain=True)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.axvline(1.0, color=SOFT, linewidth=1.2, zorder=1)
        axes.hlines(range(len(rows)), *axes.get_xlim(), color=RULE, linewidth=0.6, zorder=0.8)
        for place, row in enumerate(rows):
            for ratio in row.peers:
                _peer(canvas, axes, ratio, place, styles)
            if row.candidate:
                _candidate(canvas, axes, row.candidate, place, styles[candidate])
            y = HEAD + (place + 0.5) * ROW
            words = shortened(row.name, 26 if not form.narrow else 17)
            canvas.text(label - 10, y, words, ha="right", color=SOFT)
            own = three_digits(row.candidate.ratio) if row.candidate else "-"
            canvas.text(label + width + 8, y, own, color=INK)
        canvas.text(label, 11, "← better than every peer", color=SOFT, fontsize=form.size - 0.5)
        canvas.text(
            form.width - 2, 11, shortened(candidate, 16), ha="right", color=styles[candidate].colour
        )
        return canvas

    return draw


def _all(row: FieldRow) -> list[Ratio]:
    return [*row.peers, *([row.candidate] if row.candidate else [])]


def _ends(ratio: Ratio) -> list[float]:
    """The ends of its interval, as far as they are drawn."""
    known = [end for end in (ratio.low, ratio.high) if end is not None]
    return [min(max(end, 1.0 / FARTHEST), FARTHEST) for end in known]


def _peer(
    canvas: Canvas, axes: Axes, ratio: Ratio, place: int, styles: Mapping[str, Style]
) -> None:
    far = ratio.ratio > FARTHEST
    (mark,) = axes.plot(
        [min(ratio.ratio, FARTHEST)],
        [place],
        marker=">" if far else styles[ratio.name].marker,
        markersize=4.6,
        color=REST_COLOUR,
        alpha=0.8,
        markeredgewidth=0,
        linestyle="none",
        zorder=2,
    )
    canvas.tip(mark, f"{ratio.name}: {ratio.words}")


def _candidate(canvas: Canvas, axes: Axes, ratio: Ratio, place: int, style: Style) -> None:
    if ratio.low is not None and ratio.high is not None:
        axes.plot(_ends(ratio), [place, place], color=style.colour, linewidth=2.4, zorder=3)
    (mark,) = axes.plot(
        [min(ratio.ratio, FARTHEST)],
        [place],
        marker=style.marker,
        markersize=8.0,
        color=style.colour,
        linestyle="none",
        zorder=4,
    )
    canvas.tip(mark, f"{ratio.name}: {ratio.words}")
