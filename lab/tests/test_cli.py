"""The command line itself: help, errors, exit statuses, and the verbs list, lib and run."""

import json
import os
import signal
import sys

import prompt
import pytest
from refusals import mentions

from tsmlab import __version__, cli, paths


@pytest.fixture(scope="module")
def library(build):
    """A library that prints to stderr when loaded."""
    source = (
        "#include <unistd.h>\n"
        '__attribute__((constructor)) static void tell(void) { write(2, "loud\\n", 5) ; }\n'
    )
    return build("libloud.so.c", source, "-w", "-shared", "-fPIC")


def test_help_names_every_verb_and_the_first_step(tsmalloc):
    shown = tsmalloc("--help").stdout
    verbs = (f"  {verb.name} " for verb in cli.VERBS)
    mentions(shown, *verbs, "tsmalloc compare -- ", "Exit status")


@pytest.mark.parametrize("words", [[], ["experiment"], ["profile"]])
def test_where_no_verb_is_named_help_is_an_error(tsmalloc, words):
    asked = tsmalloc(*words, status=1)
    assert (asked.stdout, asked.stderr[:6]) == ("", "Usage:")


@pytest.mark.parametrize("verb", [verb.name for verb in cli.VERBS])
def test_every_verb_has_help(tsmalloc, verb):
    shown = tsmalloc(verb, "--help")
    assert shown.stderr == ""
    assert shown.stdout.startswith(f"Usage: tsmalloc {verb} ")


def test_version_is_that_of_the_library(tsmalloc):
    assert tsmalloc("--version").stdout == f"tsmalloc, version {__version__}\n"
    told = prompt.ran(sys.executable, paths.repository_root() / "dev" / "version.py", status=0)
    assert told.stdout == f"{__version__}\n"


def test_the_border_before_a_program_is_passed_on(tsmalloc):
    tsmalloc("top", "--", "sh", "-c", "exit 7", status=7)


def test_interruption_and_a_missing_verb_module_have_their_exit_status(monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "VERBS", (cli.Verb("future", "Not there yet."),))
    assert cli.main(["future"]) == 1
    assert "future" in capsys.readouterr().err
    monkeypatch.setattr(cli.tsmalloc, "main", interrupt)
    assert cli.main(["list"]) == 130


def test_an_interrupt_that_came_while_the_lab_was_loaded_is_answered():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process = prompt.start("list")  # with the signal mask, as dev/setup starts it
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert (process.returncode, said) == (130, "tsmalloc: interrupted\n")


def test_full_disk_is_an_error_and_a_reader_that_goes_away_is_met_with_silence():
    def ended(*words, stdout):
        process = prompt.start(*words, stdout=stdout)
        os.close(stdout)
        _, said = process.communicate()
        return process.returncode, said

    status, said = ended("list", stdout=os.open("/dev/full", os.O_WRONLY))
    assert (status, "No space left on device" in said) == (1, True)
    reader, writer = os.pipe()
    os.close(reader)
    assert ended("--help", stdout=writer) == (1, "")


def test_list_shows_a_table(tsmalloc, library):
    shown = tsmalloc("list", "--allocator", f"loud={library}")
    head, *rows = shown.stdout.splitlines()
    assert head.split() == ["NAME", "FAMILY", "VERSION", "DESCRIPTION", "LIBRARY"]
    column = head.index("LIBRARY")
    paths_shown = {row.split()[0]: row[column:] for row in rows}
    assert paths_shown["loud"] == str(library)
    assert paths_shown["glibc"] == "(the program's own)"


def test_list_as_json_agrees_with_lib(tsmalloc, library):
    document = json.loads(tsmalloc("list", "--json", "--allocator", f"loud={library}:A=b").stdout)
    assert document["schema"] == "tsmalloc-list/1"
    by_name = {allocator["name"]: allocator for allocator in document["allocators"]}
    assert by_name["loud"]["env"] == {"A": "b"}
    assert len(by_name["loud"]["sha256"]) == 64
    assert by_name["glibc"]["path"] is None
    assert tsmalloc("lib", "lock-best").stdout == f"{by_name['lock-best']['path']}\n"


# tests/tools/test_front.py compares `run` with the native command's: exit statuses, signals, what
# cannot be started.
def test_run_preloads_and_passes_everything_on(tsmalloc, library):
    own = ("run", "--allocator", f"loud={library}:KEY=value", "loud", "--")
    script = 'echo "$0|$*|$KEY|$LD_PRELOAD"; exit 7'
    shown = tsmalloc(*own, "sh", "-c", script, "zero", "--json", "-h", "a b", status=7)
    assert shown.stdout == f"zero|--json -h a b|value|{library}\n"
    assert shown.stderr.startswith("loud\n")
    assert tsmalloc("run", "glibc", "echo", "--force", "-n").stdout == "--force -n\n"


def test_run_keeps_preloads_and_means_the_engine(tsmalloc, library):
    other = library.with_name("libother.so")
    other.write_bytes(library.read_bytes())
    own, show = ("--allocator", f"loud={library}"), ("sh", "-c", 'echo "$LD_PRELOAD"')
    engine = tsmalloc("lib").stdout
    assert engine == tsmalloc("lib", "tsmalloc").stdout
    for words, more, expected in (
        ((*own, "loud"), {"LD_PRELOAD": str(other)}, f"{library}:{other}\n"),
        ((), {}, engine),
        (own, {}, engine),
    ):
        assert tsmalloc("run", *words, "--", *show, **more).stdout == expected


def test_run_gives_the_program_default_signals(tsmalloc):
    """Python ignores SIGPIPE; a program that inherits that would not end when its reader does."""
    shown = tsmalloc("run", "glibc", "grep", "SigIgn", "/proc/self/status")
    ignored = int(shown.stdout.split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1))


def test_run_refuses_what_it_cannot_reach(tsmalloc, library, build):
    program = build("static.c", "int main(void) { return 5; }\n", "-static")
    mine = ("--allocator", f"loud={library}")
    refused = tsmalloc("run", *mine, "loud", str(program), status=1)
    mentions(refused.stderr, f"{program.name} ", "--force")
    tsmalloc("run", *mine, "--force", "loud", str(program), status=5)
    tsmalloc("run", "glibc", str(program), status=5)
