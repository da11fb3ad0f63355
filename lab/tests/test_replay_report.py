"""Reports of replays: the terminal's text, Markdown, CSV, the page, its figures."""

import csv
import io
import re
from pathlib import Path

import pytest
from refusals import mentions, refused
from replay_fixtures import MIB, behaviour, latency, line, replayed, stride

from tsmlab import records, report, texts
from tsmlab.commands import replay as command
from tsmlab.report import figures, writing
from tsmlab.report.theme import REQUESTED
from tsmlab.traces.replay_results import replays_of


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "work.tstrace"


def timed():
    return {"malloc": latency((32, 990), (1024, 10)), "free": latency((16, 1000))}


@pytest.fixture(scope="module")
def one(trace):
    """A trace at full speed, with latencies."""
    behaviours = {
        "glibc": behaviour(line(1.5, latency=timed())),
        "tsmalloc": behaviour(line(1.25, wall_ns=40_000_000, latency=timed())),
    }
    return replayed(trace, behaviours, rounds=6, latency=True).results


@pytest.fixture(scope="module")
def schedules(trace):
    """A trace under the three schedules; one allocator does not repeat."""
    behaviours = {
        "glibc": behaviour(stride(1.5)),
        "lock-best": behaviour(stride(1.1)),
        "odd": behaviour(stride(1.2), changes=((1, behaviour(stride(1.3, checksum="1"))),)),
    }
    names = ("round-robin", "lottery", "stride")
    return replayed(trace, behaviours, rounds=None, schedules=names).results


# --- text -----------------------------------------------------------------------------------------


def test_one_replay_has_times_verdicts_memory_and_latencies(one):
    text = texts.report(one, 120)
    assert re.search("replay of work: 225 calls of 3 threads.* 2.00M", text)
    assert "asap: 6 rounds, 18 runs, seed 7" in text
    assert "tsmalloc: -20.0%" in " ".join(text.split())
    memory = next(row for row in text.splitlines() if row.split()[:2] == ["tsmalloc", "2.50M"])
    assert memory.split() == ["tsmalloc", "2.50M", "1.25M", "195K", "25.00%", "25.00%"]
    bound = next(row for row in text.splitlines() if row.startswith("lower bound"))
    assert bound.split() == ["lower", "bound", "2.00M", "-", "-", "-", "-"]
    rows = [row.split() for row in text.splitlines() if row.startswith(("malloc", "free"))]
    assert ["malloc", "glibc", "12,000"] in [row[:3] for row in rows], "twice in each round"
    assert " ".join(rows[0][3:]) == "32.0 ns 32.0 ns 1.02 µs 1.02 µs 1.02 µs"
    assert "tsmalloc run tsmalloc -- PROGRAM" in text
    assert "addresses" not in text, "real threads are not expected to repeat"


def test_what_was_left_out_or_repeats_or_has_one_thread_is_told(trace):
    behaviours = {"glibc": behaviour(stride()), "odd": behaviour(stride())}
    results = replayed(trace, behaviours, rounds=None, schedules=("stride",)).results
    text = texts.report(results, 120)
    for what in ("addresses", "memory at every sample"):
        assert re.search(f"{what}: the same .* 2 allocators", text)
    assert "stride: shares of 6 ticks" in text
    thread = next(row for row in text.splitlines() if row.split()[:2] == ["0", "3"])
    assert thread.split() == ["0", "3", "4", "3.4", "1.1765", "0"]
    results = replayed(trace, behaviours, rounds=1, schedules=("stride",)).results
    assert re.search(r"addresses: the same .* glibc\n", texts.report(results, 120))
    printed = line()
    printed["planned"] = printed["planned"] | {"left_out": 25}
    results = replayed(trace, {"glibc": behaviour(printed)}).results
    assert "skipped: 25 calls" in texts.report(results, 120)
    alone = stride()
    alone["planned"] = alone["planned"] | {"threads": 1}
    results = replayed(
        trace, {"glibc": behaviour(alone)}, rounds=None, schedules=("lottery", "stride")
    ).results
    assert "one thread" in texts.report(results, 120)


