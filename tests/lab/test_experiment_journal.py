"""The journal of experiments: whatever cuts a run short, going on ends as if nothing had."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from experiment_world import (
    NAMES,
    Counting,
    Notes,
    Programs,
    begin,
    definition,
    go_on,
    plans,
    prints,
    single,
)

from tsmlab.errors import UserError
from tsmlab.experiments import journal as journals
from tsmlab.experiments.journal import CellName, Header, Journal
from tsmlab.experiments.model import Definition, ExperimentResults
from tsmlab.results import AllocatorInfo

# Two experiments, one of them with a sweep, and a cell that fails and gives up.
BOTH = (definition("sweep", rounds=3, causes="ends"), single("other-one", rounds=4))
TIMED_RUNS = 8 * 3 + 2 + 3 * 4
WATCHED_RUNS = 5 + 3


def pick(world: Any) -> Callable[[str, tuple[str, ...]], Any]:
    """Times that depend on nothing but the cell, so that they are the same when run again."""

    def choose(name: str, arguments: tuple[str, ...]) -> Any:
        threads = int(arguments[1]) if arguments else 8
        if (name, threads) == ("other", 4):
            return world.Behaviour(signal=11, stderr="free(): invalid pointer\n")
        return prints(world, (1.0 + NAMES.index(name)) / threads)

    return choose


@pytest.fixture
def whole(world: Any, tmp_path: Path) -> tuple[ExperimentResults, Path]:
    """A run that nothing interrupted, and its journal."""
    executor = Programs(world, pick(world))
    journal = begin(world, tmp_path / "whole", BOTH)
    found = go_on(journal, executor, [Counting(executor, frees=2.0)]).results
    assert len(executor.requests) == TIMED_RUNS
    return found, journal.path


def resume(world: Any, path: Path, reporter: Any = None) -> tuple[ExperimentResults, int, int]:
    """Goes on with a journal; returns how many runs that took, timed and watched ones."""
    executor = Programs(world, pick(world))
    counting = Counting(executor, frees=2.0)
    found = go_on(Journal.resume(path), executor, [counting], reporter).results
    return found, len(executor.requests), len(counting.requests)


def timeless(found: ExperimentResults) -> ExperimentResults:
    """Without what depends on when it happened."""
    return replace(
        found,
        created="",
        machine=replace(found.machine, load_at_start=0.0),
        experiments=[
            replace(
                experiment,
                cells=[
                    replace(cell, runs=[replace(run, started_seconds=0.0) for run in cell.runs])
                    for cell in experiment.cells
                ],
            )
            for experiment in found.experiments
        ],
    )


# --- cut short -----------------------------------------------------------------------------------


@pytest.mark.parametrize("interrupt_at_run", [1, 7, 12, 13, 25, TIMED_RUNS - 1])
def test_an_interrupted_run_ends_like_one_that_was_not(
    world: Any, tmp_path: Path, whole: tuple[ExperimentResults, Path], interrupt_at_run: int
) -> None:
    executor = Programs(world, pick(world))
    executor.interrupt_at_run = interrupt_at_run
    journal = begin(world, tmp_path, BOTH)
    partial = go_on(journal, executor, [Counting(executor)]).results
    assert partial.stop is not None
    assert partial.stop.reason == "interrupted"
    found, timed, watched = resume(world, journal.path)
    assert (timed, watched) == (TIMED_RUNS - interrupt_at_run, WATCHED_RUNS)
    assert timeless(found) == timeless(whole[0])


def test_it_can_be_interrupted_again_and_again(
    world: Any, tmp_path: Path, whole: tuple[ExperimentResults, Path]
) -> None:
    journal, sessions = begin(world, tmp_path, BOTH), 0
    while True:
        executor = Programs(world, pick(world))
        executor.interrupt_at_run = 5
        counting = Counting(executor, frees=2.0)
        found = go_on(journal, executor, [counting]).results
        sessions += 1
        assert found.stop is not None
        if found.stop.reason != "interrupted":
            break
        journal = Journal.resume(journal.path)
    assert sessions == TIMED_RUNS // 5 + 1
    assert timeless(found) == timeless(whole[0])


def test_time_goes_on_where_it_stood(world: Any, tmp_path: Path) -> None:
    executor = Programs(world, pick(world))
    executor.interrupt_at_run = 20
    journal = begin(world, tmp_path, BOTH)
    go_on(journal, executor)
    found, _, _ = resume(world, journal.path)
    runs = [run for e in found.experiments for cell in e.cells for run in cell.runs]
    starts = sorted(run.started_seconds for run in runs)
    assert len(set(starts)) == TIMED_RUNS
    walls = sum(run.values["wall_seconds"] for run in runs)
    assert starts[-1] == pytest.approx(walls, abs=2.6)  # no pause, nothing twice


def test_a_cut_at_every_byte_of_the_last_lines_costs_that_line_only(
    tmp_path: Path, whole: tuple[ExperimentResults, Path]
) -> None:
    content = whole[1].read_bytes()
    lines = content.splitlines(keepends=True)
    assert len(lines) == 1 + TIMED_RUNS + 1 + WATCHED_RUNS
    with Journal.resume(whole[1]) as journal:
        everything = journal
    # The last two runs, the line that ends the rounds, and the first causes; then the end.
    first = 1 + TIMED_RUNS - 2
    end = sum(map(len, lines[: first + 4]))
    path = tmp_path / "cut.jsonl"
    for length in [*range(sum(map(len, lines[:first])), end + 1), len(content) - 1]:
        path.write_bytes(content[:length])
        complete = content[:length].count(b"\n") - 1
        with Journal.resume(path) as journal:
            assert list(journal.runs.items()) == list(everything.runs.items())[:complete]
            assert (journal.stop is None) == (complete <= TIMED_RUNS)
            assert len(journal.causes) == max(0, complete - TIMED_RUNS - 1)
        assert path.read_bytes() == b"".join(lines[: complete + 1])


@pytest.mark.parametrize("line", range(1 + TIMED_RUNS - 2, 1 + TIMED_RUNS + 3))
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_what_was_cut_is_run_again(
    world: Any, tmp_path: Path, whole: tuple[ExperimentResults, Path], line: int, share: float
) -> None:
    lines = whole[1].read_bytes().splitlines(keepends=True)
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"".join(lines[:line]) + lines[line][: int(share * (len(lines[line]) - 1))])
    found, timed, watched = resume(world, path)
    assert timed == max(0, TIMED_RUNS - (line - 1))
    assert watched == WATCHED_RUNS - max(0, line - 1 - TIMED_RUNS - 1)
    assert timeless(found) == timeless(whole[0])
    # What is in the journal now is a whole one again.
    assert len(path.read_bytes().splitlines()) == len(lines)


@pytest.mark.parametrize("tail", [b"\0" * 4096, b'{"seconds":', b"\xff\xfe\n", b"[1]\n", b"{}\n"])
def test_rubbish_at_the_end_is_cut_off(
    world: Any, tmp_path: Path, whole: tuple[ExperimentResults, Path], tail: bytes
) -> None:
    path = tmp_path / "torn.jsonl"
    path.write_bytes(whole[1].read_bytes() + tail)
    found, timed, watched = resume(world, path)
    assert (timed, watched) == (0, 0)
    assert found == whole[0]
    assert path.read_bytes() == whole[1].read_bytes()


@pytest.mark.parametrize("damage", [b"", b"{}", b"\0\0", b'{"seconds":1,"cell":null,"run":7}'])
def test_damage_in_the_middle_is_named(
    tmp_path: Path, whole: tuple[ExperimentResults, Path], damage: bytes
) -> None:
    lines = whole[1].read_bytes().splitlines()
    lines[5] = damage
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(UserError, match=r"damaged\.jsonl: line 6 is damaged") as caught:
        Journal.resume(path)
    assert "Begin anew" in caught.value.remedy
    assert path.read_bytes() == b"\n".join(lines) + b"\n"


def test_runs_that_are_not_in_their_order_are_refused(
    world: Any, tmp_path: Path, whole: tuple[ExperimentResults, Path]
) -> None:
    lines = whole[1].read_text().splitlines()
    entry = json.loads(lines[3])
    entry["run"]["position"] += 1
    lines[3] = json.dumps(entry)
    path = tmp_path / "edited.jsonl"
    path.write_text("\n".join(lines) + "\n")
    outcome = go_on(Journal.resume(path), Programs(world, pick(world)))
    assert outcome.error is not None
    assert "not in the order of its seed" in outcome.error.message
    assert "begin anew" in outcome.error.remedy


def test_what_is_no_journal_is_refused(
    tmp_path: Path, whole: tuple[ExperimentResults, Path]
) -> None:
    path = tmp_path / "none.jsonl"
    with pytest.raises(UserError, match="No such file"):
        Journal.resume(path)
    header = whole[1].read_bytes().splitlines()[0]
    for content, words in (
        (b"", "no complete line"),
        (header, "no complete line"),
        (header[:-20] + b"\n", "is not JSON"),
        (b'{"schema": "tsmalloc-bench/1"}\n', "'tsmalloc-bench/1'"),
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match=words) as caught:
            Journal.resume(path)
        assert caught.value.remedy


# --- going on ------------------------------------------------------------------------------------


def test_a_finished_run_is_told_again_without_running(
    world: Any, whole: tuple[ExperimentResults, Path]
) -> None:
    before = whole[1].read_bytes()
    found, timed, watched = resume(world, whole[1])
    assert (timed, watched) == (0, 0)
    assert found == whole[0]
    assert whole[1].read_bytes() == before


def test_a_budget_that_ended_the_rounds_stays_decided(world: Any, tmp_path: Path) -> None:
    def run(executor: Programs, journal: Journal) -> ExperimentResults:
        class Interrupted(Counting):
            def observe(self, request: Any, folder: Path) -> Any:
                raise KeyboardInterrupt

        return go_on(journal, executor, [Interrupted(executor)]).results

    executor = Programs(world, pick(world))
    many = [single(rounds=40)]
    journal = begin(world, tmp_path, many, time_budget_seconds=30.0)
    partial = run(executor, journal)
    rounds = len(executor.requests) // 3
    assert 3 < rounds < 40
    assert partial.stop is not None
    assert partial.stop.reason == "interrupted"
    found, timed, watched = resume(world, journal.path)
    assert (timed, watched) == (0, 3)
    assert found.stop is not None
    assert found.stop.reason == "budget"
    assert f"{rounds} rounds done" in found.stop.text


def test_failures_before_the_interrupt_count(world: Any, tmp_path: Path) -> None:
    """A cell that failed once before the interrupt and once after it has given up."""
    executor = Programs(world, pick(world))
    executor.interrupt_at_run = 12  # the first round has 9 + 3 runs
    journal = begin(world, tmp_path, BOTH)
    partial = go_on(journal, executor).results
    bad = partial.experiments[0].cell(2, "other")
    assert bad is not None
    assert (len(bad.runs), bad.gave_up) == (1, False)
    notes = Notes()
    found, _, _ = resume(world, journal.path, notes)
    bad = found.experiments[0].cell(2, "other")
    assert bad is not None
    assert (len(bad.runs), bad.gave_up) == (2, True)
    assert "sweep: other at threads=4 failed twice in a row and is not run again" in notes.texts


# --- what has changed ----------------------------------------------------------------------------


def files_world(world: Any, tmp_path: Path) -> tuple[Header, dict[str, Path]]:
    """A header whose program, library and definition are files that a test can change."""
    files = {name: tmp_path / name for name in ("program", "library.so", "mine.toml")}
    for name, path in files.items():
        path.write_text(name)
    mine: Definition = single(file=str(files["mine.toml"]))
    allocators = [replace(world.allocator("other"), path=files["library.so"])]
    planned = plans(world, [mine], program=files["program"], allocators=allocators)
    return Header.of(planned, 7, None, None), files


@pytest.mark.parametrize("name", ["program", "library.so", "mine.toml"])
@pytest.mark.parametrize("gone", [False, True])
def test_what_was_changed_is_named_and_refused(
    world: Any, tmp_path: Path, name: str, gone: bool
) -> None:
    header, files = files_world(world, tmp_path)
    header.check_unchanged()
    if gone:
        files[name].unlink()
    else:
        files[name].write_text("another")
    with pytest.raises(UserError) as caught:
        header.check_unchanged()
    assert str(files[name]) in caught.value.message
    assert all(str(path) not in caught.value.message for n, path in files.items() if n != name)
    assert "Bring back" in caught.value.remedy


def test_another_version_or_machine_is_refused(world: Any, tmp_path: Path) -> None:
    header, _ = files_world(world, tmp_path)
    with pytest.raises(UserError, match=r"begun by tsmalloc 0\.0\.1"):
        replace(header, tsmalloc_version="0.0.1").check_unchanged()
    elsewhere = replace(header, machine=replace(header.machine, kernel="1.0"))
    with pytest.raises(UserError, match=r"another machine: kernel was 1\.0"):
        elsewhere.check_unchanged()


def test_a_header_keeps_allocators_and_their_variables(world: Any, tmp_path: Path) -> None:
    allocator = replace(world.allocator("glibc"), env={"MALLOC_ARENA_MAX": "1"})
    planned = plans(world, [single()], allocators=[allocator])
    header = Header.of(planned, 7, [0, 1], 60.0)
    journal = Journal.begin(header, [tmp_path])
    journal.__exit__(None, None, None)
    with Journal.resume(journal.path) as again:
        assert again.header == header
        assert again.header.allocators == [AllocatorInfo.of(allocator)]
        (kept,) = again.header.plans()[0].allocators
        assert dict(kept.env) == {"MALLOC_ARENA_MAX": "1"}


# --- files ---------------------------------------------------------------------------------------


def test_only_one_process_writes_a_journal(world: Any, tmp_path: Path) -> None:
    with (
        begin(world, tmp_path, [single()]) as journal,
        pytest.raises(UserError, match="another process is writing"),
    ):
        Journal.resume(journal.path)
    Journal.resume(journal.path).__exit__(None, None, None)


def test_the_latest_journal_is_found_in_whichever_folder(world: Any, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two", tmp_path / "not there"]
    with pytest.raises(UserError, match="no journal") as caught:
        journals.latest(folders)
    assert str(folders[0]) in caught.value.message
    header = Header.of(plans(world, [single()]), 7, None, None)
    paths = []
    for folder, day in ((folders[0], "20"), (folders[1], "22"), (folders[0], "21")):
        dated = replace(header, created=f"2026-11-{day}T10:00:00+00:00")
        with Journal.begin(dated, [folder]) as journal:
            paths.append(journal.path)
    assert journals.latest(folders) == paths[1]


def test_somebody_elses_journal_is_not_the_latest(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(world, tmp_path, [single()]).__exit__(None, None, None)
    journals.latest([tmp_path])
    monkeypatch.setattr("os.getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UserError, match="no journal"):
        journals.latest([tmp_path])


def test_a_folder_that_takes_nothing_is_passed_over(world: Any, tmp_path: Path) -> None:
    header = Header.of(plans(world, [single()]), 7, None, None)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with Journal.begin(header, [blocked, tmp_path / "good"]) as journal:
        assert journal.path.parent == tmp_path / "good"
    with pytest.raises(UserError, match="no journal could be begun") as caught:
        Journal.begin(header, [blocked])
    assert "XDG_STATE_HOME" in caught.value.remedy


def test_a_folder_that_is_full_keeps_no_empty_journal(world: Any, tmp_path: Path) -> None:
    header = Header.of(plans(world, [single()]), 7, None, None)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(UserError, match="File too large"):
            Journal.begin(header, [tmp_path / "full"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((tmp_path / "full").iterdir()) == []


def test_each_run_is_in_the_file_before_the_next_begins(world: Any, tmp_path: Path) -> None:
    journal = begin(world, tmp_path, [single()])
    seen = []

    def choose(*_: object) -> Any:
        seen.append(len(journal.path.read_bytes().splitlines()) - 1)
        return prints(world, 1.0)

    go_on(journal, Programs(world, choose))
    assert seen == list(range(9))


def test_a_full_disk_is_an_error_with_a_remedy(world: Any, tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with begin(world, tmp_path, [single()]) as journal:
        copy = shutil.copy(journal.path, tmp_path / "copy.jsonl")
        with Path("/dev/full").open("wb", buffering=0) as full:
            broken = Journal(Path(copy), full, journal.header, [])
            with pytest.raises(UserError, match="No space left") as caught:
                broken.add(1.0, CellName("single", 0, "glibc"))
    assert "--resume" in caught.value.remedy
