"""The figures: they draw the results, in distinguishable colours."""

import itertools
import json
import math
import re
from html import escape
from xml.etree import ElementTree

import numpy as np
import pytest
import report_fixtures as fixtures
import scipy.stats
from experiment_fixtures import THREADS, made_up
from hypothesis import given
from hypothesis import strategies as st

from tsmlab import cause_tables, series
from tsmlab.metrics import PEAK_MEMORY, TIME
from tsmlab.report import charts, figures, theme
from tsmlab.report.theme import styles_for
from tsmlab.text import shortened, slug, visible, with_minus


@pytest.fixture(scope="module")
def compared():
    return fixtures.compared(12, 8, 300)


def figure_of(compared, name):
    return next(each for each in figures.figures(compared) if each.name == name)


def rows_of(figure, panel=0):
    return list(figure.panels[panel]["data"]["values"])


def themes(name):
    tone = theme.TONES[name]
    return [tone.light, tone.dark]


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


TEXTS = ("ink", "soft", "link", "better", "worse", "open", "alarm")
MEETING = [
    *itertools.product(TEXTS, ("paper", "panel")),
    *itertools.product(theme.HUES, ("paper", "band")),
    *itertools.product(("ink", "soft"), ("care-paper", "alarm-paper")),
    *(("open", "care-paper"), ("alarm", "alarm-paper")),
]


def contrast(one, other):
    """The contrast ratio of two colours by WCAG 2.2: 1 to 21."""
    luminances = (linear(colour) @ (0.2126, 0.7152, 0.0722) for colour in (one, other))
    darker, brighter = sorted(luminances)
    return (brighter + 0.05) / (darker + 0.05)


def test_text_has_the_contrast_of_wcag_aa():
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    # What is not emphasised can still be seen.
    for least, text, paper in (*((4.5, *pair) for pair in MEETING), (3.0, "rest", "paper")):
        for one, other in zip(themes(text), themes(paper), strict=True):
            assert contrast(one, other) >= least, (text, paper)


# Machado, Oliveira & Fernandes, 2009: linear colours as they appear without red or green cones.
PROTANOPIA = ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052))
DEUTERANOPIA = ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969))
NORMAL = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))


def seen(colour, eye):
    """A colour in CIELAB, as an eye with this deficiency sees it."""
    white = np.array([0.9505, 1.0, 1.089])
    visible = np.clip(np.array(eye) @ linear(colour), 0.0, 1.0)
    x, y, z = np.cbrt(np.array(TO_XYZ) @ visible / white)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eye", [NORMAL, PROTANOPIA, DEUTERANOPIA])
@pytest.mark.parametrize("system", ["light", "dark"])
def test_hues_can_be_told_apart(eye, system):
    """2.3 is the smallest difference that can be noticed; marks on paper need several times
    that."""
    colours = [seen(getattr(tone, system), eye) for tone in theme.HUES.values()]
    distances = [float(np.linalg.norm(a - b)) for a, b in itertools.combinations(colours, 2)]
    assert min(distances) > 12.0


def test_allocators_differ_in_hue_or_in_shape():
    styles = styles_for(list(fixtures.NAMES))
    assert len({(s.hue, s.shape, s.dash) for s in styles.values()}) == len(fixtures.NAMES)
    assert styles_for(["x", "tsmalloc"])["tsmalloc"] == styles_for(["tsmalloc"])["tsmalloc"]


def test_forest_plot_holds_the_analysed_ratios(compared):
    figure = figure_of(compared, "ratios")
    for place, key in enumerate((TIME, PEAK_MEMORY)):
        drawn = {r["row"]: (r["ratio"], r["low"], r["high"]) for r in rows_of(figure, place)}
        assert drawn.pop(compared.reference) == (1.0, None, None)
        analysed = {
            row.allocator: (found.ratio, found.low, found.high)
            for row in compared.analysis.rows
            if (found := row.metrics[key].ratio)
        }
        assert drawn == {name: pytest.approx(ends, rel=1e-5) for name, ends in analysed.items()}


