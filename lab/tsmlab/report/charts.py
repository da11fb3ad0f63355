"""The usual figures as Vega-Lite: lines, ratios with intervals, points, runs, bars.

A panel is a chart as wide as its page. Names are passed as data and never as part of the
specification, so that no name is mistaken for an expression or a path to a field.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tsmlab.metrics import Unit
from tsmlab.report.page import Spec
from tsmlab.report.theme import Style
from tsmlab.text import visible
from tsmlab.wording import change

# From this spread of ratios on, the axis is logarithmic.
LOG_FROM = 4.0
HEIGHT = 260
ROW = 22
# The wheel and touch scroll the page unless Ctrl is held; dragging with the mouse pans.
_ZOOM = {
    "type": "interval",
    "zoom": "wheel![event.ctrlKey]",
    "translate": "[pointerdown[event.pointerType == 'mouse'], window:pointerup]"
    " > window:pointermove!",
}
_HEIGHT: dict[str, Spec] = {"y": {"value": 0}, "y2": {"value": "height"}}
_STEPS: dict[Unit, tuple[tuple[str, float], ...]] = {
    "bytes": (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("bytes", 1.0)),
    "seconds": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)),
}
_BYTES = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~r') + 'G' : "
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~r') + 'M' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~r') + 'K' : format(datum.value, '~r')"
)
_CHANGE = (
    "datum.value >= 2 || datum.value < 0.05 ? format(datum.value, '~r') + 'x' : "
    "datum.value == 1 ? '0%' : format((datum.value - 1) * 100, '+.3~r') + '%'"
)
# 6, 7, 8 and 9 of a decade: on a logarithmic axis of several decades their labels do not fit.
CROWDED_FROM = 10.0
_CROWDED = (
    "indexof(['6', '7', '8', '9'], format(datum.value / pow(10, floor(log(datum.value) / LN10 + "
    "1e-9)), '.4~r')) >= 0 ? '' : "
)


@dataclass(frozen=True)
class Axis:
    """The contents of an axis. names: labels if the values are words, at 0, 1, 2, ... zero: it
    begins at 0, unless it is logarithmic. marks: where ticks are, if not anywhere."""

    title: str
    unit: Unit = "number"
    log: bool = False
    zero: bool = False
    names: Sequence[str] = ()
    marks: Sequence[float] = ()

    def factor(self, values: Iterable[float]) -> tuple[str, float]:
        """The title with its unit, and the divisor for values: a linear axis has ticks at round
        numbers of one unit."""
        steps = _STEPS.get(self.unit, ())
        if self.log or not steps:
            return self.title, 1.0
        largest = max((abs(value) for value in values), default=0.0)
        unit, size = next((step for step in steps if largest >= step[1]), steps[-1])
        return f"{self.title} ({unit})", size

    def encoded(self, field: str, title: str) -> Spec:
        if self.names:
            return {"field": field, "type": "ordinal", "sort": None, "title": title,
                    "axis": {"labelAngle": 0}}  # fmt: skip
        scale: Spec = {"zero": self.zero and not self.log, "nice": False, "padding": 8}
        label = "datum.value ? format(datum.value, '~s') : '0'" if self.unit == "count" else ""
        if self.log:
            scale |= {"type": "log", "zero": False}
            if self.unit == "bytes":
                scale["base"], label = 2, _BYTES
            elif self.unit == "seconds":
                label = f"{_CROWDED}format(datum.value, '~s') + 's'"
        axis: Spec = {"labelExpr": label} if label else {"format": "~r"}
        if self.marks:
            # Vega thins them out to the number of ticks that it would have made.
            axis |= {"values": list(self.marks), "tickCount": len(self.marks),
                     "labelOverlap": "greedy", "labelBound": False}  # fmt: skip
        return {"field": field, "type": "quantitative", "title": title, "scale": scale,
                "axis": axis}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line of points (x, y) or (x, y, low, high), with a 95% interval. stepped: y stays constant
    until the next point. marked: with a symbol at each point. model: a fitted curve of the series,
    dotted."""

    name: str
    points: Sequence[Sequence[float]]
    style: Style
    stepped: bool = False
    marked: bool = False
    model: bool = False


@dataclass(frozen=True)
class Ratio:
    """A point of a row with its interval. said: the tooltip. resolved: a verdict was reached, so
    the point is filled."""

    row: str
    ratio: float
    low: float | None = None
    high: float | None = None
    said: str = ""
    resolved: bool = True


@dataclass(frozen=True)
class Point:
    """A point with intervals in both directions. front: it is on the Pareto front."""

    name: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    style: Style
    front: bool = False


