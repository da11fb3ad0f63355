"""The journal of a study: a resumed study ends as if it had never been interrupted."""

import json
import math
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Behaviour, SimulatedExecutor, World
from experiment_fixtures import (
    NAMES,
    Counting,
    definition,
    go_on,
    prints,
    programs,
    single,
    timeless,
)
from refusals import refused

from tsmlab import journal as journals
from tsmlab import records
from tsmlab.journal import Header, Journal, NullJournal, Part
from tsmlab.metrics import TIME
from tsmlab.results import AllocatorInfo, Stop
from tsmlab.schedule import StopRule

# Two experiments, one of them with a sweep, and a cell that fails and gives up.
BOTH = (definition("sweep", rounds=3, causes="ends"), single("other-one", rounds=4))
# The reference at each point, then rounds in which it runs twice.
TIMED_RUNS = (3 + 12 * 3 - 1) + (1 + 4 * 4)
WATCHED_RUNS = 5 + 3
# Besides runs and counts, for both experiments: when and where it began, and the decision after
# each round.
OTHER_LINES = 2 * 2 + 3 + 4


def header(**changes):
    return replace(Header.of("compare", ["-r", "3", "--", "./prog"], 7, []), **changes)


def begin(folder, clock=lambda: 0.0, **changes):
    return Journal.begin(header(**changes), [folder], clock)


def pick(name, arguments):
    """Times that depend only on the cell, so that they are the same when run again."""
    threads = int(arguments[1]) if arguments else 8
    if (name, threads) == ("other", 4):
        return Behaviour(signal=11, stderr="free(): invalid pointer\n")
    return prints((1.0 + NAMES.index(name)) / threads)


def experiments(journal, interrupt_at_run=None):
    """Begins or resumes a journal; returns the number of runs that took, both timed and counted."""
    executor = programs(pick, interrupt_at_run=interrupt_at_run)
    counting = Counting(executor, frees=2.0)
    if journal.suffix:
        opened = Journal.resume(journal, executor.clock)
    else:
        opened = begin(journal, executor.clock, verb="experiment")
    with opened:
        found = go_on(BOTH, executor, [counting], opened).results
    return found, len(executor.requests), len(counting.requests)


def path_in(folder):
    (path,) = folder.glob("*.jsonl")
    return path


@pytest.fixture
def whole(tmp_path):
    found, timed, watched = experiments(tmp_path / "whole")
    assert (timed, watched) == (TIMED_RUNS, WATCHED_RUNS)
    return found, path_in(tmp_path / "whole")


# --- interruptions --------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [4, 5, 7, 38, TIMED_RUNS - 1])
def test_an_interrupted_run_ends_like_one_that_was_not(tmp_path, whole, runs):
    """Though each session ends after this many runs."""
    journal, sessions, all_watched = tmp_path / "cut", 0, 0
    while True:
        found, timed, watched = experiments(journal, runs)
        sessions, all_watched = sessions + 1, all_watched + watched
        if found.stop.reason != "interrupted":
            break
        assert timed - 1 == runs  # the last one was interrupted
        journal = path_in(tmp_path / "cut")
    assert (sessions, all_watched) == (math.ceil(TIMED_RUNS / runs), WATCHED_RUNS)
    assert timeless(found) == timeless(whole[0])


def test_time_goes_on_where_it_stood(tmp_path):
    experiments(tmp_path / "cut", 20)
    found, _, _ = experiments(path_in(tmp_path / "cut"))
    runs = found.parts[0].samples
    starts = sorted(run.started_seconds for run in runs)
    assert len(set(starts)) == len(runs)
    walls = sum(run.values[TIME] for run in runs)
    assert starts[-1] == pytest.approx(walls, abs=2.6)  # no pause, nothing twice


@pytest.mark.parametrize("interrupt_at_run", [2, 3, 9, 16, 20])
def test_a_comparison_decides_as_if_not_cut_short(tmp_path, interrupt_at_run):
    """Also if the time budget ends it, which is checked after each round."""
    rule = StopRule(min_rounds=30, time_budget_seconds=2.6)
    # Noise would depend on the number of the run, which restarts at 0.
    behaviours = {
        "glibc": Behaviour(),
        "fast": Behaviour(seconds=0.098),
        "bad": Behaviour(signal=6),
    }

    def run(open_journal, where, **more):
        executor = SimulatedExecutor(behaviours, **more)
        with open_journal(where, executor.clock) as journal:
            found = World.comparison(behaviours, executor=executor, memo=journal, rule=rule)
        return found, len(executor.requests)

    expected, runs = run(begin, tmp_path / "whole")
    run(begin, tmp_path / "cut", interrupt_at_run=interrupt_at_run)
    found, again = run(Journal.resume, path_in(tmp_path / "cut"), now=1000.0)
    assert again == runs - interrupt_at_run
    assert found.stop == expected.stop
    assert found.stop.reason == "budget"
    assert found.analysis == expected.analysis
    assert [s.allocator for s in found.samples] == [s.allocator for s in expected.samples]


