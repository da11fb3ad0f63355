"""Causes are named only where the counts show them: direction, clear difference, and size."""

from __future__ import annotations

import pytest

from tsmlab.experiments import reasons
from tsmlab.experiments.model import Metric
from tsmlab.experiments.reasons import MEMORY_CAUSES, TIME_CAUSES, Reasons, Side

TIME = Metric("seconds", "time", "seconds", higher_is_better=False)


def found(
    more: dict[str, float], less: dict[str, float], gap: float | None = 0.1, **options: object
) -> Reasons:
    show = options.get("show", [])
    assert isinstance(show, list)
    return reasons.reasons(TIME_CAUSES, Side("slow", more), Side("fast", less), gap, show)


def test_a_count_that_is_clearly_higher_where_the_time_is_is_a_reason() -> None:
    result = found({"growth_calls": 20000.0}, {"growth_calls": 5000.0})
    assert result.names == ["growth"]
    assert result.named == ["slow asks the system for memory 20,000 times, fast 5,000 times"]
    assert result.against == []


def test_a_count_that_is_higher_on_the_other_side_is_no_reason() -> None:
    result = found({"growth_calls": 5000.0}, {"growth_calls": 20000.0})
    assert result.names == []
    assert result.against == ["fast asks the system for memory 20,000 times, slow 5,000 times"]
    sentences = reasons.why(result, Side("slow", {}), Side("fast", {}))
    assert sentences[0] == "The counts do not show why."
    assert sentences[1].startswith("What differs speaks against it: fast asks")


def test_events_that_cannot_cost_a_part_that_matters_are_no_reason() -> None:
    """A hundred more calls are a millisecond at the most, which explains no second."""
    assert found({"growth_calls": 200.0}, {"growth_calls": 100.0}, gap=1.0).names == []
    assert found({"growth_calls": 200.0}, {"growth_calls": 100.0}, gap=0.001).names == ["growth"]


@pytest.mark.parametrize(("factor", "named"), [(1.05, []), (1.2, ["page_faults"])])
def test_steady_counts_must_differ_by_a_tenth(factor: float, named: list[str]) -> None:
    assert found({"page_faults": 1e5 * factor}, {"page_faults": 1e5}).names == named


@pytest.mark.parametrize(("factor", "named"), [(1.8, []), (2.2, ["futex"])])
def test_counts_that_chance_decides_must_differ_by_a_factor_of_two(
    factor: float, named: list[str]
) -> None:
    assert found({"futex_calls": 1e4 * factor}, {"futex_calls": 1e4}).names == named


def test_where_waiting_was_timed_its_time_decides() -> None:
    """Many waits that together took no time are no reason."""
    more = {"lock_waits": 10000.0, "lock_wait_ns": 1e5}
    assert found(more, {"lock_waits": 10.0, "lock_wait_ns": 1e3}).names == []
    longer = more | {"lock_wait_ns": 5e7}
    result = found(longer, {"lock_waits": 10.0, "lock_wait_ns": 1e3})
    assert result.named == [
        (
            "threads wait for a lock 10,000 times (50.0 ms together) under slow, "
            "10 times (1.00 µs together) under fast"
        )
    ]


def test_reuse_is_a_share_of_the_bytes_requested() -> None:
    more = {"requested_bytes": 1e9, "reused_bytes": 1e8}
    less = {"requested_bytes": 1e9, "reused_bytes": 6e8}
    result = found(more, less)
    assert result.names == ["reuse"]
    assert result.named == [
        "of the bytes requested, slow hands out 10.0 % a second time, fast 60.0 %"
    ]
    nearly = {"requested_bytes": 1e9, "reused_bytes": 1.1e8}
    assert found(more, nearly).names == []


def test_what_says_the_same_is_said_once() -> None:
    """brk is how the heap grows."""
    more = {"growth_calls": 20000.0, "brk_calls": 20000.0}
    assert found(more, {"growth_calls": 10.0, "brk_calls": 10.0}).names == ["growth"]
    assert found({"brk_calls": 20000.0}, {"brk_calls": 10.0}).names == ["system_calls"]


def test_what_was_not_counted_on_both_sides_is_not_compared() -> None:
    result = found({"growth_calls": 20000.0}, {"futex_calls": 1.0})
    assert not result.counted
    assert reasons.why(result, Side("slow", {}), Side("fast", {})) == [
        "Why cannot be told: no count is known of both slow and fast."
    ]


def test_a_part_of_the_difference_is_called_a_part() -> None:
    result = found({"growth_calls": 2000.0}, {"growth_calls": 0.0}, gap=0.1)
    assert result.bound == pytest.approx(0.2)
    sentences = reasons.why(result, Side("slow", {}), Side("fast", {}))
    assert "a part of the difference only" in sentences[1]


def test_what_is_asked_for_is_told_even_if_it_is_no_reason() -> None:
    counts = {"lock_waits": 40.0}
    result = found(counts, counts, show=["lock_waits"])
    assert result.shown == ["threads wait for a lock 40 times under slow, 40 times under fast"]


def test_what_is_asked_for_is_not_called_no_reason_for_being_weaker_than_others() -> None:
    more = {
        "growth_calls": 4e5,
        "page_faults": 4e5,
        "futex_calls": 4e5,
        "kernel_seconds": 0.4,
        "lock_waits": 4e5,
        "requested_bytes": 1e9,
        "reused_bytes": 1e8,
    }
    less = {name: count / 8 for name, count in more.items()}
    less |= {"requested_bytes": 1e9, "reused_bytes": 6e8}
    result = found(more, less, gap=0.5, show=["reuse"])
    assert "reuse" in result.names
    assert result.shown == []


def test_memory_is_explained_by_bytes() -> None:
    result = reasons.reasons(
        MEMORY_CAUSES,
        Side("large", {"growth_bytes": 60e6}),
        Side("small", {"growth_bytes": 40e6}),
        20e6,
    )
    assert result.named == ["large grows its heap by 57.2M, small 38.1M"]


def test_counts_explain_times_and_bytes_and_not_other_counts() -> None:
    assert reasons.causes_of(TIME) is TIME_CAUSES
    assert reasons.causes_of(Metric("chunks", "chunks", "count", higher_is_better=False)) == ()
    rate = Metric("rate", "requests per second", "number", higher_is_better=True)
    assert reasons.causes_of(rate) is TIME_CAUSES


def test_what_both_share_is_said_where_it_keeps_them_together() -> None:
    counts = {"allocations": 80000.0, "growth_calls": 60000.0, "lock_waits": 3.0}
    growth, waits = reasons.common_ground(Side("a", counts), Side("b", counts))
    assert growth.startswith("At 75.0 % of the allocations a and b find no free block")
    assert "(3 and 3 times)" in waits
    busy = {"allocations": 80000.0, "growth_calls": 10.0, "lock_waits": 3000.0}
    assert reasons.common_ground(Side("a", busy), Side("b", busy)) == []
