"""The order of the runs, and when to stop: the experiment's design.

If allocators were measured one after the other, other activity on the machine would bias the
comparison. Here each round runs every allocator once, in a new random order from a seed, so that a
round is a block of runs under similar conditions; and the stop rule is fixed before the first
result is known.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tsmlab.allocators import Allocator
from tsmlab.journal import Memo
from tsmlab.results import Failure, Phase, Sample, Settings, Stop
from tsmlab.sweep import Point, describe
from tsmlab.wording import rounds

if TYPE_CHECKING:
    from tsmlab.fleet import WorkerPool
    from tsmlab.progress import Reporter

MIN_ROUNDS = 5
# Beyond this many rounds, a longer-running program is a cheaper way to an answer.
MAX_ROUNDS = 300
# Without a user's budget: an answer within a minute, but the minimum of rounds may take two.
TIME_BUDGET_SECONDS = 45.0
MIN_ROUNDS_BUDGET_SECONDS = 120.0
# An allocator that failed twice in a row is not run again: it will not get better, and a hang costs
# a whole timeout each time.
FAILURES_TO_GIVE_UP = 2
# The start of the stack moves with the environment's size, and with it the alignment of everything
# that a program keeps there; one page covers every offset (Mytkowicz et al., Producing Wrong Data
# Without Doing Anything Obviously Wrong, ASPLOS 2009).
PADDING_RANGE_BYTES = 4096
# After the first analysis the next ones come at geometric steps: each look at the data is another
# chance to stop on a fluke, so there should be few.
LOOK_GROWTH = 1.25


@dataclass(frozen=True)
class Entry:
    """An allocator that each round runs once at a point of the sweep. Replicate 1 is the
    reference's second run, the A/A control. where: the point, for people."""

    allocator: Allocator
    replicate: int = 0
    point: int = 0
    where: str = ""

    @property
    def label(self) -> str:
        name = self.allocator.name
        return f"{name} at {self.where}" if self.where else name


@dataclass(frozen=True)
class Slot:
    entry: Entry
    phase: Phase
    round: int
    position: int
    padding_bytes: int

    @property
    def key(self) -> str:
        return f"{self.phase} {self.round}, run {self.position}, {self.entry.allocator.name}"

    def sample(
        self,
        started_seconds: float,
        values: dict[str, float],
        failure: Failure | None,
        measurement: dict[str, Any],
        output: tuple[str | None, int | None] = (None, None),
    ) -> Sample:
        """The sample of a finished run. output: its hash and its size."""
        return Sample(
            phase=self.phase,
            round=self.round,
            position=self.position,
            allocator=self.entry.allocator.name,
            replicate=self.entry.replicate,
            started_seconds=round(started_seconds, 6),
            padding_bytes=self.padding_bytes,
            values=values,
            output_sha256=output[0],
            output_bytes=output[1],
            failure=failure,
            measurement=measurement,
            point=self.entry.point,
        )


