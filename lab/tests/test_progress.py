"""Progress: a bar on a terminal, sparse lines in a pipe, nothing with --quiet."""

import io
import re

from conftest import Behaviour, SimulatedExecutor, World
from refusals import mentions
from rich.console import Console

from tsmlab.progress import Bar, Lines, SilentReporter, reporter_for
from tsmlab.schedule import StopRule


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_stream_decides():
    assert type(reporter_for(quiet=True, stream=Terminal())) is SilentReporter
    assert type(reporter_for(quiet=False, stream=io.StringIO())) is Lines
    assert type(reporter_for(quiet=False, stream=Terminal())) is Bar


def test_a_pipe_gets_a_line_every_ten_seconds_at_most():
    behaviours = {"glibc": Behaviour(seconds=1.0), "a": Behaviour(seconds=1.0)}
    executor, stream = SimulatedExecutor(behaviours), io.StringIO()
    reporter = Lines(stream, clock=executor.clock)
    World.comparison(behaviours, executor=executor, reporter=reporter, rule=StopRule(runs=40))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("preflight")
    rounds = [line for line in lines if line.startswith("round")]
    assert 8 <= len(rounds) <= 12  # 120 simulated seconds
    assert re.fullmatch(r"round \d+ of at most 40, run \d of 3, about \d+ s left", rounds[-1])
    assert not set("\x1b\r") & set(stream.getvalue())


def test_a_terminal_sees_rounds_allocators_failures_and_notes_that_are_no_markup():
    good, stream = Behaviour(seconds=1.0), Terminal()
    behaviours = {"glibc": good, "bad": Behaviour(signal=11), "good": good}
    with Bar(Console(file=stream, force_terminal=True, width=100)) as reporter:
        World.comparison(behaviours, reporter=reporter, rule=StopRule(runs=3))
        reporter.note("a [red]plain[/red] note")
    told = ("bad: SIGSEGV", "bad failed", "3/≤3", "a [red]plain[/red] note")
    mentions(stream.getvalue(), *told)


def test_more_rounds_than_were_expected_have_no_end_that_is_known():
    """Later rounds may be shorter than the first, from which the number was estimated."""
    behaviours = {"glibc": Behaviour(seconds=20.0)}
    executor, stream = SimulatedExecutor(behaviours), io.StringIO()
    reporter = Lines(stream, clock=executor.clock)
    reporter.expect = lambda _: None
    reporter._expected = 4  # noqa: SLF001
    World.comparison(behaviours, executor=executor, reporter=reporter, rule=StopRule(runs=9))
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("round ")]
    assert lines[-1] == "round 9, run 2 of 2"
    assert "round 4 of at most 4, run 2 of 2, about 20 s left" in lines
