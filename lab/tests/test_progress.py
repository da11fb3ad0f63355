"""Progress: moving on a terminal, sparse in a pipe, absent if so asked."""

from __future__ import annotations

import io
from typing import Any

import pytest
from conftest import Behaviour, SimulatedExecutor, World
from experiment_world import sample
from rich.console import Console

from tsmlab.compare import compare
from tsmlab.journal import Unkept
from tsmlab.metrics import TIME
from tsmlab.parts import OVERHEAD_SECONDS, Progress
from tsmlab.progress import Bar, Lines, Silence, reporter_for
from tsmlab.schedule import StopRule


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_stream_decides() -> None:
    assert type(reporter_for(quiet=True, stream=Terminal())) is Silence
    assert type(reporter_for(quiet=False, stream=io.StringIO())) is Lines
    assert type(reporter_for(quiet=False, stream=Terminal())) is Bar


def drive(reporter: Any, rounds: int = 30) -> None:
    behaviours = {"glibc": Behaviour(seconds=1.0), "bad": Behaviour(signal=11)}
    behaviours["good"] = Behaviour(seconds=1.0)
    executor = SimulatedExecutor(behaviours)
    options = World.options(list(behaviours), rule=StopRule(runs=rounds))
    with reporter:
        compare(options, executor, reporter, Unkept(executor.clock))


def test_a_pipe_gets_a_line_every_ten_seconds_at_most() -> None:
    behaviours = {"glibc": Behaviour(seconds=1.0), "a": Behaviour(seconds=1.0)}
    executor, stream = SimulatedExecutor(behaviours), io.StringIO()
    reporter = Lines(stream, clock=executor.clock)
    options = World.options(list(behaviours), rule=StopRule(runs=40))
    compare(options, executor, reporter, Unkept(executor.clock))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("preflight")
    rounds = [line for line in lines if line.startswith("round")]
    assert 8 <= len(rounds) <= 12  # 120 simulated seconds
    assert rounds[-1].endswith("of at most 40, 3 runs")
    assert not set("\x1b\r") & set(stream.getvalue())


def test_a_terminal_sees_rounds_allocators_and_failures() -> None:
    stream = Terminal()
    drive(Bar(Console(file=stream, force_terminal=True, width=100)), rounds=3)
    shown = stream.getvalue()
    assert "bad: SIGSEGV" in shown
    assert "bad failed twice in a row and is not run again" in shown
    assert "3/≤3" in shown


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_says_nothing(quiet: bool) -> None:
    stream = io.StringIO()
    drive(reporter_for(quiet, stream))
    assert (stream.getvalue() == "") is quiet


def test_notes_with_brackets_are_not_markup() -> None:
    stream = Terminal()
    with Bar(Console(file=stream, force_terminal=True, width=100)) as bar:
        bar.note("a [red]plain[/red] note")
    assert "a [red]plain[/red] note" in stream.getvalue()


def test_the_time_left_of_several_parts_is_as_their_runs_were_so_far() -> None:
    progress = Progress(Silence(), rounds=3)
    part, other = progress.add("one", {"a": 3, "b": 3}), progress.add("two", {"a": 1})
    assert not part.is_known
    part.guess_seconds = other.guess_seconds = 2.0
    over = OVERHEAD_SECONDS
    assert progress.seconds_left() == pytest.approx((2.0 + over) * 7)
    part.run_finished(sample("a", 1, 0, {TIME: 4.0}))
    # What has run is believed, also of those of its part that have not.
    assert progress.seconds_left() == pytest.approx((4.0 + over) * 5 + 2.0 + over)
    assert part.round_seconds() == pytest.approx(2 * (4.0 + over))
    part.forget("b")
    assert progress.seconds_left() == pytest.approx((4.0 + over) * 2 + 2.0 + over)
