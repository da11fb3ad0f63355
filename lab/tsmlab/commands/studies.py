"""A verb that measures, from its command line to its exit status; with --resume, once more.

--resume continues whichever verb was interrupted: its journal has the words of the command line and
everything that was done.
"""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import click
from click.core import ParameterSource

from tsmlab import errors, export, paths, records, report, tables, texts
from tsmlab import journal as journals
from tsmlab.allocators import Allocator, check_malloc
from tsmlab.commands.parameters import export_targets, option
from tsmlab.errors import UserError, print_error
from tsmlab.export import Target
from tsmlab.fleet import Fleet, joined
from tsmlab.journal import Header, Journal
from tsmlab.progress import Reporter, reporter_for
from tsmlab.results import Outcome
from tsmlab.study import Study as Results

LATEST = "latest"
WORDS = "tsmlab.words"
JOURNAL = "tsmlab.journal"
# Options that may be given again to a resumed study: where its results go, and how it reports.
FREE = {
    *("as_json", "quiet", "verbose", "force", "report", "ignore_failure", "resume"),
    *("export_json", "export_csv", "export_markdown", "export_junit", "export_sarif"),
    "strict",
}

resume_option = option(
    "--resume [FILE]",
    "Resume an interrupted run: the latest, or the one in a journal FILE.",
    is_flag=False,
    flag_value=LATEST,
)


class Study(click.Command):
    """A command with the option --resume, with which it needs no arguments."""

    def __init__(self, *params: Any, **named: Any) -> None:
        super().__init__(*params, **named)
        arguments = [p for p in self.params if isinstance(p, click.Argument) and p.required]
        self._needed = arguments
        for argument in arguments:
            argument.required = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = list(args)
        rest = super().parse_args(ctx, args)
        if ctx.params["resume"] is not None:
            self._resume(ctx)
        for argument in self._needed:
            if not ctx.params[argument.name or ""]:
                name = argument.metavar or argument.human_readable_name
                raise click.MissingParameter(ctx=ctx, param=argument, param_hint=f"'{name}'")
        return rest

    def _resume(self, ctx: click.Context) -> None:
        """Takes the words from the journal, and the options from this command line that may
        change."""
        own = {
            name: value
            for name, value in ctx.params.items()
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        }
        for parameter in self.params:
            if parameter.name in own and parameter.name not in FREE:
                raise UserError(
                    f"--resume keeps the original options: {parameter.opts[-1]} cannot be given.",
                    "Leave it out, or start over without --resume.",
                )
        path, verb = own["resume"], _verb_of(ctx)
        journal = Journal.resume(journals.latest(verb) if path == LATEST else Path(path))
        try:
            self._check_place(journal, verb)
            before = self.make_context(ctx.info_name, list(journal.header.words), parent=ctx.parent)
        except (UserError, click.ClickException):
            journal.__exit__(None, None, None)
            raise
        ctx.params = {**before.params, **own, "seed": journal.header.seed}
        ctx.meta[WORDS], ctx.meta[JOURNAL] = journal.header.words, journal

    @staticmethod
    def _check_place(journal: Journal, verb: str) -> None:
        header = journal.header
        if header.verb != verb:
            raise UserError(
                f"{journal.path} is a journal of `tsmalloc {header.verb}`.",
                f"Resume it with: tsmalloc {header.verb} --resume {journal.path}",
            )
        if header.folder != str(paths.working_folder()):
            begun = f"the run was started in the directory {header.folder}"
            if not Path(header.folder).is_dir():
                raise UserError(f"{begun}, which no longer exists.", "Start over without --resume.")
            raise UserError(f"{begun}.", f"cd {header.folder}")


