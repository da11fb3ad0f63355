"""dev/inspect: servers under load answer every request while verbs inspect them."""

import sys

import pytest
from prompt import ran, script

from tsmlab import paths

SCRIPT = paths.repository_root() / "dev" / "inspect"


def run(*arguments):
    command = [sys.executable, SCRIPT, *map(str, arguments)]
    return ran(*command, timeout=300)


@pytest.mark.parametrize("part", ["cost", "live", "static", "namespaces", "redis"])
def test_what_has_to_hold_does(part):
    done = run(
        "--build", paths.build_dir(), "--gib", "0.2", "--seconds", "1", "--repeat", "1", part
    )
    if "not tried" in done.stdout:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done
    assert done.stdout.startswith("| what | goal | measured |")
    assert done.stdout.count("\n") > 2


def test_parts_that_do_not_add_up_are_found(tmp_path):
    (tmp_path / "lib").symlink_to(paths.library_dir())
    tool = tmp_path / "bin" / "tsmalloc"
    tool.parent.mkdir()
    script(tool, '#!/bin/sh\necho \'{"resident_bytes": 3, "resident": {"files": 2}}\'\n')
    done = run("--build", tmp_path, "--seconds", "1", "--gib", "0.1", "static", "cost")
    assert done.returncode == 1
    assert done.stdout.count("**") == 4


@pytest.mark.parametrize("arguments", [("--build", "/nowhere"), ("lunch",)])
def test_wrong_usage(arguments):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
