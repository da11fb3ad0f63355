"""The end of a verb that measured: results are kept, exported and printed, and the status told.

Why: however the measuring ended, what was measured must not be lost, and everybody must be told
where it is.
Refuses to: fail in the middle. A file that cannot be written is a message and an exit status.
"""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import click

from tsmlab import export, records, render, report, tables
from tsmlab.errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_PROGRAM_FAILED,
    EXIT_USAGE,
    UserError,
)
from tsmlab.export import Target
from tsmlab.report import Results
from tsmlab.results import Trouble


class Texts(Protocol):
    """A module that words results of a kind."""

    @property
    def formatted(self) -> Callable[[Any, export.Format], str]: ...
    def report(self, results: Any, width: int, colours: bool = ..., /) -> str: ...
    def troubles(self, results: Any, /) -> Sequence[Trouble]: ...


class Measured(records.Kept, Protocol):
    @property
    def interrupted(self) -> bool: ...


@dataclass(frozen=True)
class Publication:
    """Results, and what words them. status: to exit with, unless something else counts."""

    results: Measured
    texts: Texts
    failed: bool
    status: int = EXIT_OK


def publish(
    publication: Publication,
    targets: Sequence[Target],
    as_json: bool,
    quiet: bool,
    folder: Path | None,
    force: bool,
) -> bool:
    """Keeps, exports and prints; files first, since a reader of stdout may go away. Returns whether
    any of it failed. The report of --report comes last, since it takes seconds; without it, a line
    says how to have one."""
    results, texts = publication.results, publication.texts
    page = results if isinstance(results, Results) else None
    problems: list[str] = []
    kept: Path | None = None
    try:
        kept = records.save(results)
    except UserError as error:
        problems.append(f"{error.message}\n  {error.remedy}")
    where = f"All results are in {kept}." if kept else ""
    problems += [
        f"could not write {target}. {where}".rstrip()
        for target in export.write_all(partial(texts.formatted, results), targets)
    ]
    text = records.to_json(results) if as_json else tables.for_stdout(texts.report, results)
    if problem := _print(text):
        problems.append(problem)
    if not quiet:
        for line in render.warning_lines(texts.troubles(results)):
            click.echo(line, err=True)
        if kept:
            click.echo(f"results    {kept}", err=True)
            if page and folder is None:
                command = f"tsmalloc report {shlex.quote(str(kept))}"
                click.echo(f"report     {command}    (a page with figures)", err=True)
    if page and folder and (problem := _report(page, folder, force)):
        problems.append(f"{problem} {where}".rstrip())
    for problem in problems:
        click.echo(f"tsmalloc: {problem}", err=True)
    return bool(problems)


def _report(page: Results, folder: Path, force: bool) -> str | None:
    """Writes the report and says where it is; returns what went wrong."""
    try:
        click.echo(f"report     {report.write(page, folder, force)}", err=True)
    except UserError as error:
        return f"{error.message}\n  {error.remedy}"
    return None


def _print(text: str) -> str | None:
    """To stdout; returns what went wrong. A reader who goes away (as `| head` does) has read
    enough, which is nothing wrong."""
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes stdout again at its end, which must not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return f"could not print the results: {error.strerror}."
    return None


def exit_status(
    interrupted: bool, error: UserError | None, problems: bool, failed: bool, status: int = EXIT_OK
) -> int:
    """The status of a verb that measured, and what remains to be said of it."""
    if interrupted:
        click.echo("tsmalloc: interrupted; the above is what was measured until then", err=True)
        return EXIT_INTERRUPTED
    if error is not None:
        click.echo(error.render(), err=True)
        return error.exit_code
    if problems:
        return EXIT_USAGE
    return EXIT_PROGRAM_FAILED if failed else status


def let_termination_interrupt() -> None:
    """SIGTERM ends the measuring as Ctrl-C does: with the measurements kept."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
