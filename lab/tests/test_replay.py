"""`tsmalloc replay` with simulated replays: what it runs, saves, finds and writes."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from conftest import Behaviour, SimulatedExecutor, run_request
from refusals import mentions, refused
from replay_fixtures import (
    CALLS,
    MIB,
    PROGRAM,
    behaviour,
    latency,
    line,
    looker,
    options,
    replayed,
    stride,
)

from tsmlab import records, report, texts
from tsmlab.allocators import file_sha256
from tsmlab.errors import UserError
from tsmlab.metrics import PEAK_MEMORY, TIME
from tsmlab.report import figures, writing
from tsmlab.report.theme import REQUESTED
from tsmlab.stats import Verdict
from tsmlab.traces import replay_text
from tsmlab.traces.files import Image, Trace
from tsmlab.traces.replay_results import (
    Latency,
    ReplayLine,
    ThreadShare,
    by_trace,
    replays_of,
)
from tsmlab.traces.replaying import AT_PEAK, OVER_TIME, SETTLED, ReplayExecutor, command_of


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "work.tstrace"


def only(*given, **more):
    (found,) = replays_of(replayed(*given, **more).results)
    return found


# --- one replay -----------------------------------------------------------------------------------


def measured(printed, tmp_path, words=(str(PROGRAM), "--schedule", "asap", "x.tstrace"), **changes):
    executor = SimulatedExecutor({"glibc": Behaviour(stdout=printed, seconds=2.0, **changes)})
    return ReplayExecutor(executor, PROGRAM).run(run_request(*words, stdout=tmp_path / "stdout"))


def test_time_and_memory_are_what_replay_says_of_itself(tmp_path):
    found = measured(json.dumps(line(overhead=1.5)), tmp_path)
    assert found.wall_ns == 50_000_000
    assert found.peak_rss_bytes == 3 * MIB
    assert found.extra == {SETTLED: 200_000.0, AT_PEAK: 0.5, OVER_TIME: 0.5}
    assert found.raw["process"]["wall_ns"] == 2_000_000_000
    assert found.raw["replay"]["checksum"] == "00000000deadbeef"


def test_another_program_and_a_failed_replay_are_left_as_they_are(tmp_path):
    failed = measured(json.dumps(line()), tmp_path, exit_code=2)
    other = measured("42\n", tmp_path, words=("/bin/true",))
    for found in (failed, other):
        assert (found.wall_ns, found.extra) == (2_000_000_000, {})


@pytest.mark.parametrize("printed", ["", "no JSON", '{"schema": "tsmalloc-replay/9"}', "[1]"])
def test_an_answer_in_another_form_names_the_remedy(printed, tmp_path):
    with refused(remedy="make"):
        measured(printed, tmp_path)


def test_fragmentation_is_told_by_the_peaks_and_over_time():
    samples = [[0, 100, 400, 0, None, None], [1, 300, 400, 0, None, None]]
    raw = line(samples=samples, peak_resident_bytes=600, settled_resident_bytes=None)
    raw["planned"] = raw["planned"] | {"peak_live_bytes": 400}
    found = ReplayLine(raw)
    assert found.at_peak == pytest.approx(0.5)  # 600 of 400
    assert found.over_time == pytest.approx(1.0)  # 800 of 400
    assert found.settled_resident_bytes == 300_000, "without idling, what is left after freeing"
    another_order = ReplayLine(raw | {"schedule": "stride", "peak_live_bytes": 300})
    assert another_order.at_peak == pytest.approx(1.0), "what was live at once in this order"
    nothing = line(samples=[[0, 0, 400, 0, None, None]])
    assert ReplayLine(nothing).over_time is None


def test_quantiles_are_upper_ends_of_buckets_and_never_above_the_longest_call():
    one = latency((10, 500), (20, 489), (50, 10), (100, 1)) | {"max_ns": 95}
    assert Latency.of("free", [one]) == Latency("free", 1000, 10, 50, 50, 95, 95)
    other = latency((10, 999), (512, 1)) | {"max_ns": 400}
    assert Latency.of("free", [one, other]) == Latency("free", 2000, 10, 20, 50, 400, 400)


# --- the command line of replay -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "has", "lacks"),
    [
        ("asap", {"--samples", "--settle", "--touch"}, {"--tickets", "--quantum", "--seed"}),
        ("recorded", {"--samples"}, {"--tickets", "--quantum", "--seed"}),
        ("round-robin", {"--quantum"}, {"--tickets", "--seed"}),
        ("lottery", {"--quantum", "--tickets", "--seed"}, set()),
        ("stride", {"--quantum", "--tickets"}, {"--seed"}),
    ],
)
def test_each_schedule_is_told_what_concerns_it(schedule, has, lacks):
    asked = options([], ["glibc"], tickets="3,2,1", quantum=5, latency=True, verify=True)
    words = command_of(asked, schedule, Path("/x.tstrace"), PROGRAM)
    assert words[:3] == (str(PROGRAM), "--schedule", schedule)
    assert words[-1] == "/x.tstrace"
    assert {"--latency", "--verify"} | has <= set(words)
    assert not lacks & set(words)
    for option, value in (("--tickets", "3,2,1"), ("--quantum", "5"), ("--seed", "7")):
        if option in words:
            assert words[words.index(option) + 1] == value


# --- the flow -------------------------------------------------------------------------------------


def test_each_trace_is_replayed_under_each_schedule(tmp_path):
    traces = [tmp_path / "one.tstrace", tmp_path / "two.tstrace"]
    behaviours = {"glibc": behaviour(line()), "tsmalloc": behaviour(line(1.25))}
    executor = SimulatedExecutor(behaviours)
    outcome = replayed(
        traces, behaviours, executor, schedules=("asap", "stride"), image=0, window=0
    )
    replays = replays_of(outcome.results)
    assert [(r.trace.name, r.schedule) for r in replays] == [
        ("one", "asap"), ("one", "stride"), ("two", "asap"), ("two", "stride"),
    ]  # fmt: skip
    assert [own[0].trace.name for own in by_trace(outcome.results)] == ["one", "two"]
    assert {r.command[-1] for r in executor.requests} == set(map(str, traces))
    for asked in executor.requests:
        assert asked.command[-5:-1] == ("--image", "0", "--window", "0")
    assert replays[0].comparison.command[-1] == "one.tstrace", "no folder in what is kept"


def test_it_is_a_comparison_with_its_verdicts(trace):
    behaviours = {
        "glibc": behaviour(line(1.5)),
        "tsmalloc": behaviour(line(1.25, wall_ns=40_000_000)),
    }
    found = only(trace, behaviours, rounds=6)
    comparison = found.comparison
    rows = {row.allocator: row.metrics for row in comparison.analysis.rows}
    assert rows["tsmalloc"][TIME].median == 0.04
    assert rows["tsmalloc"][TIME].verdict is Verdict.BETTER
    assert rows["tsmalloc"][PEAK_MEMORY].median == 2.5 * MIB
    assert rows["glibc"][AT_PEAK].median == 0.5
    phases = [s.phase for s in comparison.samples]
    assert (phases.count("warmup"), phases.count("measured")) == (3, 18)
    assert len({s.padding_bytes for s in comparison.samples}) > 2
    assert not {t.code for t in comparison.warnings} & {"several-processes", "short-runs"}
    # Real threads are not expected to repeat.
    assert found.findings[0].same_addresses is found.findings[0].same_memory is None


def test_what_was_replayed_is_told(trace):
    told = only(trace, {"glibc": behaviour(line(children=[{"image": 1}]))}).trace
    assert (told.name, told.bytes, told.threads, told.processes) == ("work", 7, 3, 2)
    assert told.all_calls == sum(CALLS.values()) == 225
    assert told.peak_live_bytes == 2 * MIB
    assert told.sha256 == file_sha256(trace)


def test_programs_that_are_not_replayed_are_named_the_busiest_first(trace):
    look = looker((0, 264), (1, 9), (3, 30_000), (4, 10), (5, 11))
    results = replayed(trace, {"glibc": behaviour(line())}, look=look, image=2).results
    told = replays_of(results)[0].trace
    assert (told.program.number, told.program.name, told.program.events) == (2, "perl", 225)
    assert [each.number for each in told.others] == [3, 0, 5, 4, 1]
    (said,) = [text for text in replay_text.heading(replays_of(results)) if "--image" in text]
    assert re.findall(r"image (\d), ([\d,]+) events", said) == [
        *(("2", "225"), ("3", "30,000"), ("0", "264"), ("5", "11"))
    ]
    assert "2 more" in said
    alone = replayed(trace, {"glibc": behaviour(line())}).results
    assert not any("--image" in text for text in replay_text.heading(replays_of(alone)))


def test_a_schedule_that_repeats_is_run_twice_without_warming_up(trace):
    printed = stride(peak_live_bytes=300)
    behaviours = {"glibc": behaviour(printed), "tsmalloc": behaviour(printed)}
    found = only(trace, behaviours, rounds=None, schedules=("stride",))
    samples = found.comparison.samples
    phases = [(s.phase, s.allocator) for s in samples]
    assert phases.count(("measured", "tsmalloc")) == 2
    assert not any(phase == "warmup" for phase, _ in phases)
    assert "few-rounds" not in {t.code for t in found.comparison.warnings}
    assert {s.padding_bytes for s in samples} == {0}, "the same stack in each run"
    assert found.ticks == 6
    assert found.shares[2] == ThreadShare(2, 1, 0, 2, 0.333333)
    # The lower bound is of the order in which the calls were made.
    assert (found.lower_bound_bytes, found.trace.peak_live_bytes) == (300, 2 * MIB)


def test_whether_runs_were_the_same_is_found_run_by_run(trace):
    moved = stride(checksum="1111111111111111")
    grown = stride()
    grown["samples"] = [*grown["samples"][:-1], [225, MIB, 2 * MIB, 0, 2 * MIB, MIB]]
    behaviours = {
        "glibc": behaviour(stride()),
        "moves": behaviour(stride(), changes=((1, behaviour(moved)),)),
        "grows": behaviour(stride(), changes=((2, behaviour(grown)),)),
    }
    found = only(trace, behaviours, schedules=("stride",))
    same = {f.allocator: (f.same_addresses, f.same_memory) for f in found.findings}
    assert same == {"glibc": (True, True), "moves": (False, True), "grows": (True, False)}


def test_findings_are_medians_of_the_measured_runs(trace):
    # The reference's trial and warm-up are runs 0, 1 and 2; then two in each round.
    overheads = (9.0, 9.0, 9.0, 1.1, 1.3, 1.2, 1.2, 1.9, 1.0)
    changes = tuple((run, behaviour(line(each))) for run, each in enumerate(overheads))
    (finding,) = only(trace, {"glibc": behaviour(line(), changes=changes)}).findings
    assert finding.runs == 6
    assert finding.over_time == pytest.approx(0.2, abs=1e-6)
    assert finding.peak_bytes == pytest.approx(2.4 * MIB, abs=2)


def test_ctrl_c_keeps_what_was_replayed(tmp_path):
    behaviours = {"glibc": behaviour(line())}
    traces = [tmp_path / "one.tstrace", tmp_path / "two.tstrace"]

    def interrupted(at):
        found = replayed(traces, behaviours, SimulatedExecutor(behaviours, interrupt_at_run=at))
        assert found.results.interrupted
        return [len(r.comparison.samples) for r in replays_of(found.results)]

    runs = 1 + 2 + 3 * 2  # of one trace
    assert interrupted(runs + 5) == [runs, 5]
    assert interrupted(runs) == [runs]  # in the trial of the second
    with pytest.raises(KeyboardInterrupt):
        interrupted(0)


def test_a_second_trace_that_is_none_keeps_what_was_replayed(tmp_path):
    def picky(path):
        if path.name == "two.tstrace":
            raise UserError("two.tstrace is not a trace.", "Record it anew.")
        return looker()(path)

    traces = [tmp_path / "one.tstrace", tmp_path / "two.tstrace"]
    outcome = replayed(traces, {"glibc": behaviour(line())}, look=picky)
    assert "is not a trace" in outcome.error.message
    assert [r.trace.name for r in replays_of(outcome.results)] == ["one"]
    with refused("two.tstrace"):
        replayed(list(reversed(traces)), {"glibc": behaviour(line())}, look=picky)


def test_two_traces_of_one_name_are_told_apart(tmp_path):
    traces = [tmp_path / folder / "x.tstrace" for folder in ("a", "b")]
    for each in traces:
        each.parent.mkdir()
        each.write_text(f"the trace {each.parent.name}")
    results = replayed(traces, {"glibc": behaviour(line())}).results
    assert [own[0].trace.name for own in by_trace(results)] == [str(each) for each in traces]
    assert "-replay-x.tstrace-" in records.save(results, [tmp_path]).name
    assert [len(own) for own in by_trace(results)] == [1, 1]


# --- traces ---------------------------------------------------------------------------------------


def test_a_replay_begins_with_the_program_whose_family_has_most_events():
    images = tuple(
        Image(number, birth, parent, 0, "p", "libc.so.6", events, 1, 0, "exited")
        for number, (birth, parent, events) in enumerate(
            [("root", None, 50), ("exec", None, 40), ("fork", 1, 20), ("orphan", None, 30)]
        )
    )
    trace = Trace(Path("t"), 1, True, images, ())
    assert trace.chosen(None).number == 1
    assert trace.family(1) == {1, 2}
    assert trace.busiest.number == 0
    assert trace.chosen(3).number == 3
    for number, remedy in ((2, "image 1"), (4, "3")):
        with refused(f"image {number}", remedy=remedy):
            trace.chosen(number)


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
