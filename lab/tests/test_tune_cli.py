"""`tsmalloc tune` at the prompt: a library with an option that helps and some that do nothing."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import lab_runs
import pytest

from tsmlab.counting import Counters

Tune = Callable[..., subprocess.CompletedProcess[str]]
COUNTERS = Counters.installed()

# Without WASTE=0 it wastes memory and work at the start of each process.
LIBRARY = r"""
#include <stdlib.h>
#include <string.h>
static volatile unsigned long sum;
__attribute__((constructor)) static void start(void) {
  const char *waste = getenv("WASTE");
  if (waste && !strcmp(waste, "0")) return;
  if (waste && !strcmp(waste, "9")) abort();
  const size_t size = waste && !strcmp(waste, "2") ? 48 << 20 : 16 << 20;
  volatile char *block = malloc(size);
  for (size_t i = 0; i < size; i += 4096) block[i] = 1;
  for (unsigned long i = 0; i < 1000000; i++) sum += i;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune")
    (folder / "waste.c").write_text(LIBRARY)
    built = folder / "libwaste.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", built, folder / "waste.c"], check=True)
    return built


def environment(tmp_path: Path) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    return clean | {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def tune(tmp_path: Path) -> Tune:
    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return lab_runs.run("tune", *arguments, env=environment(tmp_path), timeout=300)

    return run


WASTE = ("--only", "--option", "WASTE=0,2", "--option", "NOTHING=1,2,3", "--no-doctor")


def test_the_option_that_helps_is_found_and_its_line_works(
    tune: Tune, library: Path, tmp_path: Path
) -> None:
    files = {name: tmp_path / f"tune.{name}" for name in ("json", "csv", "markdown")}
    exports = [word for name, file in files.items() for word in (f"--export-{name}", file)]
    words = ("--allocator", f"waste={library}", "--for", "memory", *WASTE, *exports)
    # Options may stand on both sides of the allocator's name.
    done = tune(*words[:4], "waste", *words[4:], "--", "/bin/echo", "found")
    assert done.returncode == 0, done.stderr
    line = done.stdout.splitlines()[-1]
    assert line == f"use it   WASTE=0 LD_PRELOAD={library} /bin/echo found"
    pasted = subprocess.run(
        ["/bin/sh", "-c", line.removeprefix("use it")], capture_output=True, text=True, check=True
    )
    assert pasted.stdout == "found\n"
    results = json.loads(files["json"].read_text())
    assert results["settings"] == ["WASTE=0"]
    assert results["rows"][0]["verdict"] == "better"
    assert "use it   WASTE=0" in files["markdown"].read_text()
    assert files["csv"].read_text().count("\n") > 20
    assert len(list((tmp_path / "state").rglob("*-tune-echo-*.json"))) == 1
    assert not list((tmp_path / "state").rglob("*.jsonl"))


def test_options_that_do_nothing_never_win(tune: Tune, library: Path) -> None:
    words = ("waste", "--allocator", f"waste={library}", "--no-doctor", "--only")
    words = (*words, "--option", "NOTHING=1,2,3,4")
    for objective in ("memory", "both"):
        done = tune(*words, "--time-budget", "4s", "--for", objective, "--", "/bin/true")
        assert done.returncode == 0, done.stderr
        assert "nothing beats the default: no change of waste's options" in done.stdout


@pytest.mark.long
@pytest.mark.skipif(not COUNTERS.valgrind, reason="valgrind is not installed")
def test_instructions_decide_where_times_tell_nothing(tune: Tune, library: Path) -> None:
    words = (
        "--allocator",
        f"waste={library}",
        "--deterministic",
        "--json",
        "--no-doctor",
        "--only",
    )
    words = (*words, "--option", "WASTE=0", "--option", "NOTHING=1")
    done = tune("waste", *words, "--", "/bin/true")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["settings"], found["goal"]["key"]) == (["WASTE=0"], "instructions")
    nothing = [raced for raced in found["steps"][0]["raced"] if "NOTHING" in raced["change"]]
    assert {(raced["rounds"], raced["fate"]) for raced in nothing} == {(3, "no better")}


def test_a_value_that_breaks_the_program_is_a_failure(tune: Tune, library: Path) -> None:
    words = ("waste", "--allocator", f"waste={library}", "--no-doctor", "--only")
    words = (*words, "--option", "WASTE=9")
    done = tune(*words, "--", "/bin/true")
    assert done.returncode == 2, done.stderr
    assert "FAILED WASTE=9: SIGABRT" in done.stdout
    assert tune(*words, "-i", "--", "/bin/true").returncode == 0


@pytest.mark.long
def test_an_interrupted_search_goes_on(tune: Tune, library: Path, tmp_path: Path) -> None:
    words = [
        *("tune", "waste", "--allocator", f"waste={library}", "--for", "memory", *WASTE),
        *("--time-budget", "15s"),
        *("--", "/bin/sleep", "0.1"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "tsmlab", *words],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        journals = list((tmp_path / "state").rglob("*.jsonl"))
        if journals and journals[0].read_text().count("\n") > 12:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "did not come to its end" in out
    assert "go on with: tsmalloc tune --resume" in err
    done = tune("--resume")
    assert done.returncode == 0, done.stderr
    assert "resumed    " in done.stderr
    assert f"use it   WASTE=0 LD_PRELOAD={library} {shlex.join(words[-2:])}" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nosuch", "--", "/bin/true"], "there is no allocator 'nosuch'"),
        (["glibc"], "Missing argument"),
        ([], "Missing argument"),
        (["glibc", "--only", "--", "/bin/true"], "--only leaves nothing to try"),
        (["glibc", "--option", "x=1", "--only", "--", "/no/such"], "/no/such"),
        (["glibc", "--for", "speed", "--", "/bin/true"], "speed"),
        (["glibc", "--metric", "a(b)", "--for", "time", "--", "/bin/true"], "two objectives"),
        (["glibc", "-r", "1", "--", "/bin/true"], "from 2 on"),
        (["tsmalloc-secure", "--", "/bin/true"], "the lab knows no option of tsmalloc-secure"),
        (["--resume"], "there is no journal of `tsmalloc tune`"),
    ],
)
def test_bad_input_is_one_clear_line(tune: Tune, words: list[str], message: str) -> None:
    done = tune(*words)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3
