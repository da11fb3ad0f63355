"""A simulated world for the tests of `compare`: programs that take no time, with known results.
Tests of the real tools build their own programs (compiled_programs.py) and start them (prompt.py).
"""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import headless_browser
import pytest
from compiled_programs import build
from prompt import environment, misbehaving, ran, tsmalloc, waste, work

from tsmlab import paths
from tsmlab.allocators import Allocator
from tsmlab.compare import Options, compare
from tsmlab.journal import NullJournal
from tsmlab.measuring import Measurement, RunRequest
from tsmlab.progress import SilentReporter
from tsmlab.report import vega
from tsmlab.schedule import StopRule
from tsmlab.trial import Program

__all__ = ["build", "environment", "misbehaving", "tsmalloc", "waste", "work"]

MIB = 1 << 20

# A shell's background job ignores Ctrl-C, and so would the test programs that receive it.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A dumb terminal has no colours and no progress bar.
os.environ["TERM"] = "xterm"
# Only browser tests draw figures, and no test downloads Vega.
os.environ["TSMALLOC_VEGA"] = ""


@dataclass(frozen=True)
class Behaviour:
    """The simulated program under one allocator; `noise` is the standard deviation of the log.

    `changes`: from which run on (counted from 0) it behaves differently.
    """

    seconds: float = 0.1
    noise: float = 0.0
    peak_bytes: int = 20 * MIB
    exit_code: int | None = 0
    signal: int | None = None
    timed_out: bool = False
    spawn_error: dict[str, Any] | None = None
    stdout: str = "42\n"
    stderr: str = ""
    mapped: bool | None = True
    interrupted: bool = False
    changes: tuple[tuple[int, Behaviour], ...] = ()

    def at(self, run):
        current = self
        for start, changed in self.changes:
            if run >= start:
                current = changed
        return current


class SimulatedExecutor:
    """An executor whose runs only advance its clock. Keeps all requests. behaviours: by the
    allocator's name, or a function of the request."""

    def __init__(self, behaviours, seed=1, now=0.0, interrupt_at_run=None):
        self.behaviours, self.seed, self.now = behaviours, seed, now
        self.interrupt_at_run = interrupt_at_run
        self.requests = []

    def clock(self):
        return self.now

    def run(self, request):
        number, name, pick = len(self.requests), request.allocator.name, self.behaviours
        earlier = sum(r.allocator.name == name for r in self.requests)
        behaviour = (pick(request) if callable(pick) else pick[name]).at(earlier)
        self.requests.append(request)
        if number == self.interrupt_at_run:
            raise KeyboardInterrupt
        for path, text in ((request.stdout, behaviour.stdout), (request.stderr, behaviour.stderr)):
            if path is not None:
                path.write_text(text, encoding="utf-8")
        factor = random.Random(f"{self.seed}/{number}").lognormvariate(0.0, behaviour.noise)
        seconds = behaviour.seconds * factor
        self.now += seconds
        return measurement_of(behaviour, request, seconds)


def measurement_of(behaviour, request, seconds):
    """As the native tool would write it."""
    ran = behaviour.spawn_error is None
    ended_itself = ran and not behaviour.timed_out and behaviour.signal is None
    limit = request.timeout_seconds
    measured = {
        "wall_ns": int(seconds * 1e9),
        "user_ns": int(seconds * 8e8),
        "system_ns": int(seconds * 1e8),
        **dict.fromkeys(("peak_rss_bytes", "tree_peak_rss_bytes"), behaviour.peak_bytes),
        "minor_faults": 5000,
        **dict.fromkeys(("voluntary_switches", "involuntary_switches"), 1),
        "major_faults": 0,
    }
    same = ("signal", "timed_out", "interrupted", "spawn_error")
    return Measurement.from_json({
        **{name: getattr(behaviour, name) for name in same},
        **(measured if ran else dict.fromkeys(measured)),
        "schema": "tsmalloc-measure/1",
        "tree_peak_pss_bytes": None,
        "exit_code": behaviour.exit_code if ended_itself else None,
        "left_behind": 0,
        "preloaded": [{"path": str(p), "mapped": behaviour.mapped} for p in request.preloads()],
        "samples": 10,
        "sampling_ns": int(seconds * 1e6),
        "timeout_ns": None if limit is None else int(limit * 1e9),
    })  # fmt: skip


def run_request(*command, **changes):
    """A request under the C library's allocator, by default."""
    plain = {"allocator": Allocator("glibc", None, "libc", "2.36"), "env": {}}
    plain |= dict.fromkeys(("stdin", "stdout", "stderr", "timeout_seconds", "cwd"))
    return RunRequest(command=command, **(plain | changes))


class World:
    """Makes allocators, options and whole comparisons out of behaviours."""

    @staticmethod
    def allocator(name):
        # The executor never loads a library, but the results hash it, so it must be a file.
        path = None if name == "glibc" else Path(__file__).resolve()
        return Allocator(name, path, "libc" if path is None else "tsmalloc", "1.0")

    @classmethod
    def options(cls, names, reference="glibc", program=None, **changes):
        allocators = {name: cls.allocator(name) for name in names}
        plain = Program(command=("./program", "--flag"), stdin=Path("/dev/null"))
        given = {
            "program": replace(plain, **(program or {})),
            "allocators": tuple(allocators.values()),
            "reference": allocators[reference],
            "seed": 7,
            "rule": StopRule(runs=6),
            "consult_doctor": False,
        }
        return Options(**(given | changes))

    @classmethod
    def outcome(
        cls, behaviours, executor=None, reporter=None, memo=None, interrupt_at_run=None, **changes
    ):
        executor = executor or SimulatedExecutor(behaviours, interrupt_at_run=interrupt_at_run)
        options = cls.options(list(behaviours), **changes)
        memo = memo or NullJournal(executor.clock)
        return compare(options, executor, reporter or SilentReporter(), memo)

    @classmethod
    def comparison(cls, behaviours, **changes):
        return cls.outcome(behaviours, **changes).results


@pytest.fixture(scope="session")
def trace(tmp_path_factory):
    """A trace of six threads at a time that free each other's objects, start and end."""
    path = tmp_path_factory.mktemp("traces") / "made-up.tstrace"
    words = ("events=20000", "threads=6", "seed=3")
    ran(paths.tool("synthetic_trace"), path, *words, status=0)
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if headless_browser.program() is None:
        pytest.skip("this machine has no headless browser")
    with headless_browser.Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def vega_at_hand():
    """A page's figures have data and a script, whether or not Vega is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vega, "library", lambda: "/* Vega */")
        yield


def typical(**changes):
    """A comparison with a winner, a loser, a tie, and an allocator under which the program
    crashes."""
    behaviours = {
        "glibc": Behaviour(noise=0.002),
        "fast": Behaviour(seconds=0.08, noise=0.002, peak_bytes=25 * MIB),
        "slow": Behaviour(seconds=0.35, noise=0.002, peak_bytes=30 * MIB),
        "same": Behaviour(noise=0.001, peak_bytes=15 * MIB),
        "crash": Behaviour(signal=11, stderr="first line\nfree(): invalid pointer\n"),
    }
    return World.comparison(behaviours, **({"rule": StopRule(runs=12)} | changes))
