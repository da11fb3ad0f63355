"""The figures: what they draw is what the results say, in colours that can be told apart."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from html import escape
from xml.etree import ElementTree

import numpy as np
import pytest
import report_world as world
import scipy.stats
from experiment_world import THREADS, made_up
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tsmlab.metrics import PEAK_MEMORY, TIME, Unit
from tsmlab.report import series, svg, theme
from tsmlab.report.figures import (
    canvas,
    of_comparison,
    runs,
    scales,
    sweeps,
)
from tsmlab.report.figures.of_comparison import Look
from tsmlab.report.pages import comparison as pages
from tsmlab.report.theme import styles_for
from tsmlab.results import Comparison
from tsmlab.text import shortened, slug, visible, with_minus


@pytest.fixture(scope="module")
def compared() -> Comparison:
    return world.compared(12, 8, 300)


@pytest.fixture(scope="module")
def look(compared: Comparison) -> Look:
    return of_comparison.look_of(compared)


# --- the theme ------------------------------------------------------------------------------------


def themes(name: str) -> list[str]:
    tone = theme.TONES[name]
    return [tone.light, tone.dark]


TEXTS = ("ink", "soft", "link", "better", "worse", "open", "alarm")
TINTS = ("cool2", "cool1", "even", "warm1", "warm2", "warm3")
MEETING = [
    *itertools.product(TEXTS, ("paper", "panel", "best-paper")),
    *itertools.product(theme.HUES, ("paper", "band")),
    *itertools.product(("ink",), TINTS),
    *itertools.product(("ink", "soft"), ("care-paper", "alarm-paper")),
    *(("open", "care-paper"), ("alarm", "alarm-paper")),
]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours by WCAG 2.2: 1 to 21."""
    brighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("text", "paper"), MEETING)
def test_text_has_the_contrast_of_wcag_aa(text: str, paper: str) -> None:
    for one, other in zip(themes(text), themes(paper), strict=True):
        assert contrast(one, other) >= 4.5


def test_what_is_not_emphasised_can_still_be_seen() -> None:
    for one, other in zip(themes("rest"), themes("paper"), strict=True):
        assert contrast(one, other) >= 3.0


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_each_light_colour_has_one_name() -> None:
    values = [tone.light for tone in theme.TONES.values()]
    assert len(values) == len(set(values))


# Machado, Oliveira & Fernandes, 2009: linear colours as they appear without red or green cones.
PROTANOPIA = ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052))
DEUTERANOPIA = ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969))
NORMAL = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))