def conduct(
    params: dict[str, Any],
    seed: int,
    allocators: Iterable[Allocator],
    files: Iterable[Path],
    run: Callable[[Journal, Reporter, Fleet | None], Outcome[Results]],
    status_of: Callable[[Results], int] = lambda _: errors.EXIT_OK,
    notes: Sequence[str] = (),
) -> int:
    """Measures, saves and prints; returns the exit status. params: the verb's parameters. files:
    what takes part besides the allocators' libraries. status_of: the exit status for results,
    unless something else decides it."""
    targets = export_targets(params, params["force"])
    folder, force = params.get("report"), params["force"]
    if folder:
        report.check(folder, force)
    if params["cpus"] is not None:
        os.sched_setaffinity(0, params["cpus"])
    let_termination_interrupt()
    taking_part = list(allocators)
    check_malloc(taking_part)
    with _journal(seed, taking_part, files) as journal:
        try:
            with reporter_for(params["quiet"]) as reporter:
                for note in notes:
                    reporter.note(note)
                if journal.done:
                    reporter.note(f"resumed    {journal.path}, after {journal.seconds:.0f} s")
                outcome = _run(run, journal, reporter, params.get("cluster"))
            found = replace(outcome.results, changed=journals.changed(journal.header.files))
            problems = publish(found, targets, params)
        except KeyboardInterrupt:
            # Before the first run, or while results were written: the journal has everything.
            _print_locations(journal, targets)
            raise
        if outcome.error is None and not found.interrupted and not problems:
            journal.remove()
        elif not params["quiet"]:
            _print_locations(journal, targets)
    if found.interrupted:
        print_error("tsmalloc: interrupted; the results above are partial")
        return errors.EXIT_INTERRUPTED
    if outcome.error is not None:
        print_error(outcome.error.render())
        return outcome.error.exit_code
    if problems:
        return errors.EXIT_USAGE
    failed = bool(found.failed_rows) and not params.get("ignore_failure")
    return errors.EXIT_PROGRAM_FAILED if failed else status_of(found)


def _run(
    run: Callable[[Journal, Reporter, Fleet | None], Outcome[Results]],
    journal: Journal,
    reporter: Reporter,
    cluster: str | None,
) -> Outcome[Results]:
    """Raises UserError if nothing has been measured; then there is nothing to resume."""
    taking_part = [Path(name) for name in journal.header.files]
    try:
        with joined(cluster, taking_part, reporter.note) as fleet:
            return run(journal, reporter, fleet)
    except UserError:
        if not journal.done:
            journal.remove()
        raise


def _journal(seed: int, allocators: Iterable[Allocator], files: Iterable[Path]) -> Journal:
    """The journal to continue, if what it began is still there; otherwise a new one."""
    context = click.get_current_context()
    now = Header.of(_verb_of(context), context.meta[WORDS], seed, allocators, files)
    resumed: Journal | None = context.meta.get(JOURNAL)
    if resumed is None:
        return Journal.begin(now)
    try:
        resumed.header.check(now)
    except UserError:
        resumed.__exit__(None, None, None)
        raise
    return resumed


def _verb_of(context: click.Context) -> str:
    """The verb, without the subcommand `run`."""
    named = context.parent if context.parent and context.info_name == "run" else context
    return named.info_name or ""


def _print_locations(journal: Journal, targets: Sequence[Target]) -> None:
    verb = journal.header.verb
    command = f"{verb} run" if verb == "experiment" else verb
    force = " --force" if any(target.path.is_file() for target in targets) else ""
    print_error(f"journal    {journal.path}")
    print_error(f"resume     tsmalloc {command} --resume{force}")


# --- the end: results are saved, exported and printed ---------------------------------------------


def publish(results: Results, targets: Sequence[Target], params: dict[str, Any]) -> bool:
    """Saves, exports and prints; files first, since the reader of stdout may be gone. Returns
    whether any of it failed. The report of --report comes last, since it takes seconds; without
    --report, a line says how to get one."""
    quiet, folder, has_page = params["quiet"], params.get("report"), "report" in params
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
    as_json = params["as_json"]
    text = records.to_json(results) if as_json else tables.for_stdout(texts.report, results)
    if problem := _print(text):
        problems.append(f"{problem} {where}".rstrip())
    if not quiet:
        for line in texts.warning_lines(results.warnings, params["verbose"]):
            print_error(line)
        if kept:
            print_error(f"results    {kept}")
            if has_page and folder is None:
                command = f"tsmalloc report {shlex.quote(str(kept))}"
                print_error(f"report     {command}    (for a page with figures)")
    if has_page and folder:
        if not quiet:
            print_error(f"drawing    {folder} (takes a few seconds)")
        try:
            print_error(f"report     {report.write(results, folder, params['force'])}")
        except UserError as error:
            problems.append(f"{error.message}\n  {error.remedy} {where}".rstrip())
    for problem in problems:
        print_error(f"tsmalloc: {problem}")
    return bool(problems)


def _print(text: str) -> str | None:
    """Prints to stdout; returns what went wrong. A reader that closes the pipe (as `| head` does)
    has read enough, which is not an error."""
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except OSError as error:
        errors.discard(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            return f"could not print the results: {error.strerror}."
    return None


def let_termination_interrupt() -> None:
    """SIGTERM and SIGHUP end the measuring as Ctrl-C does: the measurements are kept. (A verb under
    nohup continues.)"""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, interrupt)