def chart(
    fields: Mapping[str, Sequence[Any]],
    layers: Sequence[Spec],
    x: Spec,
    y: Spec,
    styles: Mapping[str, Style] | None = None,
    title: str = "",
    height: Any = HEIGHT,
    zooms: Sequence[str] = ("x", "y"),
) -> Spec:
    """A panel of layers that share data, axes and colours. fields: the columns of the data; with
    styles, rows belong to series, and rows of series in the parameter `hidden` are left out. A
    layer with data of its own (made by apart()) is independent of this."""
    shown = [{**layer} for layer in layers]
    if zooms:
        select = {**_ZOOM, "encodings": list(zooms)}
        first = next(layer for layer in shown if "data" not in layer)
        first["params"] = [{"name": "zoom", "select": select, "bind": "scales"}]
    spec: Spec = {
        **({"title": visible(title)} if title else {}),
        "width": "container",
        "height": height,
        "params": [{"name": "hidden", "value": []}],
        "data": _data(fields),
        "encoding": {"x": x, "y": y},
        "layer": shown,
    }
    if styles:
        spec["encoding"]["color"] = by_series(styles, _colours(styles))
        spec["transform"] = [{"filter": "indexof(hidden, datum.series) < 0"}]
    return spec


def by_series(styles: Mapping[str, Style], values: Sequence[Any]) -> Spec:
    """A channel with one of these values for each series."""
    scale = {"domain": [visible(name) for name in styles], "range": list(values)}
    return {"field": "series", "type": "nominal", "scale": scale, "legend": None}


def _colours(styles: Mapping[str, Style]) -> list[str]:
    return [f"var(--{style.hue})" for style in styles.values()]


def _points(styles: Mapping[str, Style], size: int, hollow: str, *tips: tuple[str, str]) -> Spec:
    """A layer with a point for each row, in the style of its series. hollow: the field that is 0
    for points that are not filled."""
    condition = {"test": f"datum.{hollow} == 0", "value": "var(--paper)"}
    return {
        "mark": {"type": "point", "clip": True, "size": size, "filled": False},
        "encoding": {
            "shape": by_series(styles, [style.shape for style in styles.values()]),
            "fill": {**by_series(styles, _colours(styles)), "condition": condition},
            "tooltip": tooltip(("series", "series"), *tips),
        },
    }


def _rows(field: str, names: Iterable[str]) -> Spec:
    """A vertical axis with a row for each name, from the top."""
    return {"field": field, "type": "nominal", "title": None,
            "scale": {"domain": [visible(name) for name in names]},
            "axis": {"labelColor": "var(--ink)", "grid": True}}  # fmt: skip


def apart(mark: Spec, colour: str, values: Mapping[str, float], **encoding: Spec) -> Spec:
    """A layer for one thing that is not in the data: a band, or a line at 1."""
    return {
        "mark": {"clip": True, **mark},
        "data": {"values": [dict(values)]},
        "encoding": {"color": {"value": f"var(--{colour})"}, **encoding},
    }


def _intervals(along: str, low: str, high: str, **mark: float) -> Spec:
    """A layer with a rule from one column to another, along an axis; None has none."""
    return {
        "transform": [{"filter": f"isValid(datum.{low}) && isValid(datum.{high})"}],
        "mark": {"type": "rule", "clip": True, **mark},
        "encoding": {along: {"field": low}, f"{along}2": {"field": high}},
    }


def tooltip(*fields: tuple[str, str]) -> list[Spec]:
    """The tooltip of a mark, from named columns."""
    return [{"field": field, "title": title, "type": "nominal"} for field, title in fields]


def _data(fields: Mapping[str, Sequence[Any]]) -> Spec:
    rows = zip(*(map(_cell, column) for column in fields.values()), strict=True)
    return {"values": [dict(zip(fields, row, strict=True)) for row in rows]}


def _cell(value: str | float | None) -> Any:
    """A figure shows at most six digits."""
    if value is None:
        return None
    return visible(value) if isinstance(value, str) else float(f"{value:.6g}")


# --- lines ----------------------------------------------------------------------------------------


