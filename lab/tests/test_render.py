"""The report: readable numbers, tables that fit, sentences that do not overclaim."""

import re

import pytest
from conftest import Behaviour, World, typical
from refusals import mentions

from tsmlab import render, tables, texts, wording
from tsmlab.allocators import own_names
from tsmlab.metrics import parse_custom
from tsmlab.schedule import StopRule
from tsmlab.stats import RatioEstimate
from tsmlab.study import Study
from tsmlab.tables import PIPE_WIDTH


def report(comparison, width=120, colours=False):
    return tables.text_of(render.blocks(comparison), width, colours)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.9996, "seconds", "1.00 s"),
        (0.0123, "seconds", "12.3 ms"),
        (123.4, "seconds", "123 s"),
        (4.2e-5, "seconds", "42.0 µs"),
        (0.0, "seconds", "0 ns"),
        (1023.9 * 1024.0**2, "bytes", "1.00G"),
        (900.0, "bytes", "900B"),
        (101_234, "count", "101k"),
        (999, "count", "999"),
        (2_500_000, "count", "2.50M"),
        (12.5, "number", "12.5"),
    ],
)
def test_quantities_have_three_digits_and_a_unit(value, unit, text):
    assert wording.quantity(value, unit) == text


@pytest.mark.parametrize(
    ("ratio", "low", "high", "text"),
    [
        (0.859, 0.844, 0.876, "-14.1% [-15.6, -12.4]"),
        (1.03, 0.9996, 1.06, "+3.0% [0.0, +6.0]"),
        (8.104, 7.9, 8.31, "8.10x [7.90, 8.31]"),
        (12.34, 11.9, 12.8, "12.3x [11.9, 12.8]"),
        (1.5, 0.8, 2.81, "+50.0% [-20.0, +181]"),
    ],
)
def test_changes_speak_as_intervals_do(ratio, low, high, text):
    estimate = RatioEstimate(ratio, low, high, 0.01, 9, "student")
    assert f"{wording.change(ratio)} {wording.change_interval(estimate)}" == text


def test_shares_and_long_lists():
    shares = {0.01: "1%", 0.007: "0.7%", 0.0004: "0.04%", 0.2: "20%", 0: "0%"}
    assert {fraction: wording.share(fraction) for fraction in shares} == shares
    assert wording.names(["a", "b"]) == "a, b"
    assert wording.names([str(i) for i in range(9)]) == "0, 1, 2, 3, 4, 5 and 3 more"


def everybody(**changes):
    names = [*own_names(), "glibc", "jemalloc", "mimalloc", "tcmalloc", "tbbmalloc"]
    behaviours = {
        name: Behaviour(seconds=0.1 + 0.1 * index, noise=0.03, peak_bytes=(20 + index) << 20)
        for index, name in enumerate(names)
    }
    return World.comparison(behaviours, **changes)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_all_allocators_fit_without_wrapping(width):
    text = report(everybody(), width)
    table = next(part for part in text.split("\n\n") if "95% CI" in part).splitlines()
    assert max(map(len, text.splitlines()[:-1])) <= width  # the last line is meant for copying
    assert len([line for line in table if re.match(r" ?\d+ ", line)]) == len(own_names()) + 5
    assert "…" not in "".join(table)


def test_narrow_tables_drop_what_explains_before_what_decides():
    mentions(report(everybody(), 160), "system", "faults")
    narrow = report(everybody(), 72)
    assert ("faults" in narrow, "verdict" in narrow) == (False, True)


def test_a_row_holds_what_it_promises_and_failures_come_last():
    text = report(typical())
    lines = text.splitlines()
    fast = next(line for line in lines if re.match(r" *1 +fast ", line))
    assert re.search(r"8\d\.\d ms +-\d\d\.\d% \[-\d\d\.\d, -\d\d\.\d\] +better", fast)
    assert re.search(r"25\.0M +\+25\.0% +worse +5\.00k +\d\.\d\d ms", fast)
    slow = next(line for line in lines if " slow " in line)
    assert re.search(r"3\.\d\dx \[3\.\d\d, 3\.\d\d\] +worse", slow)
    assert "glibc" in next(line for line in lines if "reference" in line)
    where = next(i for i, line in enumerate(lines) if line.startswith("FAILED"))
    assert lines[where].startswith("FAILED crash: SIGSEGV (2 of 2 runs")
    assert lines[where + 2] == "       | free(): invalid pointer"
    assert lines.index(slow) < where
    said = render.recommendation(typical())
    assert re.match(r"fast, -\d+\.\d% \[.*\] time and \+25\.0% .*peak memory against glibc\.", said)
    assert text.index("Recommendation: fast, ") < text.index("95% CI")
    assert text.index("Recommendation: ") < text.index("noise floor")


