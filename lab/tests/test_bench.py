"""A run of the suite and its report, with simulated programs."""

import csv
import io
import itertools
import sys
from pathlib import Path

import pytest
from conftest import Behaviour, SimulatedExecutor, World
from experiment_fixtures import MIB, prints
from refusals import mentions
from rich.console import Console

from tsmlab import bench_text, texts
from tsmlab.bench import MIN_TIMEOUT_SECONDS, TIMEOUT_FACTOR, Options, bench
from tsmlab.journal import NullJournal
from tsmlab.progress import SilentReporter
from tsmlab.study import from_json
from tsmlab.workloads import Workload

NAMES = ("tsmalloc", "glibc", "other")


# The program must be a file, since it is hashed; the simulation does not start it.
WORKLOADS = tuple(
    Workload(name, f"{name} stresses", (sys.executable,), 1, "seconds", True)
    for name in ("one", "two")
)


@pytest.fixture
def run():
    """Runs a suite in a simulated world."""

    def simulate(behaviours=None, executor=None, warm=lambda size: size):
        executor = executor or SimulatedExecutor(behaviours or typical())
        names = list(executor.behaviours)
        options = Options(
            suite=Path("suite.toml"),
            workloads=WORKLOADS,
            allocators=tuple(World.allocator(name) for name in names),
            peers=tuple(name for name in names if name != "tsmalloc"),
            candidate="tsmalloc",
            seed=7,
            rounds=3,
        )
        return bench(options, executor, SilentReporter(), NullJournal(executor.clock), warm)

    return simulate


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


def test_every_round_has_every_workload_under_every_allocator(run):
    executor = SimulatedExecutor(typical())
    results = run(executor=executor).results
    probes = [s.allocator for s in results.comparison.samples if s.phase == "probe"]
    assert probes == ["glibc"] * 2
    hung = max(MIN_TIMEOUT_SECONDS, 1.5 * TIMEOUT_FACTOR)
    assert results.comparison.settings.timeout_seconds == hung
    all_orders = []
    for name in ("one", "two"):
        found = [(s.round, s.allocator) for s in measured(results, name)]
        assert sorted(found) == sorted(itertools.product((1, 2, 3), NAMES))
        all_orders.append([[a for n, a in found if n == number] for number in (1, 2, 3)])
        assert len(set(map(tuple, all_orders[-1]))) > 1
    assert all_orders[0] != all_orders[1]
    # Workloads alternate: an allocator's runs of one workload are not all at the same time.
    starts = {n: [s.started_seconds for s in measured(results, n)] for n in ("one", "two")}
    assert starts["one"][2] < starts["two"][0] < starts["one"][3]
    assert results.stop.reason == "runs"


def test_memory_is_warmed_by_what_the_trials_needed(run):
    behaviours = typical() | {"glibc": prints(1.0, peak_bytes=1000 * MIB)}
    executor = SimulatedExecutor(behaviours)
    warmed: list[tuple[int, int]] = []

    def warm(size):
        warmed.append((size, len(executor.requests)))
        return size

    run(executor=executor, warm=warm)
    assert warmed == [(4000 * MIB, 2)]


def test_a_workload_without_the_promised_line_has_failed(run):
    mute = Behaviour(stdout="operations: 5\n")
    results = run(typical() | {"tsmalloc": mute}).results
    failure = results.suite.analysis.workloads[0].score("tsmalloc").failure
    assert (failure.kind, "`seconds: NUMBER`" in failure.text) == ("metric", True)


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
    time, memory = bench_text.headline(results.suite)
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
    assert len(measured(results, "one")) == 3 * 2 + 2, "left alone after two failures"
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