def lines(
    own: Sequence[Line],
    x: Axis,
    y: Axis,
    title: str = "",
    bands: Sequence[tuple[str, float, float]] = (),
) -> Spec:
    """A panel of lines; grey ones are in the background, and bands (name, from, to) behind all of
    them."""
    ordered = sorted(own, key=lambda line: line.style.is_strong)
    styles = {line.name: line.style for line in ordered if not line.model}
    x_title, x_unit = x.factor(p[0] for line in ordered for p in line.points)
    y_title, y_unit = y.factor(p[1] for line in ordered for p in line.points)
    points = [(line, point) for line in ordered for point in line.points]
    has_interval = [len(point) > 3 for _, point in points]

    def end(place: int) -> list[float | None]:
        return [point[place] / y_unit if has else None
                for (_, point), has in zip(points, has_interval, strict=True)]  # fmt: skip

    fields: dict[str, list[Any]] = {
        "series": [line.name for line, _ in points],
        "x": [x.names[int(p[0])] if x.names else p[0] / x_unit for _, p in points],
        "y": [point[1] / y_unit for _, point in points],
        "model": [float(line.model) for line, _ in points],
    }
    tip = tooltip(("series", "series"), ("x", x_title), ("y", y_title))
    layers: list[Spec] = []
    for name, begin, end_ in bands:
        at = {"x": begin / x_unit, "to": end_ / x_unit}
        layers.append(apart({"type": "rect"}, "band", at, x2={"field": "to"}, **_HEIGHT))
        text = {"type": "text", "text": visible(name), "align": "left", "dx": 4, "dy": -8}
        layers.append(apart(text, "soft", at, y={"value": "height"}))
    if any(has_interval):
        fields |= {"low": end(2), "high": end(3)}
        tip += tooltip(("low", "from"), ("high", "to"))
        layers.append(_intervals("y", "low", "high", strokeWidth=1.4))
    widths = [2.0 if line.style.is_strong else 1.0 for line in ordered if not line.model]
    dashes = [list(style.dash) or [1, 0] for style in styles.values()]
    interpolate = "step-after" if any(line.stepped for line in ordered) else "linear"
    layers.append({
        "transform": [{"filter": "datum.model == 0"}],
        "mark": {"type": "line", "clip": True, "interpolate": interpolate},
        "encoding": {
            "strokeDash": by_series(styles, dashes),
            "strokeWidth": by_series(styles, widths),
        },
    })  # fmt: skip
    if any(line.model for line in ordered):
        layers.append({
            "transform": [{"filter": "datum.model == 1"}],
            "mark": {"type": "line", "clip": True, "strokeDash": [1, 3], "strokeWidth": 1.4},
        })  # fmt: skip
    marked = any(line.marked for line in ordered)
    layers.append({
        "transform": [{"filter": "datum.model == 0"}],
        "mark": {"type": "point", "clip": True, "filled": True, "size": 45 if marked else 80,
                 "opacity": 1 if marked else 0},
        "encoding": {
            "shape": by_series(styles, [style.shape for style in styles.values()]),
            "tooltip": tip,
        },
    })  # fmt: skip
    across = x.encoded("x", x_title)
    if not x.names and all(value == round(value) for value in fields["x"]):
        across["axis"]["tickMinStep"] = 1
    zooms = ("y",) if x.names else ("x", "y")
    return chart(fields, layers, across, y.encoded("y", y_title), styles, title, zooms=zooms)


# --- ratios ---------------------------------------------------------------------------------------


def ratios(
    found: Sequence[Ratio],
    rows: Sequence[str],
    styles: Mapping[str, Style],
    title: str,
    band: tuple[float, float] | None = None,
    plain: bool = False,
) -> Spec:
    """A row for each name, from the top, with its ratio and interval around 1. plain: as numbers,
    not as changes."""
    fields: dict[str, list[Any]] = {
        "row": [each.row for each in found],
        "series": [each.row for each in found],
        "ratio": [each.ratio for each in found],
        "low": [each.low for each in found],
        "high": [each.high for each in found],
        "resolved": [float(each.resolved) for each in found],
        "said": [each.said for each in found],
    }
    layers = [apart({"type": "rule"}, "soft", {"ratio": 1.0}, **_HEIGHT)]
    if band:
        edges = {"ratio": band[0], "to": band[1]}
        layers.insert(0, apart({"type": "rect"}, "band", edges, x2={"field": "to"}, **_HEIGHT))
    layers += [
        _intervals("x", "low", "high", strokeWidth=2.2),
        _points(styles, 60, "resolved", ("said", "ratio")),
    ]
    ends = [end for each in found for end in (each.ratio, each.low, each.high) if end]
    x = _ratio_axis("ratio", title, ends, plain)
    y = _rows("row", rows)
    return chart(fields, layers, x, y, styles, height={"step": ROW}, zooms=("x",))


