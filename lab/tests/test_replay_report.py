"""Reports of replays: the terminal's text, Markdown, CSV, the page, its figures."""

import csv
import io
import re

import pytest
from refusals import mentions
from replay_fixtures import MIB, behaviour, latency, line, replayed, stride

from tsmlab import records, report, texts
from tsmlab.report import figures, writing
from tsmlab.report.theme import REQUESTED
from tsmlab.traces.replay_results import replays_of


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "work.tstrace"


TIMED = {"malloc": latency((32, 990), (1024, 10)), "free": latency((16, 1000))}


def text_of(trace, behaviours, width=120, **changes):
    return texts.report(replayed(trace, behaviours, **({"rounds": None} | changes)).results, width)


def row(text, *begin):
    """The words of the first line that begins with these."""
    lines = (line.split() for line in text.splitlines())
    return next(words for words in lines if words[: len(begin)] == list(begin))


@pytest.fixture(scope="module")
def one(trace):
    """A trace at full speed, with latencies."""
    behaviours = {
        "glibc": behaviour(line(1.5, latency=TIMED)),
        "tsmalloc": behaviour(line(1.25, wall_ns=40_000_000, latency=TIMED)),
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


def test_one_replay_has_times_verdicts_memory_and_latencies(one):
    text = texts.report(one, 120)
    assert re.search("replay of work: 225 calls of 3 threads.* 2.00M", text)
    assert "asap: 6 rounds, 18 runs, seed 7" in text
    assert "tsmalloc: -20.0%" in " ".join(text.split())
    assert row(text, "tsmalloc", "2.50M")[2:] == ["1.25M", "195K", "25.00%", "25.00%"]
    assert row(text, "lower", "bound")[2:] == ["2.00M", "-", "-", "-", "-"]
    assert row(text, "malloc", "glibc")[2] == "12,000", "twice in each round"
    times = " ".join(row(text, "malloc")[3:])
    assert times == "32.0 ns 32.0 ns 1.02 µs 1.02 µs 1.02 µs"
    assert "tsmalloc run tsmalloc -- PROGRAM" in text
    assert "addresses" not in text, "real threads are not expected to repeat"


def test_what_was_left_out_or_repeats_or_has_one_thread_is_told(trace):
    behaviours = {"glibc": behaviour(stride()), "odd": behaviour(stride())}
    text = text_of(trace, behaviours, schedules=("stride",))
    for what in ("addresses", "memory at every sample"):
        assert re.search(f"{what}: the same .* 2 allocators", text)
    assert "stride: shares of 6 ticks" in text
    assert row(text, "0", "3") == ["0", "3", "4", "3.4", "1.1765", "0"]
    text = text_of(trace, behaviours, rounds=1, schedules=("stride",))
    assert re.search(r"addresses: the same .* glibc\n", text)
    printed, alone = line(), stride()
    printed["planned"] = printed["planned"] | {"left_out": 25}
    assert "skipped: 25 calls" in text_of(trace, {"glibc": behaviour(printed)}, rounds=3)
    alone["planned"] = alone["planned"] | {"threads": 1}
    text = text_of(trace, {"glibc": behaviour(alone)}, schedules=("lottery", "stride"))
    assert "one thread" in text
    bad = behaviour(stride(), exit_code=2, stderr="replay: 3 blocks are corrupt\n")
    text = text_of(trace, behaviours | {"bad": bad}, schedules=("lottery", "stride"))
    mentions(text, "stride: FAILED bad: exit 2", "3 blocks are corrupt")


def test_schedules_stand_side_by_side(schedules):
    text = texts.report(schedules, 140)
    assert row(text, "allocator") == ["allocator", "round-robin", "lottery", "stride"]
    assert row(text, "lock-best")[1:] == ["10.00%", "(10.00%)"] * 3
    assert row(text, "odd").count("(differs)") == 1, "with its second run, under the first schedule"
    assert re.search("round-robin: addresses: differ .* odd; .* 2", text)
    assert re.search("lottery, stride: addresses: the same .* 3 allocators", text)
    assert "one thread" not in text


def test_no_table_is_cut_and_markdown_has_the_same(one, schedules):
    for width in (40, 80, 200):
        assert "…" not in texts.report(one, width) + texts.report(schedules, width)
    told = ("| tsmalloc | 2.50M | 1.25M | 195K | 25.00% | 25.00% |", "Measured on")
    mentions(texts.markdown(one), *told)
    assert "| lock-best | 10.00% (10.00%) |" in texts.markdown(schedules)


def test_csv_has_a_line_for_each_run(schedules):
    rows = list(csv.DictReader(io.StringIO(texts.formatted(schedules, "csv"))))
    assert len(rows) == sum(len(r.samples) for r in schedules.parts)
    assert {row["schedule"] for row in rows} == {"round-robin", "lottery", "stride"}
    best = [row for row in rows if row["allocator"] == "lock-best"]
    fragmentation = [float(row["fragmentation_over_time"]) for row in best]
    assert fragmentation == pytest.approx([0.1] * len(best), abs=1e-6)


def test_curves_hold_the_samples(schedules):
    drawn = {curve.name: curve for curve in figures.curves(replays_of(schedules)[0])}
    assert [x for x, _ in drawn["lock-best"].points] == [0, 100, 225]
    assert [y for _, y in drawn["requested"].points] == [MIB, 2 * MIB, MIB]
    assert drawn["requested"].style == REQUESTED


def test_the_page_has_its_figures_and_all_files(one, schedules, tmp_path):
    for number, (results, expected) in enumerate(
        ((one, {"work-memory", "ratios", "tradeoff", "distribution"}), (schedules, {"work-memory"}))
    ):
        names = {figure.name for figure in writing.of(results).figures}
        assert names == expected if results is schedules else names >= expected
        kept = records.save(results, [tmp_path])
        page = report.write(report.read(kept), tmp_path / f"page{number}")
        text = page.read_text()
        mentions(text, "Replay of work", *(f'id="{name}"' for name in names))
        assert "- replay of work" in (page.parent / "results.md").read_text()
        assert "work,asap" in (page.parent / "runs.csv").read_text() or number == 1
