"""The `tsmalloc` command: finds and runs the verb, and reports each failure in one message."""

import difflib
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from tsmlab import __version__
from tsmlab.commands import Group
from tsmlab.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, UserError, discard, print_error


class Verb(NamedTuple):
    """A verb and its line of help, known without importing its module."""

    name: str
    summary: str


VERBS = (
    Verb("compare", "Run a program under every allocator and show which is best for it."),
    Verb("service", "Load a server under every allocator, and show which is best for it."),
    Verb("gate", "Check a program for regressions against a baseline, before a merge."),
    Verb("tune", "Search for allocator options that suit a program better."),
    Verb("bench", "Run the project's own workloads under tsmalloc and its peers."),
    Verb(
        "experiment", "Run experiments about allocators: those of the source reports, or your own."
    ),
    Verb("record", "Record a program's allocator calls as a trace."),
    Verb("replay", "Replay a recorded program's calls on every allocator, and compare."),
    Verb("analyze", "Show what a recorded program did with its memory."),
    Verb("report", "Write results as a self-contained page with figures, plus data files."),
    Verb("list", "List the allocators that can be used here."),
    Verb("fetch", "Build the newest mimalloc, jemalloc, tcmalloc and others, to compare with."),
    Verb("run", "Run a program under one allocator."),
    Verb("doctor", "Check whether an allocator can be preloaded into a program, with proof."),
    Verb("worker", "Join a cluster as a measurement worker."),
    Verb("explain", "Show where the resident memory of a running process is."),
    Verb("stats", "Print the statistics of tsmalloc in a running process."),
    Verb("top", "Show where the resident memory of a running process is, and how that changes."),
    Verb("profile", "Take a heap profile, or read one: which lines hold the memory?"),
    Verb("purge", "Return the free pages of a running process to the operating system."),
    Verb("set", "Change the options of tsmalloc in a running process, or print them."),
    Verb("lib", "Print the path of an allocator's library, to preload it yourself."),
)

# The verbs of the native command.
NATIVE = ("explain", "stats", "top", "purge", "set")

DESCRIPTION = """\
Find out which memory allocator is best for YOUR program.

tsmalloc brings its engine and eighteen teaching allocators (six ways to share a heap between
threads, times three ways to choose a free block), finds those that are installed on this machine
(glibc, jemalloc, mimalloc, tcmalloc, ...), runs any dynamically linked program under each of them
with LD_PRELOAD, and compares time and memory, with confidence intervals. The program needs no
change.

\b
Start here:
  tsmalloc compare -- ./server --selftest     compare all allocators on a program
  tsmalloc list                               the allocators that were found
  tsmalloc doctor ./server                    can an allocator be preloaded?
  tsmalloc run lock-best -- ./server          run it under one allocator

Add an allocator of your own with --allocator NAME=PATH.so. A verb's options come before the
program; the program and everything after it form its command (-- marks where it begins).
"""

FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

EPILOG = """\
\b
Exit status: 0 success; 1 usage or environment error; 130 interrupted.
2 the program failed under an allocator; `doctor`: nothing can be preloaded into it; for a running
process: it does not exist, has no tsmalloc, or permission is denied.
3 `gate` found a regression; `profile leaks --exit-code`: a site has grown.
`run`, `profile` and `top` exit with the program's status; 126 if it cannot be executed, 127 if it
is not found.
Results go to stdout, progress and warnings to stderr. NO_COLOR turns colours off.
"""


class VerbGroup(Group):
    """A group that imports a verb's module only when that verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb.name for verb in VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        file = "native" if cmd_name in NATIVE else cmd_name
        try:
            module = importlib.import_module(f"tsmlab.commands.{file}")
        except ModuleNotFoundError as error:
            raise UserError(
                f"cannot load the verb {cmd_name}: {error}.",
                "Set up the lab again: remove .venv in the repository, then run ./tsmalloc.",
            ) from error
        command = module.command_of(cmd_name) if cmd_name in NATIVE else module.command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args[0] not in names:
            near = difflib.get_close_matches(args[0], names, n=1)
            guess = f"Did you mean `tsmalloc {near[0]}`? " if near else ""
            if not near and "/" in args[0]:
                guess = f"To compare allocators on this program: tsmalloc compare -- {args[0]} "
            raise UserError(
                f"unknown verb {args[0]!r}.", f"{guess}`tsmalloc --help` lists all verbs."
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs (for details: tsmalloc VERB --help)"):
            formatter.write_dl([(verb.name, verb.summary) for verb in VERBS])


@click.command(
    cls=VerbGroup,
    subcommand_metavar="VERB [ARGS]...",
    help=DESCRIPTION,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="tsmalloc")
def tsmalloc() -> None:
    """The group itself does nothing: its verbs do."""


def main(arguments: Sequence[str] | None = None) -> int:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the caller closed it; the lowest free number becomes its
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 until the end
    try:
        return _run(arguments)
    finally:
        try:
            sys.stderr.flush()
        except OSError:  # a full disk: the interpreter would flush once more, and fail
            discard(sys.stderr)


def _run(arguments: Sequence[str] | None) -> int:
    colour = False if os.environ.get("NO_COLOR") else None
    try:
        # dev/setup blocks it until here, where it is handled.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        status = tsmalloc.main(
            args=arguments, prog_name="tsmalloc", standalone_mode=False, color=colour
        )
        sys.stdout.flush()  # here a full disk is still an error, not a lost result
    except UserError as error:
        print_error(error.render())
        return error.exit_code
    except click.ClickException as error:
        words = sys.argv[1:] if arguments is None else arguments
        print_error(usage_error(error, words).render())
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        print_error("tsmalloc: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader is gone, as with `| head`: no message. (click catches most of these itself, and
        # also exits with status 1.)
        discard(sys.stdout)
        return EXIT_USAGE
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        discard(sys.stdout)
        message = f"could not write the results: {error.strerror}."
        print_error(UserError(message, "Free some space, or write elsewhere.").render())
        return EXIT_USAGE
    return status if isinstance(status, int) else EXIT_OK


def usage_error(error: click.ClickException, words: Sequence[str]) -> UserError:
    """click's own complaint in our form. (For an option without a value, click does not say
    whose.)"""
    context = error.ctx if isinstance(error, click.UsageError) else None
    verb = f" {words[0]}" if words and words[0] in {v.name for v in VERBS} else ""
    help_command = f"{context.command_path if context else f'tsmalloc{verb}'} --help"
    return UserError(error.format_message(), f"See `{help_command}`.")
