"""Runs the lab from the command line, for tests of its verbs, with results in the test's folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import lab_runs
import pytest

from tsmlab.cli import main

# glibc's malloc. Unless WASTE=0, it wastes memory and time at the start of each process.
WASTE = r"""
void *__libc_malloc(size_t);
void *malloc(size_t size) { return __libc_malloc(size); }
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


@pytest.fixture(scope="session")
def waste(build):
    """The library WASTE."""
    return build("libwaste.so.c", WASTE, "-shared", "-fPIC")


@pytest.fixture
def environment(tmp_path):
    inherited = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "COLUMNS")}
    return inherited | {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def tsmalloc(environment):
    """tsmalloc(*words, status=0, cwd=None, **variables) runs a command line, which must end with
    status."""

    def run(*words, status=0, cwd=None, **variables):
        done = lab_runs.run(*words, env=environment | variables, cwd=cwd, timeout=300)
        assert status in (None, done.returncode), done.stdout + done.stderr
        return done

    return run


def start(*words, **more):
    """Starts a command line with its own interpreter."""
    command = [sys.executable, "-m", "tsmlab", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **(pipes | more))


def ran(*command, status=None, timeout=180, **more):
    """Runs any command, which must end with this status if one is given; returns its output as
    text."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, **more
    )
    assert status in (None, done.returncode), done.stdout + done.stderr
    return done


def run_alone(*words, status=0, **more):
    """Runs a command line with its own interpreter."""
    return ran(sys.executable, "-m", "tsmlab", *words, status=status, **more)


def in_process(verb, capfd):
    """A function (*words, status=0) that runs the verb in this process and returns its out and
    err."""

    def call(*words, status=0):
        found = main([verb, *map(str, words)])
        said = capfd.readouterr()
        assert found == status, said.err
        return said

    return call


def wait_until(condition):
    """Returns when the condition holds; fails if that takes too long."""
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.01)


def is_alive(pid):
    """Whether a process exists and has not ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}