def test_a_cut_at_every_byte_costs_that_line_only(tmp_path, whole):
    content = whole[1].read_bytes()
    lines = content.splitlines(keepends=True)
    assert len(lines) == 1 + TIMED_RUNS + WATCHED_RUNS + OTHER_LINES
    path = tmp_path / "cut.jsonl"
    first = sum(map(len, lines[:-3]))
    for length in [*range(first, first + len(lines[-3]) + 1), len(content) - 1]:
        path.write_bytes(content[:length])
        complete = content[:length].count(b"\n") - 1
        with Journal.resume(path) as journal:
            assert journal.done == complete
        assert path.read_bytes() == b"".join(lines[: complete + 1])


@pytest.mark.parametrize("line", [1, 4, 9, 20, 40, -9, -8, -1])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_what_was_cut_is_done_again(tmp_path, whole, line, share):
    lines = whole[1].read_bytes().splitlines(keepends=True)
    line %= len(lines)
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(lines[:line]) + lines[line][: int(share * (len(lines[line]) - 1))])
    kept = [json.loads(each)["key"] for each in lines[1:line]]
    found, timed, watched = experiments(path)
    assert timed == TIMED_RUNS - sum("run " in key for key in kept)
    assert watched == WATCHED_RUNS - sum("causes" in key for key in kept)
    assert timeless(found) == timeless(whole[0])
    # The journal is now complete again.
    assert len(path.read_bytes().splitlines()) == len(lines)


@pytest.mark.parametrize("tail", [b"\0" * 4096, b'{"seconds":', b"\xff\xfe\n", b"[1]\n", b"{}\n"])
def test_rubbish_at_the_end_is_cut(tmp_path, whole, tail):
    path = tmp_path / "torn.jsonl"
    path.write_bytes(whole[1].read_bytes() + tail)
    found, timed, watched = experiments(path)
    assert (timed, watched) == (0, 0)
    assert found == whole[0]
    assert path.read_bytes() == whole[1].read_bytes()


@pytest.mark.parametrize("damage", [b"", b"{}", b"\0\0", b'{"key":1,"seconds":1,"value":7}'])
def test_damage_in_the_middle_is_named(tmp_path, whole, damage):
    lines = whole[1].read_bytes().splitlines()
    lines[5] = damage
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    with refused("damaged.jsonl: line 6"):
        Journal.resume(path)
    assert path.read_bytes() == b"\n".join(lines) + b"\n"


def test_a_value_of_another_kind_is_named(tmp_path, whole):
    lines = whole[1].read_text().splitlines()
    entry = json.loads(lines[20])
    assert "run " in entry["key"]
    lines[20] = json.dumps(records.with_checksum(entry | {"value": 7}))
    path = tmp_path / "edited.jsonl"
    path.write_text("\n".join(lines) + "\n")
    with Journal.resume(path) as journal:
        outcome = go_on(BOTH, programs(pick), memo=journal)
    assert f"{path}: line 21" in outcome.error.message
    assert len(outcome.results.parts[0].samples) > 5


def test_what_is_no_journal_is_refused(tmp_path, whole):
    path = tmp_path / "none.jsonl"
    with refused(str(path)):
        Journal.resume(path)
    first = whole[1].read_bytes().splitlines()[0]
    for content, words in (
        (b"", "complete line"),
        (first, "complete line"),
        (first[:-20] + b"\n", "JSON"),
        (b'{"schema": "tsmalloc-bench/1"}\n', "'tsmalloc-bench/1'"),
    ):
        path.write_bytes(content)
        with refused(str(path), words):
            Journal.resume(path)


# --- resuming -------------------------------------------------------------------------------------


