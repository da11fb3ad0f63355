"""The source reports' tables: each shape that they come in, and labels that could mean two."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic_experiments import SECONDS, definition

from tsmlab.experiments import printed as module
from tsmlab.experiments.model import Metric, Parameter, Reported
from tsmlab.experiments.printed import Printed, figure_of, matches

SEGMENT = Metric("data_segment_bytes", "data segment", "bytes", higher_is_better=False)
ITERATIONS = Parameter("iterations", "iterations of 1,000 allocations", [10, 100])
HEAPS = ["lock-best", "nolock-best"]


def read(
    columns: list[str],
    rows: list[list[Any]],
    among: list[str],
    metric: Metric = SECONDS,
    report: str = "A",
) -> list[Printed]:
    tables = [Reported(report, "old", columns, rows, "")]
    asked = definition([], [ITERATIONS], [SECONDS, SEGMENT], tables)
    return module.printed(asked, among, metric)


def test_a_row_for_each_heap() -> None:
    columns = ["heap", "time, s", "data segment, bytes"]
    rows = [["lock", 0.8, "41,680,165"], ["no lock", "0.1-0.3", 41699480]]
    (table,) = read(columns, rows, HEAPS)
    assert table.name == "report A"
    assert table.ratio("lock-best", "nolock-best") == pytest.approx(4.0)
    (table,) = read(columns, rows, HEAPS, SEGMENT)
    assert table.ratio("lock-best", "nolock-best") == pytest.approx(41680165 / 41699480)


def test_a_metric_that_the_table_does_not_have_has_no_figures() -> None:
    calls = Metric("growth_calls", "calls of sbrk", "count", higher_is_better=False)
    rows = [["lock", 0.8], ["no lock", 0.2]]
    assert read(["heap", "time, s"], rows, HEAPS, calls) == []


def test_a_column_for_each_heap_and_a_row_for_each_metric() -> None:
    columns = ["quantity", "lock", "no lock"]
    rows = [["time", 0.7, 0.2], ["data segment", 4e7, 5e7]]
    (table,) = read(columns, rows, HEAPS)
    assert table.ratio("lock-best", "nolock-best") == pytest.approx(3.5)
    (table,) = read(columns, rows, HEAPS, SEGMENT)
    assert table.ratio("lock-best", "nolock-best") == pytest.approx(0.8)


def test_a_row_for_each_machine_is_a_table_for_each() -> None:
    columns = ["machine", "ptmalloc, real, s", "tcmalloc, real, s"]
    rows = [["first", 2.0, 4.0], ["second", 3.0, 1.5]]
    tables = read(columns, rows, ["glibc", "tcmalloc"], report="D, 2015")
    assert [table.name for table in tables] == ["report D, 2015 (first)", "report D, 2015 (second)"]
    assert [table.ratio("glibc", "tcmalloc") for table in tables] == pytest.approx([0.5, 2.0])


def test_a_column_for_each_value_of_the_parameter() -> None:
    columns = ["fit", "10 iterations", "100 iterations"]
    rows = [["first", 1.0, 9.0], ["best", 2.0, 8.0]]
    among = ["lock-first", "lock-best", "rwlock-first"]
    (table,) = read(columns, rows, among)
    assert table.curve("lock-first", ITERATIONS) == [(10.0, 1.0), (100.0, 9.0)]
    assert table.curve("rwlock-first", ITERATIONS) == table.curve("lock-first", ITERATIONS)
    assert table.curve("lock-best", ITERATIONS) == [(10.0, 2.0), (100.0, 8.0)]
    assert read(columns, rows, among, SEGMENT) == []


def test_a_table_that_names_nobody_is_about_all() -> None:
    (table,) = read(["iterations", "time, s"], [[100, 23.7], [10, 0.84]], ["lock-best", "glibc"])
    assert table.curve("glibc", ITERATIONS) == [(10.0, 0.84), (100.0, 23.7)]
    assert table.single_figures() == {}


def test_one_label_for_both_is_no_ratio() -> None:
    """Both are best fits."""
    rows = [["best", 1.0], ["worst", 2.0]]
    among = ["lock-best", "rwlock-best", "lock-worst"]
    (table,) = read(["fit", "time"], rows, among)
    assert table.ratio("lock-best", "rwlock-best") is None
    assert table.ratio("lock-best", "lock-worst") == pytest.approx(0.5)


def test_two_tables_of_one_report_are_told_apart_by_their_machines() -> None:
    tables = [
        Reported("D", machine, ["heap", "time"], [["lock", 1.0], ["no lock", 2.0]], "")
        for machine in ("old", "new")
    ]
    found = module.printed(definition([], reported=tables), HEAPS, SECONDS)
    assert [table.name for table in found] == ["report D (old)", "report D (new)"]


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("lock", ["lock-best"]),
        ("no lock", ["nolock-best"]),
        ("lock-best", ["lock-best"]),
        ("best fit", ["lock-best", "nolock-best"]),
        ("ptmalloc", ["glibc"]),
        ("jemalloc", []),
        ("", []),
    ],
)
def test_what_a_label_means(label: str, expected: list[str]) -> None:
    assert matches(label, ["lock-best", "nolock-best", "glibc"]) == expected


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (3, 3.0),
        ("41,680,165", 41680165.0),
        ("0.089 to 0.116", 0.1025),
        ("1.5 s", 1.5),
        ("none", None),
        ("", None),
        (None, None),
        (True, None),
    ],
)
def test_what_a_cell_says(cell: object, value: float | None) -> None:
    assert figure_of(cell) == (None if value is None else pytest.approx(value))
