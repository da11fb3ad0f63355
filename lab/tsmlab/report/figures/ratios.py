"""The forest plot: a row for each allocator, its ratio as a point, its 95 % interval as a line.

Why: whether two allocators differ is seen at once: by whether their intervals keep apart, and from
which side of 1 they do. A row may have more points: those of a workload's other allocators.
Refuses to: rank. The rows come in the order in which they are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes

from tsmlab.report.figures import canvas
from tsmlab.report.figures.canvas import BAND, PAPER, REST, RULE, SOFT
from tsmlab.report.figures.scales import ratio_axis
from tsmlab.report.theme import Style
from tsmlab.stats import RatioEstimate
from tsmlab.text import with_minus
from tsmlab.wording import change, three_digits

ROW, HEAD = 21.0, 66.0
# Beyond this ratio a point of a field is at its edge: one slow peer must not flatten all others.
FARTHEST = 4.0


@dataclass(frozen=True)
class Ratio:
    """One row of one panel. `resolved`: a verdict was reached, so the point is filled."""

    name: str
    ratio: float
    low: float | None = None
    high: float | None = None
    resolved: bool = True

    @staticmethod
    def of(name: str, estimate: RatioEstimate, resolved: bool = True) -> Ratio:
        return Ratio(name, estimate.ratio, estimate.low, estimate.high, resolved)


@dataclass(frozen=True)
class Panel:
    """One quantity. `band`: the ratios within which a difference does not count."""

    title: str
    better: str
    worse: str
    ratios: Sequence[Ratio]
    band: tuple[float, float] | None


@dataclass(frozen=True)
class Rows:
    """The rows, from the top; those that stand out; and what 1 is.

    plain: ratios are shown as numbers, not as changes."""

    names: Sequence[str]
    emphasised: frozenset[str]
    reference: str
    styles: Mapping[str, Style]
    plain: bool = False


@dataclass(frozen=True)
class FieldRow:
    """One workload: the peers' ratios and, if it has one, the candidate's."""

    name: str
    peers: Sequence[Ratio]
    candidate: Ratio | None


def panels(rows: Rows, quantities: Sequence[Panel]) -> list[canvas.Panel]:
    """A panel for each quantity."""
    height = HEAD + len(rows.names) * ROW

    def drawing(panel: Panel) -> canvas.Panel:
        return canvas.Panel(height, lambda axes: _draw(axes, rows, panel))

    return [drawing(panel) for panel in quantities]


def _draw(axes: Axes, rows: Rows, panel: Panel) -> None:
    ends = [end for ratio in panel.ratios for end in _ends(ratio)]
    _axis(axes, [*ends, *(panel.band or ())], rows.plain)
    if panel.band:
        axes.axvspan(*panel.band, color=BAND, linewidth=0, zorder=0.5)
    axes.set_title(f"{panel.title}\n← {panel.better}, {panel.worse} →")
    known = {ratio.name: ratio for ratio in panel.ratios}
    canvas.name_rows(
        axes,
        rows.names,
        [_value(known[n], rows.plain) if n in known else "is 1" if n == rows.reference else ""
         for n in rows.names],
        {name: rows.styles[name] for name in rows.emphasised},
    )  # fmt: skip
    for place, name in enumerate(rows.names):
        if name in known:
            _point(axes, known[name], place, rows.styles[name], name in rows.emphasised)


def _value(ratio: Ratio, plain: bool) -> str:
    return three_digits(ratio.ratio) if plain else with_minus(change(ratio.ratio))


def _axis(axes: Axes, ends: Sequence[float], plain: bool) -> None:
    ratio_axis(axes.xaxis, ends, plain)
    axes.axvline(1.0, color=SOFT, linewidth=1.2, zorder=1)


def _ends(ratio: Ratio) -> list[float]:
    return [end for end in (ratio.ratio, ratio.low, ratio.high) if end is not None]


def _point(axes: Axes, ratio: Ratio, place: int, style: Style, strong: bool) -> None:
    colour = style.colour if strong else REST
    if ratio.low is not None and ratio.high is not None:
        axes.plot([ratio.low, ratio.high], [place, place], color=colour, linewidth=2.2, zorder=2)
    axes.plot(
        [ratio.ratio],
        [place],
        marker=style.marker,
        markersize=7.0 if strong else 5.5,
        markerfacecolor=colour if ratio.resolved else PAPER,
        markeredgecolor=colour,
        markeredgewidth=1.4,
        linestyle="none",
        zorder=3 + strong,
    )


def field(
    rows: Sequence[FieldRow], candidate: str, styles: Mapping[str, Style]
) -> list[canvas.Panel]:
    """A row for each workload: the candidate in colour, before its peers in grey."""

    def draw(axes: Axes) -> None:
        own = [_near(row.candidate) if row.candidate else None for row in rows]
        peers = [(place, peer) for place, row in enumerate(rows) for peer in row.peers]
        ends = [min(peer.ratio, FARTHEST) for _, peer in peers]
        _axis(axes, [*ends, *(end for ratio in own if ratio for end in _ends(ratio))], plain=True)
        axes.set_title("← better than every peer")
        values = [three_digits(row.candidate.ratio) if row.candidate else "-" for row in rows]
        canvas.name_rows(axes, [row.name for row in rows], values)
        axes.hlines(range(len(rows)), *axes.get_xlim(), color=RULE, linewidth=0.6, zorder=0.8)
        for name in dict.fromkeys(peer.name for _, peer in peers):
            theirs = [(peer.ratio, place) for place, peer in peers if peer.name == name]
            for far, marker in ((False, styles[name].marker), (True, ">")):
                if points := [p for p in theirs if (p[0] > FARTHEST) == far]:
                    (marks,) = axes.plot(
                        [min(ratio, FARTHEST) for ratio, _ in points],
                        [place for _, place in points],
                        marker=marker,
                        markersize=4.6,
                        color=REST,
                        markeredgewidth=0,
                        linestyle="none",
                        zorder=2,
                    )
                    canvas.tip(marks, name)
        for place, ratio in enumerate(own):
            if ratio:
                _point(axes, ratio, place, styles[candidate], strong=True)

    return [canvas.Panel(HEAD + len(rows) * ROW, draw)]


def _near(ratio: Ratio) -> Ratio:
    """As far as it is drawn."""
    low, high = (None if end is None else min(max(end, 1 / FARTHEST), FARTHEST)
                 for end in (ratio.low, ratio.high))  # fmt: skip
    return replace(ratio, ratio=min(ratio.ratio, FARTHEST), low=low, high=high)
