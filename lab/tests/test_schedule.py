"""Order, padding, stop rule, giving up and interrupts, with a mock that takes no time."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from experiment_fixtures import CRASH

from tsmlab import schedule
from tsmlab.allocators import Allocator
from tsmlab.journal import NullJournal
from tsmlab.progress import SilentReporter
from tsmlab.schedule import MIN_ROUNDS, Entry, Scheduler, Slot, StopRule

NAMES = ("glibc", "a", "b", "c")


def allocator(name):
    return Allocator(name, None, "user", "1")


class Rig:
    """A scheduler whose runs take one simulated second each."""

    def __init__(self, fails=lambda _: False, judge=list, unresolved=lambda _: 1):
        self.now = 0.0
        self.slots: list[Slot] = []
        self._fails = fails
        allocators = [allocator(name) for name in NAMES]
        self.scheduler = Scheduler(
            entries=schedule.entries_for(allocators, allocators[0]),
            reference=NAMES[0],
            seed=11,
            run_one=self._run,
            judge=judge,
            unresolved=unresolved,
            memo=NullJournal(lambda: self.now),
            observer=SilentReporter(),
        )

    def _run(self, slot):
        self.slots.append(slot)
        self.now += 1.0
        return slot.sample(0.0, {}, CRASH if self._fails(slot) else None, {})

    def rounds_of(self, name):
        return [slot.round for slot in self.slots if slot.entry.allocator.name == name]


def test_the_order_is_random_between_rounds_and_the_same_for_a_seed():
    entries = [Entry(allocator(name)) for name in NAMES]

    def orders(seed, rounds=40):
        return [schedule.round_order(entries, seed, "measured", n) for n in range(rounds)]

    assert orders(1) == orders(1) != orders(2)
    many = [tuple(entry.allocator.name for entry in order) for order in orders(5, 2000)]
    assert len(set(many)) == math.factorial(len(NAMES))
    firsts = Counter(order[0] for order in many)
    # 500 expected each, standard deviation 19.
    assert all(400 < count < 600 for count in firsts.values())


def test_the_padding_changes_between_rounds_and_is_shared_within_one():
    rig = Rig()
    rig.scheduler.measure(StopRule(runs=10))
    by_round = {n: {s.padding_bytes for s in rig.slots if s.round == n} for n in range(1, 11)}
    assert all(len(paddings) == 1 for paddings in by_round.values())
    assert len({next(iter(p)) for p in by_round.values()}) > 5
    many = [schedule.round_padding_bytes(3, "measured", n) for n in range(500)]
    assert 0 <= min(many) < 100
    assert 0 < schedule.PADDING_RANGE_BYTES - max(many) < 100


@pytest.mark.parametrize(
    ("unresolved", "rule", "reason", "rounds"),  # a round takes 5 s
    [
        (0, StopRule(runs=9, time_budget_seconds=0.001), "runs", 9),
        (1, StopRule.fixed_rounds(3, None), "runs", 3),
        (1, StopRule.fixed_rounds(3, 12.0), "budget", 2),
        (1, StopRule.fixed_rounds(3, 15.0), "max-rounds", 3),
        (1, StopRule(time_budget_seconds=42.0), "budget", 8),
        # The default minimum yields to the budget, or has its own.
        (1, StopRule(time_budget_seconds=12.0), "budget", 2),
        (1, StopRule(time_budget_seconds=0.5), "budget", 1),
        (1, StopRule(time_budget_seconds=12.0, min_rounds_budget_seconds=30.0), "budget", 5),
        (1, StopRule(time_budget_seconds=12.0, min_rounds_budget_seconds=20.0), "budget", 4),
        (1, StopRule(min_rounds=6, min_is_firm=True, time_budget_seconds=0.5), "budget", 6),
        (1, StopRule(max_rounds=20, time_budget_seconds=1e9), "max-rounds", 20),
        (0, StopRule(time_budget_seconds=1e6), "resolved", MIN_ROUNDS),
    ],
)
def test_the_rule_ends_it(unresolved, rule, reason, rounds):
    rig = Rig(unresolved=lambda _: unresolved)
    assert rig.scheduler.measure(rule).reason == reason
    assert rig.slots[-1].round == rounds
    assert rig.now == 5.0 * rounds


def test_looks_at_the_data_grow_rare():
    rule = StopRule()
    looks = [n for n in range(1, 101) if rule.is_look(n)]
    assert looks == [5, 7, 9, 12, 15, 19, 24, 30, 38, 48, 60, 75, 94]
    assert not any(StopRule(runs=20).is_look(n) for n in range(1, 21))


@pytest.mark.parametrize(
    ("rule", "fitting"),
    [
        (StopRule(runs=3), 3),
        (StopRule(time_budget_seconds=100.0), 10),
        (StopRule(time_budget_seconds=5.0), 1),
        (StopRule(time_budget_seconds=5.0, min_rounds=8, min_is_firm=True), 8),
        (StopRule(time_budget_seconds=1e9, max_rounds=50), 50),
        (StopRule(time_budget_seconds=12.0, min_rounds_budget_seconds=60.0), MIN_ROUNDS),
    ],
)
def test_the_forecast_follows_the_rule(rule, fitting):
    assert rule.rounds_that_fit(10.0) == fitting


def test_an_allocator_that_fails_now_and_then_goes_on_but_not_after_two_in_a_row():
    rig = Rig(fails=lambda slot: slot.entry.allocator.name == "b" and slot.round % 2 == 0)
    rig.scheduler.measure(StopRule(runs=6))
    assert rig.rounds_of("b") == [1, 2, 3, 4, 5, 6]
    rig = Rig(fails=lambda slot: slot.entry.allocator.name == "b")
    rig.scheduler.warm_up(1)
    rig.scheduler.measure(StopRule(runs=6))
    assert len(rig.rounds_of("b")) == 2, "one in the warm-up"


def test_a_judgement_that_is_taken_back_brings_an_allocator_back():
    def judge(samples):
        forgiven = any(s.round == 4 for s in samples)
        failure = None if forgiven else CRASH
        return [s if s.allocator != "b" else replace(s, failure=failure) for s in samples]

    rig = Rig(judge=judge)
    rig.scheduler.measure(StopRule(runs=6))
    assert rig.rounds_of("b") == [1, 2, 5, 6]


def test_it_stops_when_the_reference_fails_or_only_the_reference_is_left():
    rig = Rig(fails=lambda slot: slot.entry.allocator.name == "glibc")
    assert rig.scheduler.measure(StopRule(runs=6)).reason == "reference-failed"
    assert rig.slots[-1].round == 1  # both of its runs are in one round
    rig = Rig(fails=lambda slot: slot.entry.allocator.name != "glibc")
    assert rig.scheduler.measure(StopRule(runs=6)).reason == "none-left"
    assert rig.slots[-1].round == 2
