"""Commands of packaging tests, in a minimal environment, and the artefacts to test."""

import fcntl
import hashlib
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt import merged, ran

ROOT = Path(__file__).resolve().parents[2]
MISSING = 2  # the exit status of a build without a required tool


@contextmanager
def one_worker_at_a_time(made):
    """Keeps other workers away while one makes something; the lock is a file next to it."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def artefacts(part):
    """The directory with the output of `dev/package part`, built once for all tests of a work tree.

    Skips the test if a tool is missing, with the build's message.
    """
    tree = b"".join(
        subprocess.run(["git", *command], cwd=ROOT, capture_output=True, check=True).stdout
        for command in (("rev-parse", "HEAD"), ("diff", "--binary", "HEAD"))
    )
    key = hashlib.sha256(tree).hexdigest()
    folder = ROOT / "build" / "artefacts" / part
    stamp = folder.with_suffix(".stamp")
    with one_worker_at_a_time(folder):
        if not stamp.is_file() or stamp.read_text() != key:
            stamp.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            done = ran(ROOT / "dev" / "package", part, "--output", folder, timeout=3600)
            if done.returncode == MISSING:
                pytest.skip(done.stderr.strip())
            assert done.returncode == 0, f"dev/package {part}:\n{done.stdout}{done.stderr}"
            stamp.write_text(key)
    return folder


def run(*command, cwd=None, **environment):
    """The output of a command that must succeed, stdout and stderr together."""
    status, said = try_to_run(*command, cwd=cwd, **environment)
    assert status == 0, f"{' '.join(map(str, command))} ends with {status}:\n{said}"
    return said


def try_to_run(*command, cwd=None, **environment):
    """The exit status and the output of a command, in a minimal environment."""
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"} | environment
    return merged(*command, cwd=cwd, env=variables)