@dataclass(frozen=True)
class StopRule:
    """Exactly `runs` rounds, or at least min_rounds, until nothing is unresolved, within the time
    budget.

    A minimum that the user asked for overrides the budget (`min_is_firm`); the default minimum
    yields to `min_rounds_budget_seconds`, or to the budget if that is longer, but is never below
    one round.
    """

    runs: int | None = None
    min_rounds: int = MIN_ROUNDS
    max_rounds: int = MAX_ROUNDS
    time_budget_seconds: float = TIME_BUDGET_SECONDS
    min_rounds_budget_seconds: float = 0.0
    min_is_firm: bool = False

    @classmethod
    def fixed_rounds(cls, count: int, time_budget_seconds: float | None) -> StopRule:
        """Exactly this many rounds, or as many as fit into the time."""
        if time_budget_seconds is None:
            return cls(runs=count)
        return cls(min_rounds=count, max_rounds=count, time_budget_seconds=time_budget_seconds)

    def settings(self, **overrides: Any) -> Settings:
        """The options in effect: the rule's, and the given ones."""
        return Settings(
            runs=self.runs,
            min_rounds=self.min_rounds,
            max_rounds=self.max_rounds,
            time_budget_seconds=self.time_budget_seconds,
            **overrides,
        )

    @property
    def patience_seconds(self) -> float:
        """How long rounds may take while there are fewer than the minimum."""
        return max(self.time_budget_seconds, self.min_rounds_budget_seconds)

    def is_look(self, rounds_done: int) -> bool:
        """Whether to analyse the verdicts after this many rounds."""
        look = self.min_rounds
        while look < rounds_done:
            look = max(look + 1, math.ceil(look * LOOK_GROWTH))
        return self.runs is None and look == rounds_done

    def decide(
        self, rounds_done: int, elapsed_seconds: float, unresolved: Callable[[], int]
    ) -> Stop | None:
        """Whether to stop after `rounds_done` rounds; calls `unresolved` only at a look."""
        if self.runs is not None:
            done = rounds_done >= self.runs
            return Stop("runs", f"all {rounds(self.runs)} done") if done else None
        if self.is_look(rounds_done) and unresolved() == 0:
            return Stop("resolved", f"every verdict is resolved after {rounds(rounds_done)}")
        if rounds_done >= self.max_rounds:
            return Stop("max-rounds", f"the maximum of {rounds(self.max_rounds)} is reached")
        if rounds_done < self.min_rounds and self.min_is_firm:
            return None
        enough = rounds_done >= self.min_rounds
        budget = self.time_budget_seconds if enough else self.patience_seconds
        if rounds_done and elapsed_seconds * (rounds_done + 1) / rounds_done > budget:
            text = f"another round would exceed the time budget of {budget:g} s"
            return Stop("budget", f"{text}; {rounds(rounds_done)} done")
        return None

    def rounds_that_fit(self, round_seconds: float) -> int:
        """The maximum number of rounds of this length under the rule; at least one."""
        if self.runs is not None:
            return self.runs
        seconds = max(round_seconds, 1e-9)
        fitting = int(min(self.max_rounds, self.time_budget_seconds / seconds))
        patient = int(min(self.min_rounds, self.patience_seconds / seconds))
        return max(fitting, patient, self.min_rounds if self.min_is_firm else 1)


def round_order(entries: Sequence[Entry], seed: int, phase: Phase, number: int) -> list[Entry]:
    """The order within one round: it depends only on the arguments, so a seed reproduces it."""
    order = list(entries)
    random.Random(f"order/{seed}/{phase}/{number}").shuffle(order)
    return order


def part_seed(seed: int, kind: str, name: str) -> int:
    """Each part of a study has its own orders, independent of which other parts run; no allocator
    always follows the same one."""
    return random.Random(f"{kind}/{seed}/{name}").randrange(1 << 31)


def round_padding_bytes(seed: int, phase: Phase, number: int) -> int:
    """How much this round enlarges the environment, for all allocators alike."""
    return random.Random(f"padding/{seed}/{phase}/{number}").randrange(PADDING_RANGE_BYTES)


def entries_for(
    allocators: Sequence[Allocator], reference: Allocator | None, points: Sequence[Point] = ({},)
) -> list[Entry]:
    """At each point, every allocator once, and the reference, if there is one, a second time."""
    runs = [*((a, 0) for a in allocators), *([(reference, 1)] if reference else [])]
    return [
        Entry(allocator, replicate, index, describe(point))
        for index, point in enumerate(points)
        for allocator, replicate in runs
    ]


def has_given_up(samples: Sequence[Sample], allocator: str, point: int = 0) -> bool:
    """Whether the allocator's last runs at a point failed so many times in a row that it is not run
    there again."""
    own = [s for s in samples if s.allocator == allocator and s.point == point]
    last = own[-FAILURES_TO_GIVE_UP:]
    return len(last) == FAILURES_TO_GIVE_UP and all(s.failure for s in last)


