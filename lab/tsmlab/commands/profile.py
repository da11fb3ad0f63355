"""`tsmalloc profile`: heap profiles, taken and read."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import click

from tsmlab import export, paths
from tsmlab.commands import Group, parameters
from tsmlab.commands.parameters import FILE, Command, whole
from tsmlab.doctor import Diagnosis, diagnose
from tsmlab.errors import EXIT_OK, EXIT_REGRESSION, EXIT_USAGE, UserError, tell
from tsmlab.profile import capture, changes, messages, model, sites, symbols, text
from tsmlab.profile.changes import Changes, Look
from tsmlab.profile.model import Profile, Type
from tsmlab.profile.sites import By
from tsmlab.records import write_atomically
from tsmlab.wording import counted, quantity

SCHEMA = "tsmalloc-profile/1"
TOP = 20
MOST_INTERVAL = 1 << 30
# Processes beside the one that is shown.
MOST_NAMED = 5
# Of what was allocated: where less is live at the exit, the peak tells more.
LITTLE_LIVE = 0.1
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def interval_bytes(value: str) -> int:
    """Bytes, or a number with K, M or G behind it."""
    match = re.fullmatch(r"(\d{1,13})([KMG]?)(?:i?B)?", value)
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 1 <= size <= MOST_INTERVAL:
        raise click.BadParameter(f"{value!r} is no size from 1 to 1G, like 65536, 512K or 2M")
    return size


# --- options -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """How a profile is read and shown."""

    by: By = "function"
    of: Type = "inuse"
    whole: bool = False
    top: int = TOP
    as_json: bool = False


_OPTIONS = {
    "by": click.option(
        "--by",
        type=click.Choice(["function", "line", "stack"]),
        default="function",
        show_default=True,
        help="What is put together.",
    ),
    "of": click.option(
        "--type",
        "of",
        type=click.Choice(["inuse", "alloc", "pinned"]),
        default="inuse",
        show_default=True,
        help="What is live, all that was allocated, or the free room in slabs that live blocks "
        "pin.",
    ),
    "whole": click.option(
        "--library",
        "whole",
        is_flag=True,
        help="Show calls within the libraries of C, C++ and Rust, too.",
    ),
    "top": click.option(
        "--top",
        type=whole(1),
        default=TOP,
        show_default=True,
        metavar="N",
        help="The rows that are printed.",
    ),
    "as_json": click.option("--json", "as_json", is_flag=True, help="Print JSON instead."),
}
force_option = click.option("-f", "--force", is_flag=True, help="Overwrite the file.")


def reading(*names: str) -> Callable[[Command], Command]:
    """These options of a verb, which gets them as `how`; --json is always among them."""

    def decorate(verb: Command) -> Command:
        @wraps(verb)
        def call(**given: Any) -> Any:
            own = {
                each.name: given.pop(each.name) for each in fields(Reading) if each.name in given
            }
            return verb(how=Reading(**own), **given)

        for name in reversed((*names, "as_json")):
            call = _OPTIONS[name](call)
        return call

    return decorate


def output_option(what: str) -> Callable[[Command], Command]:
    return click.option(
        "-o", "--output", type=FILE, required=True, metavar="FILE", help=f"{what} to write."
    )


# --- the verb without a verb: of a process, or of a program --------------------------------------


def take(arguments: Sequence[str]) -> NoReturn:
    """Has the native command take the profile of a running process, and shows it."""
    command = [str(paths.tool("tsmalloc")), "profile", "take", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as taking:
        # What ends the sampling early is the native command's, which keeps the profile.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: taking.send_signal(number))
        said, _ = taking.communicate()
    click.echo(said, nl=False)
    path = said.rstrip("\n").rpartition(" of blocks in use: ")[2]
    if taking.returncode == EXIT_OK and path and said.count("\n") == 1:
        click.echo()
        _show(*opened(Path(path), Reading()), Reading())
    raise SystemExit(taking.returncode)


def first_word(arguments: Sequence[str]) -> str:
    """The first that is neither an option of taking a process's profile nor its value, if any."""
    words = iter(arguments)
    for word in words:
        if word in ("--seconds", "--interval", "--output", "-o"):
            next(words, "")
        elif word not in ("--keep", "--peak", "--force", "-f"):
            return word
    return ""