def test_colours_only_on_a_terminal(monkeypatch):
    assert "\x1b" not in report(typical())
    assert "\x1b[32mbetter" in report(typical(), colours=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in report(typical(), colours=True)


def test_unresolved_says_how_many_more_rounds():
    behaviours = {"glibc": Behaviour(noise=0.02), "a": Behaviour(seconds=0.103, noise=0.02)}
    comparison = World.comparison(behaviours, rule=StopRule(runs=5))
    text = report(comparison)
    assert re.search(r"unresolved \+\d+ ", text)
    assert "unresolved +N: " in text
    assert re.search(r"\? \+\d+ ", report(comparison, 70))


def test_a_pipe_gets_a_wide_table_and_no_colour(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    comparison = typical()
    assert tables.for_stdout(report, comparison) == report(comparison, PIPE_WIDTH)
    monkeypatch.setenv("COLUMNS", "91")
    assert tables.for_stdout(report, comparison) == report(comparison, 91)


def sentences(comparison):
    return dict(render.verdict_lines(comparison))


def test_the_verdict_names_winners_and_markdown_is_a_table():
    said = sentences(typical())
    assert re.match(r"fast: -\d+\.\d% \[.*\] time against glibc", said["fastest"])
    assert re.match(r"same: -25\.0% .*peak memory against glibc", said["smallest"])
    assert "(time x peak memory): fast (" in said["trade-off"]
    use = f"LD_PRELOAD={typical().allocator('fast').path} ./program --flag"
    assert said["use it"] == use
    text = texts.markdown(Study.of("compare", [typical()]))
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert set(table[1]) <= set("|:- ")
    assert len(table) == 2 + 4
    mentions(text, "- FAILED crash: SIGSEGV", f"`{use}`")


def test_without_a_winner_nothing_is_recommended():
    comparison = World.comparison({n: Behaviour(noise=0.05) for n in ("glibc", "a", "b")})
    assert "use it" not in sentences(comparison)
    assert render.recommendation(comparison).startswith("stay on glibc; ")
    behaviours = {"glibc": Behaviour(noise=0.1), "a": Behaviour(seconds=0.08, noise=0.1)}
    said = render.recommendation(World.comparison(behaviours, rule=StopRule(runs=5)))
    assert re.match(r"stay on glibc; .*: a, -\d.* -r \d+\.$", said)
    tied = {"glibc": Behaviour(seconds=0.2, noise=0.001)}
    tied |= dict.fromkeys(("x", "y"), Behaviour(noise=0.0005))
    said = sentences(World.comparison(tied, rule=StopRule(runs=10)))["fastest"]
    assert re.search(r"equal within 1%: [xy]$", said)


def test_a_users_own_library_is_named_by_its_path():
    comparison = World.comparison({"glibc": Behaviour(seconds=0.2), "a": Behaviour()})
    info = comparison.allocator("a")
    object.__setattr__(info, "family", "user")
    object.__setattr__(info, "path", "/my libs/a.so")
    object.__setattr__(info, "env", {"CONF": "x y"})
    run = "tsmalloc run --allocator 'a=/my libs/a.so' a"  # LD_PRELOAD would end at the space
    assert render.use_it(comparison) == f"CONF='x y' {run} -- ./program --flag"


def test_the_users_metric_leads_the_table():
    behaviours = {"glibc": Behaviour(stdout="rate: 100"), "a": Behaviour(stdout="rate: 150")}
    program = {"metrics": (parse_custom(r"req/s=rate: (\d+):higher"),)}
    comparison = World.comparison(behaviours, program=program, check_output=False)
    text = report(comparison)
    assert re.search(r"# +allocator +req/s +vs glibc \[95% CI\] +verdict +time", text)
    assert sentences(comparison)["best"].startswith("a: +50.0% [+50.0, +50.0] req/s against glibc")


def test_a_metric_that_has_no_ratio_is_named():
    behaviours = {
        "glibc": Behaviour(stdout="misses: 3"),
        "a": Behaviour(stdout="misses: 0"),
        "b": Behaviour(stdout="misses: -2"),
    }
    program = {"metrics": (parse_custom(r"misses=misses: (-?\d+)"),)}
    text = report(World.comparison(behaviours, program=program, check_output=False))
    mentions(text, "NOT RANKED a: misses was 0 ", "NOT RANKED b: misses was -2 ")


def test_an_interrupted_comparison_without_rounds_says_so():
    behaviours = {"glibc": Behaviour(), "a": Behaviour()}
    text = report(World.comparison(behaviours, interrupt_at_run=2))
    mentions(text, "0 rounds, 0 runs", "NOT RANKED a: ")
