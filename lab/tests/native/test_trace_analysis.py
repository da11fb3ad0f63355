"""`tsmalloc analyze`: each figure compared with a naive computation from the same events; tables
and pages.
"""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import prompt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt import ran
from refusals import mentions, refused

from tsmlab import cli, paths, report
from tsmlab.traces import analysis_text, files
from tsmlab.traces.analysing import Analyst
from tsmlab.traces.analysis import SizeBucket, TraceAnalysis, analyse
from tsmlab.traces.distributions import SizeTable, bucket, sums, upper
from tsmlab.traces.files import ALIGNED, EVENT, FREE, REALLOC, Events, Image, Trace
from tsmlab.traces.objects import Damaged, Slots
from tsmlab.wording import quantity


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    trace = tmp_path_factory.mktemp("traces") / "made-up.tstrace"
    words = ("events=30000", "threads=4", "forks=2", "seed=11")
    ran(paths.tool("synthetic_trace"), trace, *words, status=0)
    return trace


# --- a naive computation --------------------------------------------------------------------------


class Oracle:
    """The definitions of docs/formats/trace.md taken literally, one event after the other."""

    def __init__(self, inherited):
        self.live = {
            slot: {"size": size, "thread": None, "resizes": 0} for slot, size in inherited.items()
        }
        self.inherited = len(inherited)
        self.counts: Counter[str] = Counter()
        self.lifetimes: list[tuple[int, int, int, int]] = []
        self.chains: list[tuple[int, int, int]] = []
        self.sizes: Counter[int] = Counter()
        self.threads: dict[int, Counter[str]] = {}
        self.latest: dict[int, int] = {}  # the event of each thread's latest allocation
        self.clock = 0
        self.live_bytes = self.most = sum(inherited.values())
        self.peak: tuple[int, Counter[int]] | None = None

    def add(self, number, event):
        kind, slot, size = int(event["kind"]), int(event["slot"]), int(event["size"])
        thread, now = int(event["thread"]), int(event["time_ns"])
        own = self.threads.setdefault(thread, Counter())
        own["events"] += 1
        if kind <= ALIGNED:
            assert slot not in self.live
            self.clock += size
            self.sizes[size] += 1
            self.latest[thread] = number
            own["allocations"] += 1
            self.live_bytes += size
            self.live[slot] = {"size": size, "first": size, "thread": thread, "event": number,
                               "ns": now, "clock": self.clock, "resizes": 0}  # fmt: skip
        elif kind == REALLOC:
            item = self.live[slot]
            step = size - item["size"]
            self.clock += max(step, 0)
            self.live_bytes += step
            self.counts["grown" if step > 0 else "shrunk" if step else "unchanged"] += 1
            self.counts["grown_bytes"] += max(step, 0)
            item["size"] = size
            item["resizes"] += 1
        elif kind == FREE:
            self.live_bytes -= self.live[slot]["size"]
            self._free(number, self.live.pop(slot), thread, now, own)
        if self.live_bytes > self.most:
            self.most = self.live_bytes
            self.peak = (number, Counter(each["size"] for each in self.live.values()))

    def _free(self, number, item, thread, now, own):
        own["frees"] += 1
        if item["thread"] is None:
            self.counts["inherited_frees"] += 1
            return
        self.counts["frees"] += 1
        if item["thread"] != thread:
            self.counts["cross_thread_frees"] += 1
            own["foreign_frees"] += 1
        elif self.latest[thread] == item["event"]:
            self.counts["temporaries"] += 1
        self.lifetimes.append(
            (number - item["event"], max(now - item["ns"], 0), self.clock - item["clock"],
             item["size"])
        )  # fmt: skip
        self.end_chain(item)

    def end_chain(self, item):
        if item["resizes"] and item["thread"] is not None:
            self.chains.append((item["resizes"], item["first"], item["size"]))


