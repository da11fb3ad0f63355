"""Options of comparisons: --metric and finding its number; -L and -P, points and placeholders."""

import pytest
from refusals import refused

from tsmlab import sweep
from tsmlab.metrics import CustomMetric, parse_all, parse_custom, printed_number
from tsmlab.sweep import Parameter


@pytest.mark.parametrize(
    ("text", "name", "pattern", "higher"),
    [
        (r"(\d+) ms", "metric", r"(\d+) ms", False),
        (r"latency=(\d+) ms", "latency", r"(\d+) ms", False),
        (r"req/s=([\d.]+) req:higher", "req/s", r"([\d.]+) req", True),
        (r"([\d.]+):lower", "metric", r"([\d.]+)", False),
        (r"x=y=(\d+)", "x", r"y=(\d+)", False),
        (r"(?:a=)(\d+)", "metric", r"(?:a=)(\d+)", False),
    ],
)
def test_the_option_is_read(text, name, pattern, higher):
    assert parse_custom(text) == CustomMetric(name, pattern, higher)


def test_the_number_is_found_and_understood():
    for text, number in (
        ("took 12 s", 12.0),
        ("took -1.5e3 s", -1500.0),
        ("took 1,234,567.5 s", 1234567.5),
        ("took 1,5 s", None),  # decimal commas are not guessed
        ("took long", None),
        ("took inf s", None),
        ("a line\ntook 3 s\ntook 4 s", 3.0),
    ):
        found = parse_custom(r"^took (\S+)").find(text)
        assert (found and found[0]) == number, text


def test_the_first_text_and_the_last_line_of_a_name_have_the_number():
    assert parse_custom(r"n=(\d+)").name == "n"
    metric = CustomMetric("n", r"n=(\d+)", False)
    assert metric.find("nothing", "n=2") == (2.0, "number")
    assert metric.find("n=1", "n=2") == (1.0, "number")
    text = (
        "seconds: 1.5\noperations: 7 pairs\n  seconds: 9\nseconds:2.5 \nmany: 1,000,000\nbad: x\n"
    )
    assert printed_number(text, "seconds") == 2.5
    assert printed_number(text, "many") == 1_000_000
    for name in ("operations", "bad", "second", "econds"):
        assert printed_number(text, name) is None


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("took 174us", 174e-6, "seconds"),
        ("took 3.61ms", 3.61e-3, "seconds"),
        ("took 3.61 ms (p99)", 3.61e-3, "seconds"),
        ("took 2µs", 2e-6, "seconds"),
        ("took 1.5m", 90.0, "seconds"),
        ("took 45.9k", 45_900.0, "count"),
        ("took 1,234.5us", 1234.5e-6, "seconds"),
        ("took 1.5 GiB/s", 1.5 * 1024**3, "bytes"),
        ("took 12MB", 12e6, "bytes"),
        ("took 5 k items", 5.0, "number"),  # only directly after the number
        ("took 7 items", 7.0, "number"),
        ("took 1e3", 1000.0, "number"),
    ],
)
@pytest.mark.parametrize("pattern", [r"took ([\d.,e]+)", r"took ([\d.,e]+ ?[A-Za-zµ]*)"])
def test_a_unit_is_read_in_the_group_and_behind_it(text, number, unit, pattern):
    if "items" in text and "A-Z" in pattern:
        return  # the group has words that are not units
    value, found = CustomMetric("n", pattern, False).find(text)
    assert (value, found) == (pytest.approx(number), unit)


def test_several_metrics_have_names_and_keys_of_their_own():
    found = parse_all(["a=(1)", "b=(2):higher", "(3)"])
    assert [(m.name, m.key, m.higher_is_better) for m in found] == [
        ("a", "custom", False),
        ("b", "custom2", True),
        ("metric", "custom3", False),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-j{n}", "-j4"),
        ("{n}{n}", "44"),
        ("{{n}}", "{n}"),
        ("awk '{print} {x}' {", "awk '{print} {x}' {"),
        ("{{x}}", "{{x}}"),
    ],
)
def test_only_known_names_are_replaced(text, expected):
    assert sweep.filled(text, {"n": 4}) == expected


def test_a_list_is_of_numbers_if_all_are():
    for text, values in (
        ("1,2,8", [1, 2, 8]),
        ("0.5, 1", [0.5, 1]),
        ("best,first", ["best", "first"]),
        ("7", [7]),
        ("1,x", ["1", "x"]),
    ):
        assert sweep.parameter_list("n", text).values == values
    for text in ("", "1,,2", "1,1.0", "a,a"):
        with refused(remedy="-L n 1,2,4"):
            sweep.parameter_list("n", text)


def test_a_scan_has_both_ends():
    for bounds, values in (
        (("1", "4", None), [1, 2, 3, 4]),
        (("1", "8", "3"), [1, 4, 7]),
        (("0.1", "0.5", "0.1"), [0.1, 0.2, 0.3, 0.4, 0.5]),  # exact, not a sum of floats
        (("-1", "1", None), [-1, 0, 1]),
        (("3", "3", None), [3]),
    ):
        assert sweep.parameter_scan("n", *bounds).values == values
    for bounds, message in (
        (("1", "x", None), "not a range"),
        (("1", "4", "0"), "not a range"),
        (("1", "inf", None), "not a range"),
        (("4", "1", None), "is empty"),
        (("1", "1e9", None), "1,000,000,000"),
    ):
        with refused(message):
            sweep.parameter_scan("n", *bounds)


def test_a_parameter_has_a_name_of_its_own_and_reaches_the_program():
    n, m = Parameter("n", "n", [1, 2]), Parameter("m", "m", list(range(600)))
    assert sweep.describe(sweep.points_of([n, m])[-1]) == "n=2, m=599"
    sweep.check([n], ["prog", "-j{n}"])
    with refused(remedy="{n}"):
        sweep.check([n], ["prog", "-j{{n}}"])
    with refused("two parameters"):
        sweep.check([n, n], ["{n}"])
    for name in ("allocator", "2n", "a-b"):
        with refused("valid", name):
            sweep.check([Parameter(name, name, [1])], [f"{{{name}}}"])
    with refused("1,200 points"):
        sweep.check([n, m], ["{n} {m}"])
