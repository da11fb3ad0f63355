"""A simulated world for the tests of `experiment`: programs that take no time, at many points.

Why: order, failures, giving up, causes and resuming must be tested on runs whose truth is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from conftest import Behaviour, SimulatedExecutor, World

from tsmlab.allocators import Allocator
from tsmlab.experiments.catalogue import points_of
from tsmlab.experiments.causes import Observer
from tsmlab.experiments.model import Causes, Definition, ExperimentResults, Metric, Parameter
from tsmlab.experiments.plan import Plan
from tsmlab.experiments.runner import Options, run_experiments
from tsmlab.journal import Memo, Unkept
from tsmlab.measuring import Measurement, RunRequest
from tsmlab.progress import Reporter, Silence
from tsmlab.results import Outcome

HERE = Path(__file__).resolve()
MIB = 1 << 20
NAMES = ("tsmalloc", "glibc", "other")
Pick = Callable[[str, tuple[str, ...]], Any]


def definition(name: str = "sweep", **changes: Any) -> Definition:
    """Its program and its own file are this one: files that can be hashed, but are never used."""
    values: dict[str, Any] = {
        "name": name,
        "title": f"{name} and more",
        "question": "Which is best?",
        "source": "",
        "answers": "",
        "program": str(HERE),
        "arguments": ["--threads", "{threads}", "--under", "{allocator}"],
        "parameters": [Parameter("threads", "threads", [1, 2, 4])],
        "metrics": [Metric("seconds", "time", "seconds", higher_is_better=False)],
        "allocators": list(NAMES),
        "rounds": 3,
        "timeout_seconds": 9.0,
        "analyses": [],
        "plots": [],
        "reported": [],
        "file": str(HERE),
        "sha256": "0" * 64,
    }
    return Definition(**(values | changes))


def single(name: str = "single", **changes: Any) -> Definition:
    return definition(name, **({"parameters": [], "arguments": []} | changes))


class Programs:
    """An executor: `pick` says how the program fares, by allocator and arguments."""

    def __init__(self, pick: Pick | None = None) -> None:
        self._pick = pick or (lambda *_: prints(1.0))
        self.requests: list[RunRequest] = []
        self.now = 0.0
        self.interrupt_at_run: int | None = None
        self.error: BaseException | None = None

    def clock(self) -> float:
        return self.now

    def run(self, request: RunRequest) -> Measurement:
        number = len(self.requests)
        self.requests.append(request)
        if number == self.interrupt_at_run:
            raise self.error or KeyboardInterrupt
        name = request.allocator.name
        inner = SimulatedExecutor({name: self._pick(name, request.command[1:])})
        measurement: Measurement = inner.run(request)
        self.now += inner.now
        return measurement


def prints(seconds: float, **others: Any) -> Any:
    """A program that takes half a second more than the time that it prints."""
    text = others.pop("more", "")
    return Behaviour(seconds=seconds + 0.5, stdout=f"seconds: {seconds}\n{text}", **others)


class Counting:
    """An observer that remembers its requests."""

    def __init__(self, executor: Programs, names: Sequence[str] = NAMES, **counts: float) -> None:
        self._executor = executor
        self._names = names
        self._counts = counts
        self.requests: list[RunRequest] = []

    def applies_to(self, allocator: Allocator) -> bool:
        return allocator.name in self._names

    def observe(self, request: RunRequest, folder: Path) -> Causes:
        assert not list(folder.iterdir())
        (folder / "left behind").write_text("")
        self.requests.append(request)
        self._executor.now += 1.0
        return Causes(dict(self._counts), [], None, [], [])


class Notes(Silence):
    """A reporter that remembers its notes, and how many rounds it was told to expect."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.expected: int | None = None

    def expect(self, rounds: int) -> None:
        self.expected = rounds

    def note(self, text: str) -> None:
        self.texts.append(text)


def plans(definitions: Sequence[Definition], **changes: Any) -> list[Plan]:
    values: dict[str, Any] = {
        "program": HERE,
        "allocators": [World.allocator(name) for name in NAMES],
        "with_causes": True,
    }
    return [
        Plan(definition=d, points=points_of(d), rounds=d.rounds, **(values | changes))
        for d in definitions
    ]


def go_on(
    definitions: Sequence[Definition],
    executor: Programs,
    observers: Sequence[Observer] = (),
    reporter: Reporter | None = None,
    memo: Memo | None = None,
    time_budget_seconds: float | None = None,
    seed: int = 7,
    **changes: Any,
) -> Outcome[ExperimentResults]:
    """Runs the experiments, or what the memo lacks of them."""
    planned = tuple(plans(definitions, **changes))
    return run_experiments(
        Options(planned, seed, None, time_budget_seconds),
        executor,
        observers,
        reporter or Silence(),
        memo or Unkept(executor.clock),
        lambda size: size,
    )
