"""Shared by the command's tests: small programs, compiled on demand and started under a library."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest
from compiled_programs import build
from prompt import small_disk

from tsmlab import paths

__all__ = ["build", "small_disk"]


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """explained_program.c, which most of these tests inspect."""
    target = tmp_path_factory.mktemp("explained") / "explained"
    source = Path(__file__).with_name("explained_program.c")
    subprocess.run(["gcc", "-O1", "-pthread", source, "-o", target], check=True)
    return target


@pytest.fixture
def start():
    """Starts a program that prints "ready", without a background thread that purges."""
    started = []

    def run(*command, library="libtsmalloc.so"):
        environment = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
        environment["TSMALLOC_BACKGROUND"] = "off"
        if library is not None:
            files = [str(paths.library(name)) for name in str(library).split(":")]
            environment["LD_PRELOAD"] = ":".join(files)
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for process in started:  # one of them may trace another
        process.wait()
        for pipe in (process.stdin, process.stdout):
            pipe.close()