def test_the_scatter_has_the_ratios_that_are_judged_and_their_front(compared):
    points = {row["series"]: row for row in rows_of(figure_of(compared, "tradeoff"))}
    assert len(points) == 12
    for row in compared.analysis.rows:
        point = points[row.allocator]
        assert point["front"] == row.pareto
        for axis, key in (("x", PEAK_MEMORY), ("y", TIME)):
            found = row.metrics[key].ratio
            expected = (found.ratio, found.low, found.high) if found else (1.0, None, None)
            drawn = (point[axis], point[f"{axis}low"], point[f"{axis}high"])
            assert drawn == (pytest.approx(expected, rel=1e-5) if found else expected)


def test_memory_curve_is_the_typical_runs_own_and_every_run_is_drawn(compared):
    figure = figure_of(compared, "memory")
    measured = [s for s in compared.samples if s.phase == "measured"]
    for row in compared.analysis.rows:
        sample = series.typical_run(compared, row.allocator, TIME)
        drawn = [r["y"] * 2**20 for r in rows_of(figure) if r["series"] == row.allocator]
        assert max(drawn) == pytest.approx(max(y for _, y in series.memory_curve(sample)), rel=1e-5)
        times = [s.values[TIME] for s in measured if s.allocator == row.allocator]
        assert min(times) < sample.values[TIME] < max(times)
    assert len(rows_of(figure_of(compared, "distribution"))) == len(measured)


def test_of_many_allocators_only_the_important_ones_are_coloured(compared):
    styles = figures.styles_of(compared)
    strong = {name for name, style in styles.items() if style.is_strong}
    assert len(strong) == theme.ALL_IN_COLOUR
    best = {leaders.best for leaders in compared.analysis.leaders.values()}
    assert {"tsmalloc", compared.reference, *best} <= strong


def test_legends_name_what_is_drawn_in_colours_of_the_theme(compared):
    for figure in figures.figures(compared):
        if figure.series:
            named = set(figure.series)
            assert {row["series"] for row in rows_of(figure)} <= named
        text = json.dumps(figure.panels)
        used = set(re.findall(r"var\(--([\w-]+)\)", text))
        assert used
        assert used <= theme.TONES.keys()
        assert not re.search(r'"#[0-9a-fA-F]{3,8}"', text)


ODD = "a.b['c']\\ || datum.x \x1b</script>"


def test_names_are_data_and_never_a_part_of_an_expression():
    """To Vega, a field name with dots or brackets is a path, and a filter is code."""
    style = styles_for([ODD])
    line = charts.Line(ODD, [(1.0, 2.0, 1.5, 2.5), (2.0, 3.0, 2.5, 3.5)], style[ODD], marked=True)
    point = charts.Point(ODD, (1.0, 0.9, 1.1), (1.0, 0.9, 1.1), style[ODD], front=True)
    specs = [
        charts.lines([line], charts.Axis("x"), charts.Axis("y")),
        charts.ratios([charts.Ratio(ODD, 1.1, 1.0, 1.2)], [ODD], style, "ratio"),
        charts.points([point], "x", "y", upwards=False),
        charts.strips([(ODD, 1.0)], {ODD: 1.0}, style, charts.Axis("x")),
    ]

    def texts(value, key=""):
        if isinstance(value, dict):
            return [found for name, each in value.items() for found in texts(each, name)]
        if isinstance(value, list):
            return [found for each in value for found in texts(each, key)]
        return [(key, value)] if isinstance(value, str) else []

    for spec in specs:
        where = {key for key, text in texts(spec) if "datum.x" in text and "</script>" in text}
        assert where <= {"series", "row", "domain"}


