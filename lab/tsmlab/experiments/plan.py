"""The runs to be made: experiments with their points, allocators and rounds, and how long.

Why: a run of all experiments takes most of an hour; what it will do and how long that takes must be
known before it begins. A resumed run must do exactly what the first one would have done.
"""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tsmlab import allocators as known
from tsmlab import system_libraries
from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.experiments.catalogue import arguments_at, describe_point, points_of, program_path
from tsmlab.experiments.model import BUILT_IN, LIVE_BYTES, Definition, Point
from tsmlab.parts import OVERHEAD_SECONDS, WATCHED_FACTOR
from tsmlab.wording import counted, rounds

# A time budget takes rounds away, but never more than down to this: fewer say next to nothing.
FEWEST_ROUNDS = 3


@dataclass(frozen=True)
class Plan:
    """One experiment as it is going to be run. `program` is the file."""

    definition: Definition
    program: Path
    points: list[Point]
    allocators: list[Allocator]
    rounds: int
    with_causes: bool

    @property
    def name(self) -> str:
        return self.definition.name

    def command(self, point: int, allocator: str) -> tuple[str, ...]:
        arguments = arguments_at(self.definition, self.points[point], allocator)
        return (str(self.program), *arguments)

    @property
    def printed(self) -> tuple[str, ...]:
        """The metrics that each run must print."""
        return self._from_output(optional=False)

    @property
    def printed_perhaps(self) -> tuple[str, ...]:
        """Those that are taken if they are there."""
        names = self._from_output(optional=True)
        return names if LIVE_BYTES in (*self.printed, *names) else (*names, LIVE_BYTES)

    def _from_output(self, *, optional: bool) -> tuple[str, ...]:
        measured = {metric.name for metric in BUILT_IN}
        return tuple(
            metric.name
            for metric in self.definition.metrics
            if metric.source == "run"
            and metric.name not in measured
            and metric.optional == optional
        )

    @property
    def causes_points(self) -> list[int]:
        """The points at which causes are counted."""
        if not self.with_causes or self.definition.causes == "none":
            return []
        last = len(self.points) - 1
        return sorted({0, last}) if self.definition.causes == "ends" else list(range(last + 1))

    @property
    def runs_a_round(self) -> int:
        return len(self.points) * len(self.allocators)


def plan(
    definition: Definition,
    available: Sequence[Allocator],
    chosen: Sequence[str],
    round_count: int | None,
    with_causes: bool,
    note: Callable[[str], object],
) -> Plan:
    """The plan of an experiment; `chosen` are the allocators asked for, else the file's own choice
    and the user's libraries. Raises UserError for a choice that cannot be run."""
    selected = (
        known.select(chosen, available) if chosen else list(_own(definition, available, note))
    )
    return Plan(
        definition=definition,
        program=program_path(definition),
        points=points_of(definition),
        allocators=selected,
        rounds=definition.rounds if round_count is None else round_count,
        with_causes=with_causes,
    )


def _own(
    definition: Definition, available: Sequence[Allocator], note: Callable[[str], object]
) -> Iterator[Allocator]:
    """The allocators that the file names. Those that are not installed here are left out and
    noted."""
    selectors: list[str] = []
    for selector in definition.allocators:
        package = system_libraries.package_of(selector)
        if package and not any(fnmatch.fnmatchcase(a.name, selector) for a in available):
            note(f"{definition.name}: without {selector} (sudo apt install {package})")
            continue
        selectors.append(selector)
    users = [allocator.name for allocator in available if allocator.family == "user"]
    if not selectors and not users:
        raise UserError(
            f"{definition.file}: none of its allocators is installed.",
            "Install one of them, or choose others: -a tsmalloc,glibc",
        )
    try:
        yield from known.select([*selectors, *users], available)
    except UserError as error:
        raise UserError(f"{definition.file}: {error.message}", error.remedy) from error