def _ratio_axis(field: str, title: str, ends: Sequence[float], plain: bool = False) -> Spec:
    """An axis that always includes 1; logarithmic if ratios spread widely."""
    low, high = min([*ends, 1.0]), max([*ends, 1.0])
    log, crowded = high / low > LOG_FROM, high / low > CROWDED_FROM
    scale = {"type": "log" if log else "linear", "zero": False, "nice": False, "padding": 12,
             "domain": [low, high]}  # fmt: skip
    axis: Spec = {"labelExpr": (_CROWDED if crowded else "")
                  + ("format(datum.value, '~r')" if plain else _CHANGE)}  # fmt: skip
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def points(found: Sequence[Point], x_title: str, y_title: str, upwards: bool) -> Spec:
    """Ratios in two quantities with their intervals, and the Pareto front. upwards: more is better
    on the y axis."""
    styles = {each.name: each.style for each in found}
    fields: dict[str, list[Any]] = {
        "series": [each.name for each in found],
        "front": [float(each.front) for each in found],
    }
    ends: dict[str, list[float]] = {}
    for name in ("x", "y"):
        for place, end in enumerate(("", "low", "high")):
            fields[f"{name}{end}"] = [getattr(each, name)[place] for each in found]
        fields[f"{name}said"] = [change(value) for value in fields[name]]
        ends[name] = [end for each in found for end in getattr(each, name) if end]
    layers = [
        _intervals(along, f"{along}low", f"{along}high", opacity=0.6, strokeWidth=1.4)
        for along in ("x", "y")
    ]
    if front := sorted((each for each in found if each.front), key=lambda each: each.x[0] or 0.0):
        best = max if upwards else min  # a point that is worse than another by less than the margin
        heights = list(itertools.accumulate((each.y[0] or 0.0 for each in front), best))
        steps = [(each.x[0], y) for each, y in zip(front, heights, strict=True)]
        far = (min if upwards else max)(ends["y"])
        steps = [(steps[0][0], far), *steps, (max(ends["x"]), heights[-1])]
        layers.append({
            "data": {"values": [{"place": i, "x": x, "y": y} for i, (x, y) in enumerate(steps)]},
            "mark": {"type": "line", "clip": True, "interpolate": "step-after",
                     "strokeDash": [4, 3], "strokeWidth": 1.2},
            "encoding": {"color": {"value": "var(--soft)"}, "order": {"field": "place"}},
        })  # fmt: skip
    layers.append(_points(styles, 80, "front", ("xsaid", x_title), ("ysaid", y_title)))
    x = _ratio_axis("x", x_title, ends["x"])
    y = _ratio_axis("y", y_title, ends["y"])
    return chart(fields, layers, x, y, styles, height=320)


# --- single runs ----------------------------------------------------------------------------------


def strips(
    runs: Sequence[tuple[str, float]],
    medians: Mapping[str, float],
    styles: Mapping[str, Style],
    axis: Axis,
) -> Spec:
    """A row for each name with a tick for every run, and a longer one at the median."""
    title, unit = axis.factor(value for _, value in runs)
    fields: dict[str, list[Any]] = {
        "series": [name for name, _ in runs],
        "x": [value / unit for _, value in runs],
    }
    middle = [{"series": visible(name), "x": value / unit} for name, value in medians.items()]
    layers = [
        {
            "mark": {"type": "tick", "clip": True, "thickness": 1.5, "size": 12, "opacity": 0.7},
            "encoding": {"tooltip": tooltip(("series", "series"), ("x", title))},
        },
        {
            "data": {"values": middle},
            "mark": {"type": "tick", "clip": True, "thickness": 3, "size": 18},
            "encoding": {"color": {"value": "var(--ink)"},
                         "tooltip": tooltip(("series", "series"), ("x", f"median {title}"))},
        },
    ]  # fmt: skip
    x, y = axis.encoded("x", title), _rows("series", medians)
    return chart(fields, layers, x, y, styles, height={"step": ROW}, zooms=("x",))


def bars(spans: Sequence[tuple[float, float, float]], style: Style, x: Axis, y_title: str) -> Spec:
    """A bar for each range of an axis: from, to, and its share of the total."""
    low, high, part = zip(*spans, strict=True)
    title, _ = x.factor(low)
    tip = [*tooltip(("x", f"{title} from"), ("to", "to")),
           {"field": "y", "title": y_title, "type": "quantitative", "format": ".2~%"}]  # fmt: skip
    layer = {
        "mark": {"type": "rect", "clip": True, "stroke": "var(--paper)", "strokeWidth": 0.5,
                 "color": f"var(--{style.hue})"},
        "encoding": {"x2": {"field": "to"}, "y2": {"datum": 0}, "tooltip": tip},
    }  # fmt: skip
    y = {"field": "y", "type": "quantitative", "title": y_title, "axis": {"format": "~p"},
         "scale": {"zero": True, "nice": False, "padding": 4}}  # fmt: skip
    return chart({"x": low, "to": high, "y": part}, [layer], x.encoded("x", title), y, height=200)