@dataclass(kw_only=True)
class Scheduler:
    """Runs the warm-up rounds of one program, then the measured ones: each entry once, in the
    round's own order, except entries that have given up. `samples` is complete at every moment.

    `run_one` makes a run, unless there is a worker pool, which makes whole rounds. `judge` may set
    failures after each round, and withdraw them. unresolved: how many verdicts further rounds could
    still resolve. reference: if it fails, there is nothing left to compare; None if each point has
    its own references. vary_layout: each round has an environment of another size. by_point: a
    round has a block of runs for each point, one after the other, since nothing is compared between
    points."""

    entries: Sequence[Entry]
    reference: str | None
    seed: int
    run_one: Callable[[Slot], Sample]
    unresolved: Callable[[Sequence[Sample]], int]
    memo: Memo
    observer: Reporter
    judge: Callable[[list[Sample]], list[Sample]] = list
    vary_layout: bool = True
    worker_pool: WorkerPool | None = None
    by_point: bool = False

    def __post_init__(self) -> None:
        self.given_up: set[tuple[int, str]] = set()  # points and allocators
        self.samples: list[Sample] = []

    @property
    def alive(self) -> list[Entry]:
        return [e for e in self.entries if (e.point, e.allocator.name) not in self.given_up]

    def run(self, phase: Phase, number: int, last: int | None = None) -> None:
        """One round; `number` counts from 1 within the phase. last: a worker pool may already begin
        later rounds up to this one."""
        blocks = self._blocks(phase, number)
        self.observer.round_started(phase, number, sum(map(len, blocks)))
        if self.worker_pool is not None:
            self._begin(self.worker_pool, blocks, last)
        for block in blocks:
            for sample in self.made(block):
                self.samples.append(sample)
        self.samples = self.judge(self.samples)
        self._note_given_up()

    def _blocks(self, phase: Phase, number: int) -> list[list[Slot]]:
        padding = round_padding_bytes(self.seed, phase, number) if self.vary_layout else 0
        groups: dict[int, list[Entry]] = {}
        for entry in self.alive:
            groups.setdefault(entry.point if self.by_point else 0, []).append(entry)
        blocks, place = [], 0
        for point, entries in groups.items():
            seed = part_seed(self.seed, "point", str(point)) if self.by_point else self.seed
            order = round_order(entries, seed, phase, number)
            blocks.append(
                [Slot(e, phase, number, place + n, padding) for n, e in enumerate(order, 1)]
            )
            place += len(order)
        return blocks

    def made(self, slots: Sequence[Slot]) -> Iterator[Sample]:
        """The samples of a round, or of a part of one. An entry that has given up by the time its
        turn comes is ignored by a worker pool."""
        pool = self.worker_pool
        for sample in map(self._made_here, slots) if pool is None else pool.samples(slots):
            self.observer.run_finished(sample)
            yield sample

    def _made_here(self, slot: Slot) -> Sample:
        self.observer.run_started(slot)
        return self.run_one(slot)

    def _begin(self, pool: WorkerPool, blocks: Sequence[Sequence[Slot]], last: int | None) -> None:
        """This round and later ones, with the entries that are still alive."""
        phase, number = blocks[0][0].phase, blocks[0][0].round
        for later in range(number, min(last or number, number + pool.size - 1) + 1):
            for block in blocks if later == number else self._blocks(phase, later):
                pool.begin(block)

    def _note_given_up(self) -> None:
        """Recomputed each round, because a judgement can be withdrawn (output that varies by
        itself)."""
        labels = {(entry.point, entry.allocator.name): entry.label for entry in self.entries}
        given_up = {(p, name) for p, name in labels if has_given_up(self.samples, name, p)}
        for cell in sorted(given_up - self.given_up):
            self.observer.note(f"{labels[cell]} failed twice in a row and is not run again")
        self.given_up = given_up

    def warm_up(self, rounds: int) -> float:
        """Runs unmeasured rounds, this many for each worker of a pool; returns how long the last
        one took."""
        seconds = 0.0
        last = rounds * (1 if self.worker_pool is None else self.worker_pool.size)
        for number in range(1, last + 1):
            start = self.memo.clock()
            self.run("warmup", number, last)
            seconds = self.memo.clock() - start
        return seconds

    def measure(self, rule: StopRule) -> Stop:
        """Runs measured rounds until the rule ends it, or nothing is left to run."""
        start = self.memo.clock()
        number = 0
        stop = self._nothing_left()
        while stop is None:
            number += 1
            self.run("measured", number, rule.runs or rule.max_rounds)
            stop = self._decision(rule, number, self.memo.clock() - start) or self._nothing_left()
        return stop

    def _decision(self, rule: StopRule, rounds: int, elapsed_seconds: float) -> Stop | None:
        """The rule's decision after this many rounds, made once: a resumed study does not check the
        clock again for it."""
        return self.memo.once(
            f"after round {rounds}",
            Stop | None,
            lambda: rule.decide(rounds, elapsed_seconds, lambda: self.unresolved(self.samples)),
        )

    def _nothing_left(self) -> Stop | None:
        reference = self.reference
        if reference is None:
            return None if self.alive else Stop("none-left", "all runs failed")
        if any(name == reference for _, name in self.given_up):
            return Stop("reference-failed", f"the reference {reference} failed repeatedly")
        others = {(e.point, e.allocator.name) for e in self.entries}
        others = {(point, name) for point, name in others if name != reference}
        if others and others <= self.given_up:
            return Stop("none-left", f"all but the reference {reference} failed")
        return None