# --- time ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """About how long it takes, as the files tell: each round, and the causes."""

    rounds: list[float]
    causes: float

    @property
    def seconds(self) -> float:
        return sum(self.rounds) + self.causes

    def rounds_within(self, budget_seconds: float) -> int:
        """How many rounds fit into this time with the causes; at least FEWEST_ROUNDS, if there are
        so many."""
        fitting, left = 0, budget_seconds - self.causes
        for seconds in self.rounds:
            left -= seconds
            if left < 0.0:
                break
            fitting += 1
        return max(fitting, min(FEWEST_ROUNDS, len(self.rounds)))

    def shortened(self, budget_seconds: float | None) -> Estimate:
        """With the rounds that fit; all of them without a budget."""
        if budget_seconds is None:
            return self
        return replace(self, rounds=self.rounds[: self.rounds_within(budget_seconds)])


def estimate(plans: Sequence[Plan], watchers: Callable[[Allocator], int]) -> Estimate:
    """`watchers` says how many runs the causes of a cell take under an allocator."""

    def run_seconds(each: Plan) -> float:
        return each.definition.run_seconds + OVERHEAD_SECONDS

    return Estimate(
        rounds=[
            sum(run_seconds(p) * p.runs_a_round for p in plans if p.rounds > done)
            for done in range(max(p.rounds for p in plans))
        ],
        causes=sum(
            run_seconds(p)
            * WATCHED_FACTOR
            * len(p.causes_points)
            * sum(map(watchers, p.allocators))
            for p in plans
        ),
    )


# --- words ---------------------------------------------------------------------------------------


def summary(plans: Sequence[Plan], expected: Estimate) -> str:
    """One line: how much there is to do, and how long it takes."""
    most = len(expected.rounds)
    planned = [min(each.rounds, most) for each in plans]
    runs = sum(p.runs_a_round * count for p, count in zip(plans, planned, strict=True))
    spread = "" if min(planned) == max(planned) else f"{min(planned)} to "
    return (
        f"{counted(len(plans), 'experiment')}, {runs:,} runs in {spread}{rounds(max(planned))}, "
        f"about {time_text(expected.seconds)}"
    )


def budget_note(whole: Estimate, budget_seconds: float | None) -> str | None:
    """The rounds that a budget takes away, or that it cannot be kept; None where everything
    fits."""
    if budget_seconds is None or whole.seconds <= budget_seconds:
        return None
    shortened, budget = whole.shortened(budget_seconds), time_text(budget_seconds)
    count = len(shortened.rounds)
    if shortened.seconds <= budget_seconds:
        return f"about {count} of {rounds(len(whole.rounds))} fit into {budget}"
    return (
        f"even {rounds(count)} take about {time_text(shortened.seconds)}, not {budget}: choose "
        "fewer experiments, allocators (-a) or rounds (-r), or --no-causes"
    )


def time_text(seconds: float) -> str:
    """As people say it: 42 s, 7 min."""
    return f"{seconds / 60.0:.0f} min" if seconds >= 100.0 else f"{max(seconds, 1.0):.0f} s"


def describe(
    plans: Sequence[Plan], whole: Estimate, budget_seconds: float | None, seed: int
) -> str:
    """The text of --dry-run: a block for each experiment, then the sum."""
    last = f"{summary(plans, whole.shortened(budget_seconds))}; seed {seed}"
    if note := budget_note(whole, budget_seconds):
        last += f"\n{note}"
    return "\n\n".join([*map(_block, plans), last]) + "\n"


def _block(each: Plan) -> str:
    definition = each.definition
    values = [f"{p.name} {' '.join(map(str, p.values))}" for p in definition.parameters]
    causes = [describe_point(each.points[point]) or "the one point" for point in each.causes_points]
    if len(causes) == len(each.points) > 1:
        causes = ["every point"]
    lines = [
        ("experiment", f"{each.name}: {definition.title}"),
        ("question", definition.question),
        ("file", definition.file),
        ("command", shlex.join(each.command(0, each.allocators[0].name))),
        ("sweep", "; ".join(values) or "none"),
        ("allocators", " ".join(allocator.name for allocator in each.allocators)),
        ("rounds", f"{each.rounds}, of {each.runs_a_round} runs each"),
        ("causes", f"counted at {'; '.join(causes)}" if causes else "not counted"),
        ("hang", f"after {definition.timeout_seconds:g} s"),
    ]
    return "\n".join(f"{label:<12}{text}" for label, text in lines)