def test_a_thing_is_done_once_and_parts_have_keys_of_their_own(tmp_path):
    made: list[str] = []

    def make(name):
        return lambda: made.append(name) or name

    with begin(tmp_path) as journal:
        assert journal.once("key", str, make("a")) == "a"
        assert Part(journal, "part").once("key", str, make("b")) == "b"
        assert journal.once("none", Stop | None, lambda: None) is None
    with Journal.resume(path_in(tmp_path)) as journal:
        assert journal.once("key", str, make("c")) == "a"
        assert Part(journal, "part").once("key", str, make("d")) == "b"
        assert journal.once("none", Stop | None, lambda: Stop("runs", "")) is None
        assert journal.once("other", Stop | None, lambda: Stop("runs", "x")) == Stop("runs", "x")
    assert made == ["a", "b"]
    unkept = NullJournal()
    assert [unkept.once("key", str, make(name)) for name in "xy"] == ["x", "y"]


# --- changed files --------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    """The files whose checksums a header has, by name."""
    found = {name: tmp_path / name for name in ("program", "library.so", "mine.toml")}
    for path in found.values():
        path.write_text("first")
    return found


def header_of(files):
    path = files["library.so"]
    allocators = [replace(World.allocator("other"), path=path)] if path.exists() else []
    return Header.of("experiment", ["all"], 7, allocators, [files["program"], files["mine.toml"]])


@pytest.mark.parametrize("name", ["program", "library.so", "mine.toml"])
@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_text("another")])
def test_what_was_changed_is_named_and_refused(files, name, change):
    begun = header_of(files)
    begun.check(header_of(files))
    changed = files.pop(name)
    change(changed)
    with refused(str(changed), remedy="Restore") as caught:
        begun.check(header_of(files | {name: changed}))
    assert all(str(path) not in caught.value.message for path in files.values())


def test_another_version_machine_or_choice_of_allocators_is_refused(files):
    begun = header_of(files)
    more = [*begun.allocators, AllocatorInfo.of(World.allocator("x"))]
    for other, message in (
        (replace(begun, tsmalloc_version="0.0.1"), "0.0.1"),
        (replace(begun, machine=replace(begun.machine, kernel="1.0")), "kernel was 1.0"),
        (replace(begun, allocators=more), "allocators"),
    ):
        with refused(message):
            other.check(begun)


# --- files ---------------------------------------------------------------------------------------


def test_only_one_process_writes_a_journal(tmp_path):
    with begin(tmp_path) as journal, refused("another process"):
        Journal.resume(journal.path)
    Journal.resume(journal.path).__exit__(None, None, None)


def test_the_latest_journal_is_found(tmp_path, monkeypatch):
    folders = [tmp_path / "one", tmp_path / "two", tmp_path / "not there"]
    with refused("no journal", str(folders[0])):
        journals.latest("compare", folders)
    paths = []
    for folder, day in ((folders[0], "20"), (folders[1], "22"), (folders[0], "21")):
        with begin(folder, created=f"2026-11-{day}T10:00:00+00:00") as journal:
            paths.append(journal.path)
    with begin(folders[0], verb="bench", created="2026-11-23T10:00:00+00:00"):
        assert journals.latest("compare", folders) == paths[1]
    with begin(tmp_path):
        pass
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with refused("no journal"):
        journals.latest("compare", [tmp_path])


def test_of_two_begun_in_the_same_second_the_latest_is_the_one_written_last(tmp_path):
    with begin(tmp_path) as journal:
        older = journal.path
    younger = older.with_name(older.name.replace(older.stem.split("-")[-1], "1"))
    shutil.copy(older, younger)
    assert journals.latest("compare", [tmp_path]) == younger


def test_a_folder_that_takes_no_journal_is_passed_over(tmp_path):
    (tmp_path / "file").write_text("")
    with Journal.begin(header(), [tmp_path / "file", tmp_path / "good"]) as journal:
        assert journal.path.parent == tmp_path / "good"
    with refused(str(tmp_path / "file"), remedy="XDG_STATE_HOME"):
        Journal.begin(header(), [tmp_path / "file"])


def test_a_full_disk_ends_the_run_with_what_was_measured(tmp_path):
    executor = programs(pick)
    journal = begin(tmp_path, executor.clock)
    size = journal.path.stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 9000, limits[1]))
    try:
        with journal:
            outcome = go_on(BOTH, executor, memo=journal)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "File too large" in outcome.error.message
    assert outcome.results.stop.reason == "aborted"
    assert "--resume" in outcome.error.remedy
    assert 1 < len(executor.requests) < TIMED_RUNS
    found, timed, _ = experiments(journal.path)
    assert timed >= TIMED_RUNS - len(executor.requests)
    assert found.stop.reason == "runs"
