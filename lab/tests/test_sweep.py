"""Points, placeholders, and parsing -L and -P."""

import pytest
from refusals import refused

from tsmlab import sweep
from tsmlab.sweep import Parameter


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
