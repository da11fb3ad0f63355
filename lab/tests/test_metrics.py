"""User-defined metrics: parsing --metric, and finding the number."""

import pytest

from tsmlab.metrics import CustomMetric, parse_all, parse_custom, printed_number


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
