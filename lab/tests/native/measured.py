"""`measure` as its users run it, and its answer."""

import json
import os
import subprocess

from tsmlab import paths


def run(*arguments, status=0, env=None, cwd=None):
    """Runs measure with these arguments, with an empty standard input."""
    done = subprocess.run(
        [paths.tool("measure"), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        env=os.environ | (env or {}),
        cwd=cwd,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done


def parse(line):
    """A tool's output, which must be one line."""
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return dict(json.loads(line))


def measure(command, *options):
    """The output for a command whose own output is discarded."""
    return parse(run(*options, "--stdout", "/dev/null", "--", *command).stdout)
