"""Pages in a real browser: working figures, no errors, no horizontal scrolling, both themes."""

import time

import pytest
import replay_fixtures
import report_fixtures as fixtures
from headless_browser import Browser

from tsmlab import report
from tsmlab.report import theme, vega

WIDTHS = (360, 1280)
SOME = ("x5-threads", "x7-fragmentation")
# The width of A4 paper between its margins, in a page's pixels.
A4_WIDTH = 688


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TSMALLOC_VEGA")
        vega.library.cache_clear()
        if not vega.library():
            pytest.skip("Vega cannot be had here")
        yield written(tmp_path_factory.mktemp("reports"))
    vega.library.cache_clear()


def written(folder):
    compared = fixtures.failing(fixtures.compared(25, 6, 64), f"{'x' * 300} <script>")
    names = ("tsmalloc", "glibc", "lock-first", "cached-best")
    experiments = fixtures.in_one_run(*(fixtures.experimented(name, names, 3) for name in SOME))
    replays = replay_fixtures.side_by_side(folder)
    report.write([compared, experiments, replays], folder / "r")
    return sorted((folder / "r").rglob("index.html"))


def drawn(browser, page, width=1280, **how):
    browser.open(page, width, **how)
    deadline = time.monotonic() + 60
    while browser.evaluate("!!document.querySelector('figure') && !document.documentElement"
                           ".dataset.drawn"):  # fmt: skip
        assert time.monotonic() < deadline, browser.complaints
        time.sleep(0.05)


@pytest.fixture
def comparison(pages):
    return next(page for page in pages if "compare" in str(page))


def rgb(colour):
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_and_nobody_complains(browser, pages, width, scripts):
    assert len(pages) == 5
    browser.allow_scripts(scripts)
    for page in pages:
        (drawn if scripts else Browser.open)(browser, page, width)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, page
        assert browser.complaints == []
        assert len(browser.evaluate("document.querySelector('main').innerText")) > 60
        charts = "[...document.querySelectorAll('.chart')].filter(c => c.offsetHeight)"
        figures = browser.evaluate("document.querySelectorAll('figure').length")
        assert browser.evaluate(f"{charts}.length") == (figures if scripts else 0)
    browser.allow_scripts(True)


COUNT = "document.querySelectorAll('#memory .mark-line path').length"
TICKS = """[...document.querySelectorAll('#memory .role-axis text')]
.map(t => t.textContent).sort().join()"""
MARK = """(() => {
  const mark = document.querySelector('#tradeoff .mark-symbol path');
  mark.scrollIntoView({block: 'center', behavior: 'instant'});
  const b = mark.getBoundingClientRect();
  return [b.x + b.width / 2, b.y + b.height / 2]
})()"""


def test_legends_hide_series_buttons_zoom_and_marks_say_what_they_are(browser, comparison):
    def click(selector):
        browser.evaluate(f"document.querySelector('#memory {selector}').click()")
        time.sleep(0.5)

    drawn(browser, comparison)
    before = browser.evaluate(COUNT)
    for shown in (before - 1, before):
        click(".legend button")
        assert browser.evaluate(COUNT) == shown
    whole = browser.evaluate(TICKS)
    for button, same in (("nearer", False), ("all", True)):
        click(f".tools [value={button}]")
        assert (browser.evaluate(TICKS) == whole) == same
    place = browser.evaluate(MARK)
    for shift in (5, 0):
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0] + shift, y=place[1])
    time.sleep(0.3)
    tip = browser.evaluate("document.querySelector('.tip:not([hidden])')?.textContent")
    assert "series" in tip


@pytest.mark.parametrize("system", ["light", "dark"])
def test_theme_follows_the_system_and_the_buttons(browser, pages, system):
    paper = theme.TONES["paper"]
    colour = "getComputedStyle(document.body).backgroundColor"
    browser.allow_scripts(False)
    browser.open(pages[0], 1280, theme=system)
    assert browser.evaluate(colour) == rgb(getattr(paper, system))
    for choice in ("light", "dark"):
        browser.evaluate(f"document.querySelector('label[for=theme-{choice}]').click()")
        assert browser.evaluate(colour) == rgb(getattr(paper, choice))
    browser.allow_scripts(True)


def test_figures_take_the_colours_of_the_theme(browser, comparison):
    ink = "getComputedStyle(document.querySelector('.plot svg text')).fill"
    seen = set()
    for system in ("light", "dark"):
        drawn(browser, comparison, theme=system)
        seen.add(browser.evaluate(ink))
    assert len(seen) == 2


def test_first_stop_of_the_keyboard_is_the_results(browser, pages):
    active = "document.activeElement"
    for page in pages:
        browser.open(page, 1280)
        browser.press("Tab", 9)
        assert browser.evaluate(f"{active}.className") == "skip"
        assert browser.evaluate(f"getComputedStyle({active}).outlineStyle") == "solid"
        assert browser.evaluate(f"{active}.getAttribute('href')") == "#main"


STUCK = (  # wide parts that the keyboard cannot reach
    "[...document.querySelectorAll('main *')].filter(e => e.clientWidth > 0 && "
    "e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX == 'auto' "
    "&& e.tabIndex < 0).map(e => e.className)"
)
SMALL = (  # illegible text in figures
    "[...document.querySelectorAll('.plot svg text')].filter(t => t.getClientRects().length && "
    "9.0 > parseFloat(getComputedStyle(t).fontSize) * "
    "t.ownerSVGElement.getBoundingClientRect().width / t.ownerSVGElement.viewBox.baseVal.width"
    ").map(t => t.textContent)"
)
CUT = (  # text of figures that is outside them
    "[...document.querySelectorAll('.plot svg text')].filter(t => {"
    "const b = t.getBoundingClientRect(), s = t.ownerSVGElement.getBoundingClientRect();"
    "return b.width && getComputedStyle(t).opacity !== '0' && "
    "(b.left < s.left - 2 || b.right > s.right + 2 || "
    "b.top < s.top - 3 || b.bottom > s.bottom + 3)}).map(t => t.textContent)"
)


@pytest.mark.parametrize(("width", "faults"), [(360, (STUCK, SMALL, CUT)), (1280, (SMALL, CUT))])
def test_everything_can_be_seen(browser, pages, width, faults):
    for page in pages:
        drawn(browser, page, width)
        for fault in faults:
            assert browser.evaluate(fault) == []


def test_pages_print_in_light_colours_and_fit_paper(browser, pages):
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    for page in pages:
        drawn(browser, page, A4_WIDTH, theme="dark")
        browser.call("Emulation.setEmulatedMedia", media="print", features=features)
        colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        wide = browser.evaluate("document.documentElement.scrollWidth")
        browser.call("Emulation.setEmulatedMedia", media="")
        assert colour == rgb(theme.TONES["paper"].light)
        assert wide <= A4_WIDTH
