"""`tsmalloc floors` on simulated replays: what is over the floors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import replay_world as world
from conftest import Behaviour, SimulatedExecutor, World
from hypothesis import given
from hypothesis import strategies as st

from tsmlab.errors import UserError
from tsmlab.journal import Unkept
from tsmlab.progress import Silence
from tsmlab.results import Outcome
from tsmlab.traces import floors_results, floors_text
from tsmlab.traces.floors import Options, excess_memory, floors
from tsmlab.traces.floors_results import FloorResults

MIB = 1 << 20
BASE = 100_000
BOUND = 2 * MIB


def behaviour(milliseconds: float, resident: float, **changes: Any) -> Behaviour:
    """A replay that takes this long; resident: of the bound, without what is there before."""
    line = world.line(
        wall_ns=int(milliseconds * 1e6), peak_resident_bytes=int(resident * BOUND) + BASE
    )
    return world.behaviour(line, **changes)


TYPICAL = {
    "lifo": behaviour(10.0, 3.0),
    "glibc": behaviour(20.0, 1.50),
    "quick": behaviour(12.5, 1.25),
}


def run(
    behaviours: dict[str, Behaviour],
    tmp_path: Path,
    executor: SimulatedExecutor | None = None,
    traces: int = 1,
    **changes: Any,
) -> Outcome[FloorResults]:
    files = [tmp_path / f"some{number}.tstrace" for number in range(traces)]
    for file in files:
        file.write_bytes(b"a trace")
    names = [name for name in behaviours if name != "lifo"]
    options = Options(
        traces=tuple(files),
        allocators=tuple(World.allocator(name) for name in names),
        seed=7,
        rounds=3,
    )
    executor = executor or SimulatedExecutor(behaviours)
    return floors(
        options,
        executor,
        Silence(),
        world.PROGRAM,
        Unkept(executor.clock),
        **({"compiler": world.Compiler(), "find_floor": World.allocator} | changes),
    )


def test_all_make_the_same_calls_in_one_thread(tmp_path: Path) -> None:
    executor, compiler = SimulatedExecutor(TYPICAL), world.Compiler()
    run(TYPICAL, tmp_path, executor, compiler=compiler)
    assert compiler.calls == [("some0.tstrace", ["--alone"])]
    for request in executor.requests:
        assert request.command[-1].endswith(".plan")
        assert "--one-thread" in request.command
        assert request.command[request.command.index("--schedule") + 1] == "recorded"
    assert {request.allocator.name for request in executor.requests} == set(TYPICAL)


def test_excesses_are_over_the_floor_and_the_bound(tmp_path: Path) -> None:
    (found,) = run(TYPICAL, tmp_path).results.traces
    rows = {row.allocator: row for row in found.rows}
    assert found.base_bytes == BASE
    assert found.floor_seconds == pytest.approx(0.010)
    for name, time, memory in (("glibc", 1.0, 0.5), ("quick", 0.25, 0.25)):
        row = rows[name]
        assert row.time.excess == pytest.approx(time, rel=1e-6)
        assert row.memory.excess == pytest.approx(memory, rel=1e-4)
        assert row.memory.low == pytest.approx(row.memory.high, rel=1e-4)
        assert row.peak_bytes == pytest.approx((1 + memory) * BOUND, abs=2)
    assert (rows["lifo"].time, rows["lifo"].memory, rows["lifo"].peak_bytes) == (None, None, None)


def test_the_table_has_the_floor_first_and_results_are_read_back(tmp_path: Path) -> None:
    results = run(TYPICAL, tmp_path).results
    text = floors_text.report(results, 120)
    names = [line.split()[0] for line in text.splitlines() if line and line[0] != " "]
    assert names.index("lifo") < names.index("quick") < names.index("glibc")
    assert "+25.0 %" in text
    assert "+100 %" in text
    assert "bound 2.00M" in text
    assert "| --: " in floors_text.markdown(results)
    csv = floors_text.formatted(results, "csv").splitlines()
    assert len(csv) == 1 + sum(len(each.comparison.samples) for each in results.traces)
    assert all(line.startswith("some0,") for line in csv[1:])
    path = floors_results.save(results, [tmp_path])
    assert floors_results.from_json(path.read_text(encoding="utf-8")) == results
    with pytest.raises(UserError, match="schema"):
        floors_results.from_json('{"schema": "other"}')


def test_a_failure_under_one_allocator_is_a_line(tmp_path: Path) -> None:
    results = run(TYPICAL | {"bad": behaviour(9.0, 1.0, signal=11)}, tmp_path).results
    assert results.has_failures
    text = floors_text.report(results, 120)
    assert "bad failed: SIGSEGV" in text
    assert "quick" in text


def test_what_a_trace_lacks_is_said_first(tmp_path: Path) -> None:
    line = world.line(wall_ns=10_000_000)
    line["planned"] = line["planned"] | {"left_out": 1234}
    behaviours = {"lifo": world.behaviour(line), "glibc": world.behaviour(line)}
    compiler = world.Compiler()
    text = floors_text.report(run(behaviours, tmp_path, compiler=compiler).results, 120)
    assert text.startswith("1,234 events are left out")
    compiler.gaps = True
    text = floors_text.report(run(behaviours, tmp_path, compiler=compiler).results, 120)
    assert text.startswith("DAMAGED: events of the trace are lost")


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    executor = SimulatedExecutor(TYPICAL, interrupt_at_run=22)
    outcome = run(TYPICAL, tmp_path, executor, traces=2)
    assert outcome.results.interrupted
    assert outcome.results.traces[0].trace == "some0"


def test_the_second_trace_may_be_none(tmp_path: Path) -> None:
    class Picky(world.Compiler):
        def __call__(self, trace: Path, plan: Path, options: Sequence[str]) -> dict[str, Any]:
            if "some1" in trace.name:
                raise UserError("that is no trace.")
            return super().__call__(trace, plan, options)

    outcome = run(TYPICAL, tmp_path, traces=2, compiler=Picky())
    assert outcome.error is not None
    assert [each.trace for each in outcome.results.traces] == ["some0"]


@given(
    excesses=st.lists(st.floats(0.01, 3.0), min_size=1, max_size=20),
    base=st.integers(0, 1 << 30),
    bound=st.integers(4096, 1 << 40),
)
def test_excess_memory_is_the_geometric_mean(excesses: list[float], base: int, bound: int) -> None:
    peaks = [base + bound * (1 + excess) for excess in excesses]
    found = excess_memory(peaks, float(base), float(bound))
    mean = math.exp(sum(math.log1p(excess) for excess in excesses) / len(excesses)) - 1
    assert found.excess == pytest.approx(mean, rel=1e-3, abs=1e-6)
    if found.low is not None and found.high is not None:
        assert found.low <= found.excess + 1e-9
        assert found.excess <= found.high + 1e-9


def test_without_memory_or_a_bound_there_is_no_excess() -> None:
    assert excess_memory([], 0.0, 100.0) is None
    assert excess_memory([50.0], 60.0, 100.0) is None
    assert excess_memory([50.0], 0.0, 0.0) is None