def test_linear_axes_are_marked_in_one_unit():
    line = charts.Line("a", [(0.0, 3.0 * 2**20), (0.002, 5.0 * 2**20)], styles_for(["a"])["a"])
    spec = charts.lines([line], charts.Axis("t", "seconds"), charts.Axis("m", "bytes"))
    assert [spec["encoding"][axis]["title"] for axis in "xy"] == ["t (ms)", "m (MiB)"]
    drawn = [(row["x"], row["y"]) for row in spec["data"]["values"]]
    assert drawn == [(0.0, 3.0), (2.0, 5.0)]


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e9)), min_size=1, max_size=2000))
def test_thinned_curve_keeps_ends_and_extremes(points):
    points.sort(key=lambda p: p[0])
    thin = series.thinned(points, 50)
    assert len(thin) <= 53
    assert set(thin) <= set(points)
    assert (thin[0], thin[-1]) == (points[0], points[-1])
    assert max(y for _, y in thin) == max(y for _, y in points)
    assert min(y for _, y in thin) == min(y for _, y in points)
    assert [x for x, _ in thin] == sorted(x for x, _ in thin)


def test_mean_over_time_weighs_by_time():
    assert series.mean_bytes([[0.0, 10.0], [1.0, 30.0], [3.0, 0.0]]) == pytest.approx(70.0 / 3.0)


@pytest.fixture(scope="module")
def scaling():
    return fixtures.experimented("x5-threads", ("tsmalloc", "glibc", "lock-best"), 6)


def sweep_lines(scaling):
    ((_, lines),) = figures.sweep_panels(scaling, scaling.parameters[0], scaling.metric("seconds"))
    return lines


def test_a_sweep_has_a_figure_for_each_metric_and_none_of_its_runs_together(scaling):
    assert [figure.name for figure in figures.sweep_figures(scaling)] == ["sweep-seconds"]
    assert [figure.name for figure in figures.figures(scaling)] == ["ratios"]
    drawn = [line for line in sweep_lines(scaling) if not line.model]
    assert [line.name for line in drawn] == ["tsmalloc", "glibc", "lock-best"]
    for line in drawn:
        assert [point[0] for point in line.points] == scaling.parameters[0].values
        assert all(low <= y <= high for _, y, low, high in line.points)


def test_a_level_is_the_geometric_mean_with_its_interval(scaling):
    levels = figures.levels_of(scaling, scaling.metric("seconds"))
    cell = (3, "lock-best")
    own = [math.log(s.values["seconds"]) for s in scaling.samples if (s.point, s.allocator) == cell]
    interval = scipy.stats.t.interval(0.95, len(own) - 1, np.mean(own), scipy.stats.sem(own))
    expected = (math.exp(np.mean(own)), *map(math.exp, interval))
    assert levels[cell] == pytest.approx(expected, rel=1e-6)


def test_fitted_laws_are_drawn_beside_the_points(scaling):
    laws = [line for line in sweep_lines(scaling) if line.model]
    curves = [curve for finding in scaling.findings for curve in finding.curves]
    assert [list(law.points) for law in laws] == [list(curve.points) for curve in curves]
    assert len(laws) == 3


def test_a_cell_that_failed_is_in_no_line():
    def truth(name, point):
        return None if (name, point["threads"]) == ("a", 4) else {"seconds": 1.0}

    found = made_up([THREADS], ["glibc", "a"], truth)
    ((_, lines),) = figures.sweep_panels(found, THREADS, found.metrics[0])
    drawn = {line.name: [point[0] for point in line.points] for line in lines}
    assert drawn == {"glibc": [1, 2, 4, 8], "a": [1, 2, 8]}


def test_counts_are_shown_where_they_differ():
    one = {"growth_calls": 10.0, "mmap_calls": 5.0, "retries": 0.0, "futex_calls": 0.0}
    counts = [one, one | {"growth_calls": 90.0, "futex_calls": 7.0}]
    assert cause_tables.differing_counts(counts) == ["growth_calls", "futex_calls"]


@given(st.text())
def test_visible_text_is_harmless(text):
    shown = visible(text)
    shown.encode()
    ElementTree.fromstring(f"<a>{escape(shown)}</a>")
    assert visible(shown) == shown


@given(st.text(max_size=80))
def test_slugs_are_names_of_files(text):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug(text))


def test_negative_numbers_get_their_sign_and_shortened_text_says_so():
    assert with_minus("-3% [-4, -2], x-1, 2-3") == "−3% [−4, −2], x-1, 2-3"
    assert shortened("a  b\nc", 10) == "a b c"
    assert shortened("abcdefghij", 5) == "abcd…"
