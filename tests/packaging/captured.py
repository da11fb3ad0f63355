"""Runs commands to completion, and captures their output."""

import contextlib
import os
import pty
import subprocess


def captured(*command, check=False, timeout=120, **options):
    """The command's words may be paths and numbers; with `check`, it must succeed."""
    words = list(map(str, command))
    return subprocess.run(
        words, capture_output=True, text=True, check=check, timeout=timeout, **options
    )


def merged(*command, **options):
    """Returns the exit status, and the combined standard output and error."""
    done = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )
    return done.returncode, done.stdout


def on_terminal(*command):
    """What a command that must succeed prints where its input and output are a terminal."""
    primary, terminal = pty.openpty()
    words = list(map(str, command))
    with subprocess.Popen(words, stdin=terminal, stdout=terminal) as running:
        os.close(terminal)
        said = b""
        with contextlib.suppress(OSError):
            while piece := os.read(primary, 1 << 16):
                said += piece
    os.close(primary)
    assert running.returncode == 0
    return said.decode()