class Verbs(Group):
    """A group in which `profile [OPTIONS] -- PROGRAM` is `profile run [OPTIONS] -- PROGRAM`, and
    `profile [OPTIONS] PID` is the native command's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            return super().parse_args(ctx, args)
        word = first_word(args)
        if args[0] not in self.commands and "--" in args:
            args = ["run", *args]
        elif word not in (*self.commands, "-h", "--help"):
            if not word or word.startswith("-") or word.isdigit():
                take(args)
            file = Path(word)
            remedy = f"To take one: {ctx.command_path} -- CMD"
            if file.is_file():
                verb = f"-- {word}" if os.access(file, os.X_OK) else f"show {word}"
                remedy = f"Did you mean {ctx.command_path} {verb}?"
            raise UserError(
                f"`profile` has no verb {word!r}.",
                f"{remedy}\nIts verbs are {', '.join(self.commands)}.",
            )
        return super().parse_args(ctx, args)


@click.group("profile", cls=Verbs)
def command() -> None:
    """Take a heap profile, or read one: which lines hold the memory, and how sure that is.

    All sums are estimates from samples, and stand with their 95 % interval. Names and lines come
    from the binaries on this machine.

    Of a running process: tsmalloc profile [--seconds N] [--interval BYTES] [--peak] [--keep]
    [--output FILE] PID. It is read as it is if it takes samples already; else it takes them for N
    seconds, 10 by default, and on with --keep. --peak is of the blocks in use at the peak.

    \b
    Examples:
      tsmalloc profile 4711
      tsmalloc profile --seconds 60 -o server.pb 4711
      tsmalloc profile -- ./server --selftest
      tsmalloc profile show server.pb
      tsmalloc profile diff before.pb after.pb
      tsmalloc profile leaks first.pb later.pb --exit-code
      tsmalloc profile flame server.pb -o server.html

    docs/formats/profile.md has the file and the formulae; google/pprof reads it, too.
    """


# --- reading -------------------------------------------------------------------------------------


def opened(path: Path, how: Reading) -> tuple[Look, list[str]]:
    """A profile with names, and notes of addresses that have none."""
    return resolved(model.read(path), how)


def resolved(profile: Profile, how: Reading) -> tuple[Look, list[str]]:
    if how.of == "pinned" and (not profile.has_pinned or profile.comment("kind") == "peak"):
        raise UserError(
            f"{profile.path} does not say what is pinned.",
            "A profile of the moment does: `tsmalloc profile PID`. None of the peak does, nor any "
            "that an earlier version wrote.",
        )
    found = symbols.look_up(profile)
    return Look(profile, sites.Stacks(profile, found, how.whole)), found.notes


def about(profile: Profile) -> dict[str, Any]:
    return {
        "file": str(profile.path),
        "command": profile.comment("command"),
        "pid": profile.pid,
        "kind": profile.comment("kind"),
        "time_nanos": profile.time_nanos,
        "duration_nanos": profile.duration_nanos,
        "period_bytes": profile.period,
        "began_after_seconds": profile.began_after,
        "paused_seconds": profile.paused,
        "in_use_bytes": profile.in_use,
        "uncovered_bytes": round(text.uncovered(profile)),
        "dropped": profile.dropped,
    }


def print_json(verb: str, **values: Any) -> None:
    click.echo(json.dumps({"schema": SCHEMA, "verb": verb, **values}))


@command.command("show")
@reading("by", "of", "whole", "top")
@click.argument("file", type=FILE)
def show(file: Path, how: Reading) -> int:
    """Show where the memory of the profile FILE was asked for.

    Flat: requests of the function itself, or by calls of its language's libraries; cumulative: with
    what it calls.

    Exit status: 0; 1 wrong usage, or a file that is no profile.
    """
    _show(*opened(file, how), how)
    return EXIT_OK


def _show(
    look: Look, notes: list[str], how: Reading, *, err: bool = False, with_ages: bool = False
) -> None:
    found = sites.gather(look.profile, look.stacks, how.by, how.of)
    if not how.as_json:
        report = text.shown(look.profile, found, how.by, how.of, how.top, notes, with_ages)
        click.echo(report, nl=False, err=err)
        return
    print_json(
        "show",
        profile=about(look.profile),
        type=how.of,
        by=how.by,
        total=found.total.to_json(),
        objects=round(found.objects.total),
        block_bytes=round(found.blocks),
        sites=[site.to_json() for site in found.sites],
        notes=notes,
    )


@command.command("diff")
@reading("by", "of", "whole", "top")
@click.argument("before", type=FILE)
@click.argument("after", type=FILE)
def diff(before: Path, after: Path, how: Reading) -> int:
    """Show what has changed from the profile BEFORE to the profile AFTER.

    A site is marked as grown or shrunk only if chance would mark any site at all in one comparison
    of twenty. Two profiles of one process share their samples, which makes the errors smaller.

    Exit status: 0; 1 wrong usage, or a file that is no profile.
    """
    first, second, notes = _two(before, after, how)
    found = changes.between(first, second, how.by, how.of)
    if how.as_json:
        _print_changes("diff", first, second, found, notes, type=how.of, by=how.by)
    else:
        report = text.difference(first.profile, second.profile, found, how.top, notes)
        click.echo(report, nl=False)
    return EXIT_OK


def _two(before: Path, after: Path, how: Reading) -> tuple[Look, Look, list[str]]:
    first, notes = opened(before, how)
    second, more = opened(after, how)
    builds = changes.other_builds(first.profile, second.profile)
    return first, second, list(dict.fromkeys([*notes, *more, *builds]))


def _print_changes(
    verb: str, first: Look, second: Look, found: Changes, notes: list[str], **values: Any
) -> None:
    print_json(
        verb,
        before=about(first.profile),
        after=about(second.profile),
        **values,
        same_process=found.same_process,
        seconds=found.seconds,
        total=found.total.to_json(),
        sites=[site.to_json() for site in found.sites],
        notes=notes,
    )


@command.command("leaks")
@reading("whole", "top")
@click.option("--exit-code", is_flag=True, help="Exit with 3 if a site has grown.")
@click.argument("file", type=FILE)
@click.argument("later_file", type=FILE, required=False)
def leaks(file: Path, later_file: Path | None, exit_code: bool, how: Reading) -> int:
    """List the stacks whose memory is live in FILE, with its age; or that grew until LATER_FILE.

    Nothing is said about what the program can still reach: a cache that fills grows, too.

    Exit status: 0; 1 wrong usage, or a file that is no profile; with --exit-code 3 if a site is
    shown to have grown.
    """
    if later_file is None:
        if exit_code:
            raise UserError("--exit-code needs two looks.", "Name a later profile, too.")
        _show(*opened(file, how), replace(how, by="stack"), with_ages=True)
        return EXIT_OK
    first, second, notes = _two(file, later_file, how)
    if first.profile.time_nanos > second.profile.time_nanos:
        raise UserError(f"{file} is later than {later_file}.", "Name the earlier one first.")
    grown = changes.between(first, second, "stack", "inuse")
    if how.as_json:
        _print_changes("leaks", first, second, grown, notes)
    else:
        click.echo(text.growth(first.profile, second.profile, grown, how.top, notes), nl=False)
    return EXIT_REGRESSION if exit_code and grown.grown else EXIT_OK


@command.command("flame")
@output_option("The page")
@force_option
@reading("of", "whole")
@click.argument("file", type=FILE)
def flame(file: Path, output: Path, force: bool, how: Reading) -> int:
    """Draw the profile FILE as a flame graph: one page that stands alone.

    Exit status: 0; 1 wrong usage, or a file that is no profile.
    """
    # Imported here: no other verb needs it.
    from tsmlab.profile import flame as page  # noqa: PLC0415

    export.check_new(output, force)
    look, notes = opened(file, how)
    content = page.page(look.profile, look.stacks, how.of, notes)
    parameters.write(output, content)
    if how.as_json:
        print_json("flame", page=str(output), bytes=len(content.encode()), notes=notes)
    else:
        click.echo(str(output))
    return EXIT_OK


@command.command("folded")
@reading("of", "whole")
@click.argument("file", type=FILE)
def folded(file: Path, how: Reading) -> int:
    """Print the stacks of FILE on a line each, outermost first, with their bytes.

    Exit status: 0; 1 wrong usage, or a file that is no profile.
    """
    look, notes = opened(file, how)
    lines = sites.folded(look.profile, look.stacks, how.of)
    if how.as_json:
        stacks = [{"stack": line.split(";"), **e.to_json()} for line, e in lines.items()]
        print_json("folded", profile=about(look.profile), type=how.of, stacks=stacks, notes=notes)
        return EXIT_OK
    for line, estimate in lines.items():
        click.echo(f"{line} {estimate.total:.0f}")
    _tell(notes)
    return EXIT_OK


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        tell(f"tsmalloc: {note}")


@command.command("symbolize")
@output_option("The profile with names")
@force_option
@reading()
@click.argument("file", type=FILE)
def symbolize(file: Path, output: Path, force: bool, how: Reading) -> int:
    """Write the profile FILE with functions, lines and inlined frames, for a machine without the
    binaries.

    Exit status: 0; 1 wrong usage, or a file that is no profile.
    """
    export.check_new(output, force)
    message = messages.read(file)
    found = symbols.look_up(model.of_message(message, file))
    symbols.name_locations(message, found)
    parameters.write(output, messages.packed(message))
    lines = sum(any(f.line for f in frames) for frames in found.frames.values())
    if how.as_json:
        values = {"output": str(output), "locations": len(found.frames), "with_lines": lines}
        print_json("symbolize", **values, notes=found.notes)
    else:
        click.echo(f"{output}: {lines:,} of {len(found.frames):,} addresses have a line")
        _tell(found.notes)
    return EXIT_OK


# --- a program -----------------------------------------------------------------------------------


def _of_process(_: click.Context, option: click.Parameter, value: object) -> None:
    if value:
        raise UserError(
            f"{option.opts[0]} is for a running process.",
            "A program is profiled from its start to its end.",
        )


@command.command("run", context_settings={"allow_interspersed_args": False})
@click.option(
    "--interval",
    type=interval_bytes,
    metavar="BYTES",
    help="The mean distance of samples. [default: the library's]",
)
@click.option(
    "-o", "--output", metavar="FILE", help="Keep the profile; in DIR/, those of all processes."
)
@force_option
@click.option("--seconds", hidden=True, expose_value=False, callback=_of_process)
@click.option("--keep", is_flag=True, hidden=True, expose_value=False, callback=_of_process)
@click.option("--peak", "is_peak", is_flag=True, help="What was live at the peak, not at the exit.")
@reading("by", "of", "whole", "top")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    interval: int | None,
    output: str | None,
    force: bool,
    is_peak: bool,
    program: Sequence[str],
    how: Reading,
) -> int:
    """Run PROGRAM under the engine with its profiler on, and show the profile.

    `profile -- PROGRAM` is the same. Each process leaves a profile, also if a signal or a crash
    ends it; that of the one that allocated most is shown, on stderr, since stdout is the program's.
    The exit status is the program's; 1 if it left no profile.
    """
    line = parameters.command_line(program, "profile")
    diagnosis = diagnose(line)
    if diagnosis.fatal and not _has_engine(diagnosis):
        raise diagnosis.refusal()
    kept = Path(output) if output is not None else None
    keeps_all = kept is not None and (str(output).endswith("/") or kept.is_dir())
    if kept is not None and not keeps_all:
        export.check_new(kept, force)
    if kept is not None and keeps_all:
        place = _folder(kept)
    else:
        place = Path(tempfile.mkdtemp(prefix="tsmalloc-profile-"))
    is_kept = keeps_all
    try:
        captured = capture.capture(line, interval, is_peak, place)
        for problem in captured.problems:
            tell(f"warning: {problem}")
        if not captured.profiles:
            raise UserError(
                f"the program left no profile (its exit status was {captured.status}).",
                "One that allocates little has no sample: --interval 1 takes each malloc.",
                captured.status or EXIT_USAGE,
            )
        look, notes = resolved(captured.profiles[0], how)
        _show(look, notes, how, err=not how.as_json)
        if kept is not None and not keeps_all:
            is_kept = True  # there, if it cannot be written
            _keep(look.profile.path, kept)
            is_kept = False
        if not how.as_json:
            if how.of == "inuse" and not is_peak:
                _point_to_peak(look.profile)
            _name_files(captured.profiles, output, keeps_all)
    finally:
        if not is_kept:
            shutil.rmtree(place, ignore_errors=True)
    return captured.status


def _folder(chosen: Path) -> Path:
    """The user's folder, without profiles so far."""
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{chosen} cannot be made a folder: {error.strerror}.", "Name another one."
        ) from error
    if any(chosen.glob(capture.FILES)):
        raise UserError(f"{chosen} holds profiles already.", "Name a new folder.")
    return chosen.absolute()