def seen(colour: str, eye: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """A colour in CIELAB, as an eye sees it."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    white = np.array([0.9505, 1.0, 1.089])
    x, y, z = np.cbrt(np.array(TO_XYZ) @ np.clip(np.array(eye) @ linear, 0.0, 1.0) / white)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eye", [NORMAL, PROTANOPIA, DEUTERANOPIA])
@pytest.mark.parametrize("system", ["light", "dark"])
def test_hues_can_be_told_apart(eye: tuple[tuple[float, ...], ...], system: str) -> None:
    """2.3 is the least difference that can be noticed; marks on paper need several times that."""
    colours = [seen(getattr(tone, system), eye) for tone in theme.HUES.values()]
    distances = [float(np.linalg.norm(a - b)) for a, b in itertools.combinations(colours, 2)]
    assert min(distances) > 12.0


def test_allocators_differ_in_hue_or_in_shape() -> None:
    styles = styles_for(list(world.NAMES))
    assert len({(s.hue, s.marker, s.dash) for s in styles.values()}) == len(world.NAMES)
    assert styles_for(["x", "tsmalloc"])["tsmalloc"] == styles_for(["tsmalloc"])["tsmalloc"]


# --- a comparison's figures -----------------------------------------------------------------------


def test_forest_plot_holds_the_analysed_ratios(compared: Comparison) -> None:
    for panel, key in zip(of_comparison.forest_panels(compared), (TIME, PEAK_MEMORY), strict=True):
        drawn = {r.name: (r.ratio, r.low, r.high) for r in panel.ratios}
        analysed = {
            row.allocator: (found.ratio, found.low, found.high)
            for row in compared.analysis.rows
            if (found := row.metrics[key].ratio)
        }
        assert drawn == analysed


def test_the_scatter_has_the_ratios_that_are_judged_and_their_front(
    compared: Comparison, look: Look
) -> None:
    points = of_comparison.front_points(compared, look)
    assert len(points) == 12
    for point in points:
        row = next(r for r in compared.analysis.rows if r.allocator == point.name)
        ratios = [row.metrics[key].ratio for key in (PEAK_MEMORY, TIME)]
        expected = [1.0 if ratio is None else ratio.ratio for ratio in ratios]
        assert [point.x, point.y] == expected
        assert point.on_front == row.pareto


def test_memory_curve_is_the_typical_runs_own(compared: Comparison, look: Look) -> None:
    curves = of_comparison.memory_lines(compared, look)
    assert len(curves) == 12
    for curve in curves:
        sample = series.typical_run(compared, curve.name, TIME)
        assert sample is not None
        whole = series.of_sample(sample)
        assert set(zip(curve.xs, curve.ys, strict=True)) <= set(whole)
        assert max(curve.ys) == max(y for _, y in whole)
        times = sorted(
            s.values[TIME]
            for s in compared.samples
            if s.allocator == curve.name and s.phase == "measured"
        )
        middle = compared.analysis.rows[0].metrics[TIME].median  # of anybody: only to be finite
        assert math.isfinite(middle)
        assert times[0] < sample.values[TIME] < times[-1]


def test_run_order_holds_every_measured_run(compared: Comparison) -> None:
    found = of_comparison.measured_runs(compared, compared.metric(TIME))
    measured = [s for s in compared.samples if s.phase == "measured"]
    assert [(r.name, r.value) for r in found] == [(s.allocator, s.values[TIME]) for s in measured]
    assert [r.number for r in found] == list(range(1, len(measured) + 1))


def test_run_far_outside_is_drawn_at_the_edge_and_not_dropped() -> None:
    made = [runs.Run(n, 1, "a", 1.0, 1.0 + 0.001 * n) for n in range(1, 60)]
    far = runs.Run(60, 1, "a", 9.0, 9.0)
    with canvas.drawing("n"):
        panels = runs.order_panels([*made, far], ["a"], styles_for(["a"]), "slower")
        axes = canvas.drawn(panels).axes[1]
    drawn = sum(len(line.get_xdata()) for line in axes.lines if line.get_linestyle() == "None")
    assert drawn == 60


def test_of_many_allocators_only_the_important_ones_are_coloured(
    compared: Comparison, look: Look
) -> None:
    assert len(look.emphasised) == of_comparison.ALL_IN_COLOUR
    best = {leaders.best for leaders in compared.analysis.leaders.values()}
    assert {"tsmalloc", compared.reference, *best} <= look.emphasised


def test_figures_leave_no_colour_and_no_identifier_to_chance(
    compared: Comparison, look: Look
) -> None:
    figures = list(of_comparison.figures(compared, look))
    again = list(of_comparison.figures(compared, look))
    assert [f.svg for f in figures] == [f.svg for f in again]
    ids = [found for f in figures for found in re.findall(r'\bid="([^"]+)"', f.svg)]
    assert len(ids) == len(set(ids))
    for figure in figures:
        for image in (figure.svg, figure.svg_file):
            ElementTree.fromstring(image)
        assert "metadata" not in figure.svg
        assert "var(" not in figure.svg_file


def test_every_allocator_is_named_in_time_against_memory(compared: Comparison, look: Look) -> None:
    figure = of_comparison.time_against_memory(compared, look)
    assert figure is not None
    assert {row.allocator for row in compared.analysis.rows} <= set(texts_of(figure.svg))


def texts_of(image: str) -> list[str]:
    found = ElementTree.fromstring(image).iter(f"{svg.NAMESPACE}text")
    return ["".join(element.itertext()) for element in found]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.text(min_size=1, max_size=40).map(visible), min_size=1, max_size=5))
@example(["  M 1.23456 2.5 L 0.0001 ", 'style="fill: #161b22"', "rotate(-0 1.000 2)", "<g/>&amp;"])
def test_texts_keep_every_character(texts: list[str]) -> None:
    """Even those that look like numbers, colours, paths or tags."""

    def draw(axes: Axes) -> None:
        axes.axis("off")
        for place, text in enumerate(texts):
            axes.text(0.0, place, text)

    table = pages.DataTable("t", [], [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        title, tip = " ".join(texts), texts[0]
        figure = canvas.render("n", title, tip, "", table, [canvas.Panel(99.0, draw)])
    lines = [line for text in texts for line in text.split("\n") if line.strip()]
    assert [text for text in texts_of(figure.svg) if text.strip()] == lines
    root = ElementTree.fromstring(figure.svg)
    assert [root[0].text, root[1].text or ""] == [title, tip]


def image_of(path: str, style: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg"><path d="{path}" style="{style}"/></svg>'


def test_unknown_colour_is_refused() -> None:
    with pytest.raises(ValueError, match="#123456"):
        svg.compact(image_of("M 0 0 L 1 1", "fill: #123456"), "n", "t", "d")


def test_paths_keep_their_points() -> None:
    ink = theme.TONES["ink"].light
    points = [(0.04, 0.06), (10.26, 3.0), (10.26, 7.77), (3.3, 7.77), (-2.5, 0.1)]
    data = " ".join(f"{'M' if n == 0 else 'L'} {x} {y}" for n, (x, y) in enumerate(points))
    short = svg.compact(image_of(data, f"stroke: {ink}"), "n", "t", "d")
    path = re.search(r' d="([^"]+)"', short)
    assert path is not None
    place, found = [0.0, 0.0], []
    for command, numbers in re.findall(r"([Mlhv])([^Mlhv]*)", path[1]):
        values = [float(v) for v in re.findall(r"-?\d*\.?\d+", numbers)]
        if command == "M":
            place = values
        else:
            step = {"l": values, "h": [*values, 0.0], "v": [0.0, *values]}[command][:2]
            place = [place[0] + step[0], place[1] + step[1]]
        found.append(tuple(place))
    assert found == [pytest.approx((x, y), abs=0.051) for x, y in points]


# --- lines, labels, axes --------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e9)), min_size=1, max_size=2000))
def test_thinned_curve_keeps_ends_and_extremes(points: list[tuple[float, float]]) -> None:
    points.sort(key=lambda p: p[0])
    thin = series.thinned(points, 50)
    assert len(thin) <= 53
    assert set(thin) <= set(points)
    assert (thin[0], thin[-1]) == (points[0], points[-1])
    assert max(y for _, y in thin) == max(y for _, y in points)
    assert min(y for _, y in thin) == min(y for _, y in points)
    assert [x for x, _ in thin] == sorted(x for x, _ in thin)


@pytest.mark.parametrize(
    ("ratio", "words"), [(1.0, "0"), (0.8, "-20 %"), (1.05, "+5 %"), (2.0, "2x"), (10.0, "10x")]
)
def test_ratios_on_an_axis(ratio: float, words: str) -> None:
    assert scales.change_words(ratio) == words


BOUNDS = st.tuples(st.floats(1e-9, 1e12), st.floats(1.0, 1e6)).map(lambda p: (p[0], p[0] * p[1]))


@settings(deadline=None)
@given(BOUNDS, st.sampled_from(["seconds", "bytes", "count", "number"]), st.booleans())
def test_axes_have_some_ticks_but_few(ends: tuple[float, float], unit: Unit, log: bool) -> None:
    with canvas.drawing("n"):
        axes = Figure().subplots()
        scales.quantity_axis(axes.xaxis, ends, unit, log)
    low, high = axes.get_xlim()
    assert low <= ends[0] <= ends[1] <= high
    ticks = axes.get_xticks()
    assert 2 <= len(ticks) <= scales.MOST_TICKS + 1
    assert all(low <= tick <= high for tick in ticks)


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=9))
def test_an_axis_of_ratios_shows_one_and_more(ratios: list[float]) -> None:
    with canvas.drawing("n"):
        axes = Figure().subplots()
        scales.ratio_axis(axes.xaxis, ratios)
    ticks = list(axes.get_xticks())
    assert 2 <= len(ticks) <= scales.MOST_TICKS + 1
    assert any(tick == pytest.approx(1.0) for tick in ticks)


def test_mean_over_time_weighs_by_time() -> None:
    assert series.mean_bytes([[0.0, 10.0], [1.0, 30.0], [3.0, 0.0]]) == pytest.approx(70.0 / 3.0)


# --- sweeps ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scaling() -> Comparison:
    return world.experimented("x5-threads", ("tsmalloc", "glibc", "lock-best"), 6)


def test_a_sweep_has_a_figure_for_each_metric_and_none_of_its_runs_together(
    scaling: Comparison,
) -> None:
    look = of_comparison.look_of(scaling)
    names = [figure.name for figure in sweeps.figures(scaling, look)]
    assert names == ["sweep-seconds"]
    assert [figure.name for figure in of_comparison.figures(scaling, look)] == ["ratios"]
    panels = sweeps.panels_of(scaling, look, scaling.parameters[0], scaling.metric("seconds"))
    (panel,) = panels
    drawn = [line for line in panel.lines if not line.model]
    assert [line.name for line in drawn] == ["tsmalloc", "glibc", "lock-best"]
    for line in drawn:
        assert list(line.xs) == scaling.parameters[0].values
        assert all(a <= b <= c for a, b, c in zip(line.lows, line.ys, line.highs, strict=True))


def test_a_level_is_the_geometric_mean_with_its_interval(scaling: Comparison) -> None:
    levels = sweeps.levels_of(scaling, scaling.metric("seconds"))
    own = [
        math.log(sample.values["seconds"])
        for sample in scaling.samples
        if (sample.point, sample.allocator) == (3, "lock-best")
    ]
    interval = scipy.stats.t.interval(0.95, len(own) - 1, np.mean(own), scipy.stats.sem(own))
    expected = (math.exp(np.mean(own)), *map(math.exp, interval))
    assert levels[3, "lock-best"] == pytest.approx(expected, rel=1e-6)


def test_fitted_laws_are_drawn_beside_the_points(scaling: Comparison) -> None:
    look = of_comparison.look_of(scaling)
    (panel,) = sweeps.panels_of(scaling, look, scaling.parameters[0], scaling.metric("seconds"))
    laws = [line for line in panel.lines if line.model]
    curves = [curve for finding in scaling.findings for curve in finding.curves]
    assert [(list(m.xs), list(m.ys)) for m in laws] == [
        ([x for x, _ in curve.points], [y for _, y in curve.points]) for curve in curves
    ]
    assert len(laws) == 3


def test_a_cell_that_failed_is_in_no_line() -> None:
    found = made_up(
        [THREADS],
        ["glibc", "a"],
        lambda name, p: None if (name, p["threads"]) == ("a", 4) else {"seconds": 1.0},
    )
    (panel,) = sweeps.panels_of(found, of_comparison.look_of(found), THREADS, found.metrics[0])
    assert {line.name: list(line.xs) for line in panel.lines} == {
        "glibc": [1, 2, 4, 8],
        "a": [1, 2, 8],
    }


def test_counts_are_shown_where_they_differ() -> None:
    counts = [
        {"growth_calls": 10.0, "mmap_calls": 5.0, "retries": 0.0, "futex_calls": 0.0},
        {"growth_calls": 90.0, "mmap_calls": 5.0, "retries": 0.0, "futex_calls": 7.0},
    ]
    assert pages.telling(counts) == ["growth_calls", "futex_calls"]


# --- text -----------------------------------------------------------------------------------------


@given(st.text())
def test_visible_text_is_harmless(text: str) -> None:
    shown = visible(text)
    shown.encode()
    ElementTree.fromstring(f"<a>{escape(shown)}</a>")
    assert visible(shown) == shown


@given(st.text(max_size=80))
def test_slugs_are_names_of_files(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug(text))


def test_negative_numbers_get_their_sign() -> None:
    assert with_minus("-3 % [-4, -2], x-1, 2-3") == "−3 % [−4, −2], x-1, 2-3"


def test_shortened_text_says_so() -> None:
    assert shortened("a  b\nc", 10) == "a b c"
    assert shortened("abcdefghij", 5) == "abcd…"
