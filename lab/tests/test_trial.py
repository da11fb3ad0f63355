"""A single run: the program's environment, what counts as a failure, and what is saved."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Behaviour, SimulatedExecutor, World

from tsmlab.allocators import Allocator
from tsmlab.journal import NullJournal
from tsmlab.metrics import CUSTOM, parse_custom
from tsmlab.schedule import Entry, Slot
from tsmlab.trial import PADDING_VARIABLE, OutputCheck, Program, Trial

PROGRAM = Program(command=("./program",), stdin=Path("/dev/null"))


def run_once(tmp_path, behaviour, program=PROGRAM, name="own"):
    allocator = World.allocator(name)
    executor = SimulatedExecutor({name: behaviour})
    trial = Trial(program, [allocator], executor, tmp_path, NullJournal(executor.clock))
    return trial.run(Slot(Entry(allocator), "measured", 3, 2, 100))


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"exit_code": 3}, "exit", "exit 3"),
        ({"signal": signal.SIGSEGV}, "signal", "SIGSEGV"),
        ({"timed_out": True}, "timeout", ""),
        ({"spawn_error": {"errno": 2, "message": "no such file"}}, "start", "no such file"),
        ({"mapped": False}, "preload", ""),
        ({"exit_code": None}, "signal", "stopped"),
    ],
)
def test_failures_are_named_and_carry_the_programs_last_words(tmp_path, change, kind, text):
    sample = run_once(tmp_path, Behaviour(stderr="a\nlast words\n", **change))
    assert sample.failure.kind == kind
    assert text in sample.failure.text
    assert sample.failure.stderr_tail.endswith("last words")


def test_a_library_that_the_loader_refuses_is_a_failure_however_short_the_run(tmp_path):
    path = World.allocator("x").path
    refusal = f"ERROR: ld.so: object '{path}' from LD_PRELOAD cannot be preloaded (why): ignored.\n"
    for mapped, kind in ((None, "preload"), (True, None)):
        sample = run_once(tmp_path, Behaviour(mapped=mapped, stderr=refusal))
        assert (sample.failure and sample.failure.kind) == kind
    assert run_once(tmp_path, Behaviour(mapped=None, stderr="means success\n")).failure is None


def test_last_words_are_cut_and_do_nothing_to_a_terminal(tmp_path):
    def last_words(stderr):
        return run_once(tmp_path, Behaviour(exit_code=1, stderr=stderr)).failure.stderr_tail

    assert last_words("\x1b]0;x\x07a\tb\n") == "\\x1b]0;x\\x07a\tb"
    lines = last_words("".join(f"line {i}\n" for i in range(100_000))).splitlines()
    assert (len(lines), lines[-1]) == (12, "line 99999")


def test_another_exit_status_may_be_the_right_one(tmp_path):
    program = replace(PROGRAM, expected_exit=3)
    assert run_once(tmp_path, Behaviour(exit_code=3), program).failure is None
    assert not list(tmp_path.iterdir())
    failure = run_once(tmp_path, Behaviour(exit_code=0), program).failure
    assert failure.text == "exit 0 instead of 3"


def test_the_programs_own_number_is_found_in_either_stream_or_missing(tmp_path):
    program = replace(PROGRAM, metrics=(parse_custom(r"rate=rate: (\S+)"),))
    for stream in ("stdout", "stderr"):
        behaviour = Behaviour(**{stream: "warm 1\nrate: 12.5\n"})
        assert run_once(tmp_path, behaviour, program).values[CUSTOM] == 12.5
    for said in ("rate: fast\n", "none\n"):
        failure = run_once(tmp_path, Behaviour(stdout=said), program).failure
        assert (failure.kind, "rate" in failure.text) == ("metric", True)


@pytest.mark.parametrize("outer", ["", "/lib/outer.so"])
def test_the_environment_has_the_same_size_under_all_allocators(tmp_path, monkeypatch, outer):
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    if outer:
        monkeypatch.setenv("LD_PRELOAD", outer)
    allocators = [
        Allocator("glibc", None, "libc", "1"),
        Allocator("short", Path("/x.so"), "user", "1"),
        Allocator("long", Path("/a/very/long/path/lib.so"), "user", "1", env={"CONF": "on"}),
    ]
    executor = SimulatedExecutor({a.name: Behaviour() for a in allocators})
    trial = Trial(PROGRAM, allocators, executor, tmp_path, NullJournal(executor.clock))
    for allocator in allocators:
        trial.run(Slot(Entry(allocator), "measured", 1, 1, 100))

    sizes = set()
    for request in executor.requests:
        environment = dict(os.environ) | dict(request.env)
        if preloads := [*map(str, request.preloads()), *filter(None, [outer])]:
            environment["LD_PRELOAD"] = ":".join(preloads)
        sizes.add(sum(len(os.fsencode(f"{k}={v}")) + 1 + 8 for k, v in environment.items()))
    assert len(sizes) == 1
    assert min(len(r.env[PADDING_VARIABLE]) for r in executor.requests) == 100


def test_hooks_know_the_allocator_and_are_not_timed(tmp_path):
    log = tmp_path / "log"
    program = replace(
        PROGRAM,
        setup=f'sleep 0.2; echo "before $TSMALLOC_ALLOCATOR" >> {log}',
        cleanup=f'echo "after $TSMALLOC_ALLOCATOR" >> {log}',
    )
    begin = time.monotonic()
    sample = run_once(tmp_path, Behaviour(seconds=0.01), program)
    assert time.monotonic() - begin >= 0.2
    assert sample.values["time_seconds"] == pytest.approx(0.01)
    assert log.read_text() == "before own\nafter own\n"


def test_cleanup_follows_a_failed_run_and_an_interrupt_too(tmp_path):
    program = replace(PROGRAM, cleanup=f"touch {tmp_path}/cleaned")
    assert run_once(tmp_path, Behaviour(exit_code=1), program).failure
    (tmp_path / "cleaned").unlink()
    with pytest.raises(KeyboardInterrupt):
        run_once(tmp_path, Behaviour(interrupted=True), program)
    assert (tmp_path / "cleaned").exists()


def test_a_crash_stays_a_crash_and_says_nothing_about_outputs(tmp_path):
    for name in ("a", "glibc"):
        crashed = run_once(tmp_path, Behaviour(signal=11, stdout="part"), name=name)
        check = OutputCheck("glibc", enabled=True)
        good = [run_once(tmp_path, Behaviour(stdout="1"), name=each) for each in ("glibc", "b")]
        assert check.judge([*good, crashed])[-1].failure == crashed.failure
        assert check.comparable is True


def test_printed_numbers_are_values_and_there_if_promised(tmp_path):
    program = replace(PROGRAM, printed=("seconds", "blocks"), printed_perhaps=("live", "gone"))
    behaviour = Behaviour(stdout="seconds: 1.5\nblocks: 70\nlive: 4096\n")
    sample = run_once(tmp_path, behaviour, program)
    assert sample.failure is None
    found = {name: sample.values.get(name) for name in ("seconds", "blocks", "live", "gone")}
    assert found == {"seconds": 1.5, "blocks": 70.0, "live": 4096.0, "gone": None}

    sample = run_once(tmp_path, Behaviour(stdout="seconds: 1.5\n"), program)
    assert (sample.failure.kind, "`blocks: NUMBER`" in sample.failure.text) == ("metric", True)
