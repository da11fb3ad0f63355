"""Shell completion, with the lab and with only the native command."""

import os
import shlex
import shutil
import sys

import pytest
from prompt import ran, script

from tsmlab import cli, paths

SCRIPTS = paths.repository_root() / "tools" / "completion"
NATIVE = {"run", "lib", "explain", "stats", "top", "purge", "set", "profile"}
IN_BASH = """\
source {scripts}/tsmalloc.bash
COMP_WORDS=({line}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_tsmalloc
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module", params=["lab", "native"])
def folder(request, tmp_path_factory):
    """Whether the shell has the command tsmalloc."""
    folder = tmp_path_factory.mktemp(request.param)
    command = folder / "tsmalloc"
    if request.param == "native":
        shutil.copy(paths.tool("tsmalloc"), command)
    else:
        environment = f"PYTHONPATH={shlex.quote(os.pathsep.join(sys.path))}"
        script(command, f'#!/bin/sh\nexec env {environment} {sys.executable} -m tsmlab "$@"\n')
    return folder


@pytest.fixture(params=["bash", "fish"])
def shell(request):
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


def completed(shell, folder, line):
    """The candidates for the last word of a line."""
    code = IN_BASH.format(scripts=SCRIPTS, line=line)
    if shell == "fish":
        line = line.removesuffix("''")
        code = f"source {SCRIPTS}/tsmalloc.fish; complete -C {shlex.quote(line)}"
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
    done = ran(shell, "-c", code, env=environment, cwd=folder, status=0)
    assert done.stderr == ""
    return {each.split("\t")[0] for each in done.stdout.split("\n")} - {""}


def test_verbs(shell, folder):
    verbs = {verb.name for verb in cli.VERBS} if folder.name.startswith("lab") else NATIVE
    assert verbs <= completed(shell, folder, "tsmalloc ''")
    assert completed(shell, folder, "tsmalloc ex") == {each for each in verbs if each[:2] == "ex"}


def test_options_and_their_values(shell, folder):
    found = completed(shell, folder, "tsmalloc profile --in")
    if folder.name.startswith("native"):
        assert found == {"--interval"}
        return
    assert {"--by", "--type"} <= completed(shell, folder, "tsmalloc profile show --")
    assert completed(shell, folder, "tsmalloc profile show --by ''") == {
        "function",
        "line",
        "stack",
    }
    assert completed(shell, folder, "tsmalloc profile fl") == {"flame"}


def test_words_that_are_not_known_are_left_to_the_shell(shell, folder):
    (folder / "a_file").touch()
    assert completed(shell, folder, "tsmalloc run a_f") == (
        {"a_file"} if shell == "fish" else set()
    )


def test_programs_behind_the_border(shell, folder):
    assert "mkdir" in completed(shell, folder, "tsmalloc run -- mkd")