def compare(found, oracle):
    left = list(oracle.live.values())
    for item in left:
        oracle.end_chain(item)
    for name in ("frees", "inherited_frees", "cross_thread_frees", "temporaries"):
        assert found[name]["objects"] == oracle.counts[name], name
    assert found["grown_bytes"] == oracle.counts["grown_bytes"]
    for name in ("grown", "shrunk", "unchanged"):
        assert found["chains"][name] == oracle.counts[name], name
    assert found["inherited"]["objects"] == oracle.inherited
    own = [item["size"] for item in left if item["thread"] is not None]
    assert found["left"]["own"] == {"objects": len(own), "bytes": sum(own)}
    assert found["left"]["inherited"]["objects"] == len(left) - len(own)
    if oracle.peak is None:
        assert found["peak"]["event"] is None
    else:
        number, sizes = oracle.peak
        assert found["peak"]["event"] == number
        assert found["peak"]["bytes"] == oracle.most
        assert found["peak"]["objects"] == sizes.total()
        heaviest = sorted(sizes.items(), key=lambda each: (-each[0] * each[1], each[0]))[:100]
        assert found["peak"]["by_size"] == [[s, n, s * n] for s, n in heaviest if s]
    for place, name in enumerate(("events", "ns", "bytes")):
        values = [each[place] for each in oracle.lifetimes]
        rows = found["lifetimes"][name]
        assert rows["max"] == max(values, default=0)
        for share, quantile in ((0.5, rows["p50"]), (0.99, rows["p99"])):
            if values:
                exact = sorted(values)[max(0, -int(-share * len(values) // 1) - 1)]
                assert exact <= quantile <= max(exact * 33 / 32, exact + 1), name
    assert found["chains"]["objects"] == len(oracle.chains)
    assert found["chains"]["longest"] == max((each[0] for each in oracle.chains), default=0)
    assert found["sizes"]["distinct"] == len(oracle.sizes)
    assert {row[0]: row[1] for row in found["sizes"]["top"]}.items() <= oracle.sizes.items()
    for row in found["threads"]:
        expected = oracle.threads[row["thread"]]
        assert row["events"] == expected["events"]
        for name in ("allocations", "frees", "foreign_frees"):
            assert row[name]["objects"] == expected[name], name


@pytest.mark.parametrize("image", [0, 1, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_each_figure_is_that_of_a_naive_account(made_up, image, seed):
    """With chunks of any length, so that objects live within one and across several."""
    contents = files.read_whole_trace(made_up)
    parts: dict[int, list[Events]] = {0: [], 1: [], 2: []}
    inherited: dict[int, Slots] = {0: Slots()}
    for kind, number, _, events in files.chunks(made_up):
        if kind == files.IMAGE and number > 0:
            before = Slots()
            if parts[0]:
                whole = np.concatenate(parts[0])
                no_serials = np.zeros(len(whole), np.int64)
                before.apply(before.match_objects(whole, 0, no_serials), whole)
            inherited[number] = before.forked()
        if kind == files.EVENTS:
            parts[number].append(events)
    rows = inherited[image].rows
    living = np.flatnonzero(rows["lives"])
    oracle = Oracle({int(slot): int(rows["size"][slot]) for slot in living})
    analyst = Analyst(contents, image)
    analyst.begin(inherited[image])
    events, generator, at = np.concatenate(parts[image]), random.Random(seed), 0
    while at < len(events):
        length = generator.choice([1, 3, 50, 2000])
        analyst.add(at, events[at : at + length])
        for number, event in enumerate(events[at : at + length], at):
            oracle.add(number, event)
        at += length
    compare(analyst.answer(), oracle)


@pytest.fixture(scope="module")
def plausible(made_up):
    return analyse(made_up)


def test_threads_add_up():
    found = analyse(paths.data_dir() / "traces" / "streams.tstrace")
    assert found.threads_seen == len(found.threads) == 17
    allocated = sum(thread["allocations"]["objects"] for thread in found.threads)
    assert allocated == found.amount("allocations").objects
    given_away = sum(thread["given_away"]["objects"] for thread in found.threads)
    assert given_away == found.amount("cross_thread_frees").objects > 30_000


# --- distributions --------------------------------------------------------------------------------


@given(st.lists(st.integers(0, (1 << 62) - 1), min_size=1), st.sampled_from([0, 3, 5]))
def test_a_value_is_in_the_bucket_whose_bounds_hold_it(values, bits):
    for value, place in zip(values, bucket(np.array(values), bits), strict=True):
        assert value <= upper(int(place), bits)
        assert place == 0 or value > upper(int(place) - 1, bits)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1 << 57)), min_size=1))
def test_sums_are_exact(pairs):
    groups, values = (np.array(each) for each in zip(*pairs, strict=True))
    found = sums(groups, values, 4)
    assert [int(each) for each in found] == [
        sum(value for group, value in pairs if group == which) for which in range(4)
    ]


def rows_of(table):
    sizes, counts = table.counts()
    return {
        int(size): {name: int(each[place]) for name, each in counts.items()}
        for place, size in enumerate(sizes)
    }


def test_sizes_are_counted_one_by_one_or_by_bounds(monkeypatch):
    table = SizeTable("allocations", "resizes")
    table.add("allocations", np.array([5, 7, 5]))
    table.add("resizes", np.array([7]))
    five, seven = {"allocations": 2, "resizes": 0}, {"allocations": 1, "resizes": 1}
    assert rows_of(table) == {5: five, 7: seven}
    monkeypatch.setattr("tsmlab.traces.distributions.MAX_SIZES", 3)
    large = np.array([(1 << 21) + 1, (1 << 21) + 2])
    table.add("allocations", large)
    rows = rows_of(table)
    assert not table.is_exact
    assert (rows[5], rows[7]) == (five, seven)
    (bound,) = set(rows) - {5, 7}
    assert bound >= large.max()
    assert rows[bound]["allocations"] == 2


# --- contradictory events -------------------------------------------------------------------------


def event(kind, slot, generation=0, size=1):
    made = np.zeros(1, EVENT)
    made["kind"], made["slot"], made["generation"], made["size"] = kind, slot, generation, size
    return made


@pytest.mark.parametrize(
    "events",
    [
        [event(0, 0), event(0, 0)],
        [event(0, 0), event(0, 0, 1)],
        [event(FREE, 0)],
        [event(0, 0), event(FREE, 0), event(FREE, 0)],
        [event(0, 0), event(FREE, 0, 1)],
        [event(0, 0, 1)],
        [event(0, 0), event(FREE, 0), event(REALLOC, 0)],
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_events_that_make_no_sense_are_noticed(events, at_once):
    analyst = Analyst(trace_of(len(events)), 0)
    analyst.begin(Slots())
    parts = [np.concatenate(events)] if at_once else events
    with pytest.raises(Damaged):
        add_all(analyst, parts)


def add_all(analyst, parts):
    for number, each in enumerate(parts):
        analyst.add(number, each)


def trace_of(events):
    image = Image(0, "root", None, 0, "p", "a", events, 1, 0, "exited")
    return Trace(Path("t"), 1, True, (image,), ({"number": 0},))


def test_what_cannot_be_analysed_is_the_users_error(made_up, tmp_path):
    with refused("image 77", remedy="2"):
        analyse(made_up, image=77)
    cut = tmp_path / "cut.tstrace"
    cut.write_bytes(made_up.read_bytes()[:-300])
    with refused("truncated", remedy="record it again"):
        analyse(cut)


# --- text and pages -------------------------------------------------------------------------------


def test_tables_show_the_figures(plausible):
    assert 500 <= len(plausible.curve) <= 1000
    text = analysis_text.report(plausible, 120)
    mentions(
        text,
        f"{plausible.events:,} events",
        f"{plausible.peak.objects:,} objects",
        f"{plausible.amount('temporaries').objects:,}",
    )
    bound = next(line for line in text.splitlines() if line.startswith("lower bound"))
    assert bound.split()[2].startswith(quantity(plausible.peak.bytes, "bytes"))
    mentions(text, "Lifetimes", "Threads")
    assert analysis_text.markdown(plausible).count("| --: ") > 10
    unfinished = TraceAnalysis({**plausible.raw, "finished": False})
    assert "killed" in analysis_text.report(unfinished, 120)


def test_a_page_and_its_files(made_up, tmp_path, capsys):
    folder, mine = tmp_path / "report", tmp_path / "mine" / "index.html"
    assert cli.main(["analyze", str(made_up), "--report", str(folder)]) == 0
    assert "30,000 events" in capsys.readouterr().out
    text = (folder / "index.html").read_text(encoding="utf-8")
    for name in ("live", "sizes"):
        assert f'<figure id="{name}">' in text
    mine.parent.mkdir()
    mine.write_text("mine")
    assert cli.main(["analyze", str(made_up), "--report", str(mine.parent)]) == 1
    assert str(mine.parent) in capsys.readouterr().err
    assert mine.read_text() == "mine"


def test_json_that_was_printed_can_be_reported(made_up, tmp_path, capsys):
    assert cli.main(["analyze", str(made_up), "--json"]) == 0
    file = tmp_path / "analysis.json"
    file.write_text(capsys.readouterr().out)
    loaded = report.read(file)
    assert isinstance(loaded, TraceAnalysis)
    assert loaded.events == 30_000
    assert cli.main(["report", str(file), "-o", str(tmp_path / "pages")]) == 0
    file.write_text(file.read_text().replace('"events": 30000', '"events": "many"'))
    with refused("analysis.json is damaged"):
        report.read(file)


def test_notes_that_cannot_be_written_cost_nothing(made_up, tmp_path):
    page = tmp_path / "r" / "index.html"
    words = ("analyze", str(made_up), "--report", str(page.parent))
    with Path("/dev/full").open("w") as full:
        process = prompt.start(*words, stderr=full)
        shown, _ = process.communicate()
    assert (process.returncode, page.exists()) == (0, True)
    assert "30,000 events" in shown


@given(value=st.integers(9, 1 << 40))
def test_bounds_of_buckets(value):
    eighth = 1 << max(0, (value - 1).bit_length() - 4)
    bound = -(-value // eighth) * eighth
    assert SizeBucket(bound, *[0] * 7).lower == bound - eighth
