"""A run of the suite and its report, with simulated programs."""

import csv
import io
import itertools
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Behaviour, SimulatedExecutor, World
from experiment_fixtures import Notes
from refusals import mentions
from rich.console import Console

from tsmlab import bench_text, texts
from tsmlab.bench import MIN_TIMEOUT_SECONDS, TIMEOUT_FACTOR, Options, bench
from tsmlab.errors import UserError
from tsmlab.journal import NullJournal
from tsmlab.progress import SilentReporter
from tsmlab.study import from_json
from tsmlab.workloads import Workload

MIB = 1 << 20
NAMES = ("tsmalloc", "glibc", "other")


def workload(name, **changes):
    # It must be a file, since it is hashed; the simulation does not start it.
    plain = Workload(name, f"{name} stresses", (sys.executable,), 1, "seconds", True)
    return replace(plain, **changes)


WORKLOADS = (workload("one"), workload("two"))


@pytest.fixture
def run():
    """Runs a suite in a simulated world."""

    def simulate(behaviours=None, executor=None, reporter=None, warm=lambda size: size, **changes):
        executor = executor or SimulatedExecutor(behaviours or typical())
        names = list(executor.behaviours)
        options = Options(
            suite=Path("suite.toml"),
            workloads=changes.pop("workloads", WORKLOADS),
            allocators=tuple(World.allocator(name) for name in names),
            peers=tuple(name for name in names if name != "tsmalloc"),
            candidate="tsmalloc",
            seed=7,
            **({"rounds": 3} | changes),
        )
        memo = NullJournal(executor.clock)
        return bench(options, executor, reporter or SilentReporter(), memo, warm)

    return simulate


def prints(seconds, **others):
    return Behaviour(seconds=seconds + 0.5, stdout=f"n: 1\nseconds: {seconds}\n", **others)


def typical():
    return {
        "tsmalloc": prints(0.8, peak_bytes=12 * MIB),
        "glibc": prints(1.0, peak_bytes=10 * MIB),
        "other": prints(1.25, peak_bytes=20 * MIB),
    }


def measured(results, name):
    index = [workload.name for workload in results.suite.workloads].index(name)
    samples = results.comparison.samples
    return [s for s in samples if s.phase == "measured" and s.point == index]


# --- the flow ------------------------------------------------------------------------------------


def test_every_round_has_every_workload_under_every_allocator(run):
    executor = SimulatedExecutor(typical())
    results = run(executor=executor).results
    for name in ("one", "two"):
        found = [(s.round, s.allocator) for s in measured(results, name)]
        assert sorted(found) == sorted(itertools.product((1, 2, 3), NAMES))
        orders = {number: [a for n, a in found if n == number] for number in (1, 2, 3)}
        assert len({tuple(order) for order in orders.values()}) > 1
    # Workloads alternate: an allocator's runs of one workload are not all at the same time.
    starts = {n: [s.started_seconds for s in measured(results, n)] for n in ("one", "two")}
    assert starts["one"][2] < starts["two"][0] < starts["one"][3]
    assert results.stop.reason == "runs"


def test_workloads_have_orders_of_their_own_and_a_seed_repeats_them(run):
    def orders():
        results = run(rounds=6).results
        return [[s.allocator for s in measured(results, name)] for name in ("one", "two")]

    first = orders()
    assert first[0] != first[1]
    assert orders() == first


def test_each_workload_is_tried_first_which_tells_what_a_hang_is(run):
    slow = {name: Behaviour(seconds=5.0, stdout="seconds: 5\n") for name in NAMES}
    executor = SimulatedExecutor(slow)
    results = run(executor=executor).results
    assert [r.allocator.name for r in executor.requests[:2]] == ["glibc", "glibc"]
    probes = [s for s in results.comparison.samples if s.phase == "probe"]
    assert [(s.phase, s.allocator) for s in probes] == [("probe", "glibc")] * 2
    assert results.comparison.settings.timeout_seconds == 5.0 * TIMEOUT_FACTOR
    least = max(MIN_TIMEOUT_SECONDS, 1.5 * TIMEOUT_FACTOR)
    assert run().results.comparison.settings.timeout_seconds == least
    assert run(timeout_seconds=3.0).results.comparison.settings.timeout_seconds == 3.0


def test_memory_is_warmed_by_what_the_trials_needed(run):
    behaviours = typical() | {"glibc": prints(1.0, peak_bytes=1000 * MIB)}
    executor = SimulatedExecutor(behaviours)
    warmed: list[tuple[int, int]] = []

    def warm(size):
        warmed.append((size, len(executor.requests)))
        return size

    run(executor=executor, warm=warm)
    assert warmed == [(4000 * MIB, 2)]


def test_who_fails_twice_in_a_row_is_left_alone_in_that_workload_only(run):
    notes = Notes()
    bad = Behaviour(signal=11, stderr="free(): invalid pointer\n")
    results = run(typical() | {"other": bad}, reporter=notes, rounds=4).results
    assert len(measured(results, "one")) == 4 * 2 + 2
    assert any("other at workload=one failed" in text for text in notes.texts)
    failed = [line for line in bench_text.failed_lines(results) if line.startswith("FAILED")]
    assert [line.split(":")[:2] for line in failed] == [
        ["FAILED one", " other"],
        ["FAILED two", " other"],
    ]