def test_schedules_stand_side_by_side(schedules):
    text = texts.report(schedules, 140)
    head = next(row for row in text.splitlines() if row.startswith("allocator"))
    assert head.split() == ["allocator", "round-robin", "lottery", "stride"]
    best = next(row for row in text.splitlines() if row.startswith("lock-best"))
    assert best.count("10.00% (10.00%)") == 3
    odd = next(row for row in text.splitlines() if row.startswith("odd"))
    assert odd.count("(differs)") == 1, "it changes with its second run, under the first schedule"
    assert re.search("round-robin: addresses: differ .* odd; .* 2", text)
    assert re.search("lottery, stride: addresses: the same .* 3 allocators", text)
    assert "one thread" not in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_table_is_cut(one, schedules, width):
    for results in (one, schedules):
        assert "…" not in texts.report(results, width)


def test_markdown_has_the_same_tables(one, schedules):
    text = texts.markdown(one)
    mentions(text, "| tsmalloc | 2.50M | 1.25M | 195K | 25.00% | 25.00% |", "Measured on")
    assert "| lock-best | 10.00% (10.00%) |" in texts.markdown(schedules)


def test_csv_has_a_line_for_each_run(schedules):
    rows = list(csv.DictReader(io.StringIO(texts.formatted(schedules, "csv"))))
    assert len(rows) == sum(len(r.samples) for r in schedules.parts)
    assert {row["schedule"] for row in rows} == {"round-robin", "lottery", "stride"}
    best = [row for row in rows if row["allocator"] == "lock-best"]
    fragmentation = [float(row["fragmentation_over_time"]) for row in best]
    assert fragmentation == pytest.approx([0.1] * len(best), abs=1e-6)


def test_a_failure_is_told_under_its_schedule(trace):
    behaviours = {
        "glibc": behaviour(stride()),
        "bad": behaviour(stride(), exit_code=2, stderr="replay: 3 blocks are corrupt\n"),
    }
    results = replayed(trace, behaviours, rounds=None, schedules=("lottery", "stride")).results
    text = texts.report(results, 120)
    mentions(text, "stride: FAILED bad: exit 2", "3 blocks are corrupt")


# --- the page -------------------------------------------------------------------------------------


def titles(results):
    return [figure.name for figure in writing.of(results).figures]


def test_replays_have_their_figures(one, schedules):
    assert titles(one)[0] == "work-memory"
    assert {"ratios", "tradeoff", "distribution"} <= set(titles(one))
    assert titles(schedules) == ["work-memory"]


def test_curves_hold_the_samples(schedules):
    drawn = {curve.name: curve for curve in figures.curves(replays_of(schedules)[0])}
    assert [x for x, _ in drawn["lock-best"].points] == [0, 100, 225]
    assert [y for _, y in drawn["requested"].points] == [MIB, 2 * MIB, MIB]
    assert drawn["requested"].style == REQUESTED


def test_the_page_stands_alone_and_has_all_files(one, schedules, tmp_path):
    for number, results in enumerate((one, schedules)):
        kept = records.save(results, [tmp_path])
        page = report.write(report.read(kept), tmp_path / f"page{number}")
        text = page.read_text()
        assert "Replay of work" in text
        for name in titles(results):
            assert f'id="{name}"' in text
        assert "- replay of work" in (page.parent / "results.md").read_text()
        assert "work,asap" in (page.parent / "runs.csv").read_text() or number == 1


# --- options --------------------------------------------------------------------------------------


def given(**changes):
    """The parameters as click would pass them."""
    names = ["tickets", "quantum", "seed", "rounds", "timeout_seconds", "cpus", "image", "window"]
    values = {
        "schedule": "asap", "extra": (), "chosen": ("glibc",), "reference": "glibc",
        "time_budget_seconds": 120.0, "margin": 0.01, "touch": "page", "verify": False,
        "latency": False, "settle_seconds": 0.1,
    }  # fmt: skip
    return dict.fromkeys(names) | values | changes


@pytest.mark.parametrize(
    "contradiction",
    [
        {"tickets": "3,2,1"},
        {"tickets": "3,2,1", "schedule": "round-robin"},
        {"quantum": 5},
        {"quantum": 5, "schedule": "recorded"},
    ],
)
def test_options_that_mean_nothing_are_refused(contradiction):
    with refused(f"--{next(iter(contradiction))}", remedy="--schedule"):
        command.options_of([Path("x.tstrace")], given(**contradiction))


def test_all_schedules_are_the_three_that_share():
    options = command.options_of([Path("x")], given(schedule="all", tickets="2,1", seed=5))
    assert options.schedules == ("round-robin", "lottery", "stride")
    assert (options.tickets, options.seed, options.rounds) == ("2,1", 5, None)
    assert options.rule("stride").runs == 2
    assert command.options_of([Path("x")], given()).rule("asap").runs is None
