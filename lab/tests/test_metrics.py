"""The user's own number: how --metric is read, and how the number is found."""

from __future__ import annotations

import pytest
from refusals import refused

from tsmlab.metrics import CustomMetric, parse_custom, printed_number


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
def test_the_option_is_read(text: str, name: str, pattern: str, higher: bool) -> None:
    assert parse_custom(text) == CustomMetric(name, pattern, higher)


@pytest.mark.parametrize("text", [r"\d+", "x=("])
def test_what_cannot_work_is_refused_with_an_example(text: str) -> None:
    with refused(remedy="For example: --metric"):
        parse_custom(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("took 12 s", 12.0),
        ("took -1.5e3 s", -1500.0),
        ("took 1,234,567.5 s", 1234567.5),
        ("took 1,5 s", None),  # a decimal comma is not guessed at
        ("took long", None),
        ("took inf s", None),
        ("a line\ntook 3 s\ntook 4 s", 3.0),
    ],
)
def test_the_number_is_found_and_understood(text: str, number: float | None) -> None:
    assert parse_custom(r"^took (\S+)").find(text) == number


def test_the_first_text_and_the_last_line_of_a_name_have_the_number() -> None:
    assert parse_custom(r"n=(\d+)").name == "n"
    metric = CustomMetric("n", r"n=(\d+)", False)
    assert metric.find("nothing", "n=2") == 2.0
    assert metric.find("n=1", "n=2") == 1.0
    text = (
        "seconds: 1.5\noperations: 7 pairs\n  seconds: 9\nseconds:2.5 \nmany: 1,000,000\nbad: x\n"
    )
    assert printed_number(text, "seconds") == 2.5
    assert printed_number(text, "many") == 1_000_000
    for name in ("operations", "bad", "second", "econds"):
        assert printed_number(text, name) is None