def _keep(profile: Path, output: Path) -> None:
    try:
        write_atomically(output, profile.read_bytes())
    except OSError as error:
        raise UserError(
            f"{output} cannot be written: {error.strerror}.", f"The profile is {profile}."
        ) from error


def _has_engine(diagnosis: Diagnosis) -> bool:
    """Whether nothing can be preloaded into the program, and the engine is linked into it."""
    if diagnosis.resolved is None or diagnosis.fatal[0].code not in ("static", "static-pie"):
        return False
    return b"TSMALLOC_PROFILE_OUTPUT" in diagnosis.resolved.program.read_bytes()


def _point_to_peak(profile: Profile) -> None:
    if sum(row.live_space for row in profile.rows) < LITTLE_LIVE * profile.allocated:
        tell(
            f"{quantity(profile.allocated, 'bytes')} were allocated, of which little is live in "
            "the end: --peak shows what was at the peak, --type alloc all."
        )


def _name_files(profiles: Sequence[Profile], output: str | None, keeps_all: bool) -> None:
    """The files beside the report."""
    if output is not None:
        tell(f"profile    {profiles[0].path if keeps_all else output}")
    for each in profiles[1 : 1 + MOST_NAMED]:
        place = f": {each.path}" if keeps_all else ""
        name = f"{each.comment('command') or '?'} (pid {each.pid})"
        tell(f"process    {name} allocated {quantity(each.allocated, 'bytes')}{place}")
    if (more := len(profiles) - 1 - MOST_NAMED) > 0:
        tell(f"           and {counted(more, 'smaller one')}")
    if output is None:
        tell("The profile is gone now: -o FILE keeps it.")
    elif not keeps_all and len(profiles) > 1:
        tell("The others are gone now: -o DIR/ keeps all.")