def test_a_workload_without_the_promised_line_has_failed(run):
    mute = Behaviour(stdout="operations: 5\n")
    results = run(typical() | {"tsmalloc": mute}).results
    failure = results.suite.analysis.workloads[0].score("tsmalloc").failure
    assert (failure.kind, "`seconds: NUMBER`" in failure.text) == ("metric", True)


def test_the_time_budget_ends_after_whole_rounds(run):
    # A round takes 2 * (1.3 + 1.5 + 1.75) = 9.1 simulated seconds.
    notes = Notes()
    results = run(rounds=50, time_budget_seconds=40.0, reporter=notes).results
    assert results.suite.analysis.rounds == 4
    assert results.stop.reason == "budget"
    assert len(measured(results, "two")) == 4 * 3
    assert any("40 s" in text for text in notes.texts)
    assert "few-rounds" in [warning.code for warning in results.warnings]
    assert run(rounds=4, time_budget_seconds=1000.0).results.suite.analysis.rounds == 4


def test_an_interrupt_loses_nothing_and_before_the_rounds_goes_up(run):
    # Two trials, one round of 6 runs, and two more runs.
    executor = SimulatedExecutor(typical(), interrupt_at_run=10)
    outcome = run(executor=executor)
    results = outcome.results
    assert results.interrupted
    assert outcome.error is None
    assert len(measured(results, "one")) + len(measured(results, "two")) == 8
    assert results.suite.analysis.workloads[1].fastest_peer == "glibc"
    assert "interrupted" in texts.report(results, 120)
    with pytest.raises(KeyboardInterrupt):
        run(executor=SimulatedExecutor(typical(), interrupt_at_run=1))


def test_what_breaks_the_run_leaves_what_was_measured(run):
    class FullDisk(SimulatedExecutor):
        def run(self, request):
            if len(self.requests) > 20:
                raise UserError("the journal cannot be written.")
            return super().run(request)

    outcome = run(rounds=10, executor=FullDisk(typical()))
    assert outcome.error is not None
    assert outcome.results.stop.reason == "aborted"
    assert measured(outcome.results, "one")


# --- the report ----------------------------------------------------------------------------------


def lines_of(results):
    """The table's lines by workload and quantity."""
    found, workload_name = {}, ""
    for line in texts.report(results, 200).splitlines():
        for quantity in ("time", "memory"):
            head, separator, _ = line.partition(f"  {quantity}  ")
            if separator and "[95" not in line:
                workload_name = head.strip() or workload_name
                found[workload_name, quantity] = line
    return found


def squeezed(line):
    return " ".join(line.split())


def test_what_is_written_of_a_run(run):
    results = run().results
    lines = lines_of(results)
    assert squeezed(lines["one", "time"]) == (
        "one time glibc 1.00 s 0.80 [0.80, 0.80] better 1.00 1.25 ±0%"
    )
    assert squeezed(lines["one", "memory"]) == (
        "memory glibc 10.0M 1.20 [1.20, 1.20] 1.20 [1.20, 1.20] to glibc, worse 1.00 2.00 ±0%"
    )
    mean = lines["geometric mean", "time"]
    assert "0.80 [0.80, 0.80]" in mean
    time, memory = bench_text.headline(run().results.suite)
    assert "tsmalloc at 0.80 [0.80, 0.80]" in time
    assert time.endswith("better in 2")
    assert "at 1.20 [1.20, 1.20]" in memory
    text = texts.markdown(results)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert len(table) == 2 + 2 * 2 + 2
    told = ("transparent huge pages", "- glibc 1.0", "SHA-256")
    mentions(text, results.created, results.machine.kernel, *told)
    lines = list(csv.DictReader(io.StringIO(texts.formatted(results, "csv"))))
    assert len(lines) == 2 * (1 + 9)
    assert {line["workload"] for line in lines} == {"one", "two"}
    assert {line["time_seconds"] for line in lines} == {"0.8", "1.0", "1.25"}
    assert from_json(texts.formatted(results, "json")) == results


def test_failures_are_in_the_table_and_below_it(run):
    crash = Behaviour(signal=11, stderr="first\nfree(): invalid pointer\n")
    results = run(typical() | {"tsmalloc": crash}).results
    report = texts.report(results, 200)
    assert lines_of(results)["one", "time"].split().count("failed") == 1
    mentions(report, "FAILED one: tsmalloc: SIGSEGV (2 of 2 runs", "| free(): invalid pointer")
    time, *_ = bench_text.headline(results.suite)
    assert time.endswith("result in 2")


def test_a_mean_that_lacks_a_workload_says_so(run):
    """The second workload's runs of `other` fail: in the simulation, every second run."""
    flips = tuple((n, Behaviour(exit_code=3) if n % 2 else prints(1.25)) for n in range(1, 9))
    results = run(typical() | {"other": prints(1.25, changes=flips)}).results
    mean = lines_of(results)["geometric mean", "time"]
    assert mean.rstrip().endswith("1.25 ±0% (1 of 2)")


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_terminal_gets_a_compact_table(run, width):
    report = texts.report(run().results, width, colours=True)
    table = [line for line in report.splitlines() if " time " in line and "tsmalloc at" not in line]
    assert len(table) == 3
    assert all(Console(width=500).measure(line).maximum <= width + 20 for line in table)
    assert all("±" not in line and "…" not in line for line in table)
