"""`tsmalloc profile`: heap profiles, taken and read."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from tsmlab import export, paths
from tsmlab.commands import Group, parameters
from tsmlab.commands.parameters import FILE, Command, all_of, option, whole_number
from tsmlab.doctor import Diagnosis, diagnose
from tsmlab.errors import EXIT_OK, EXIT_REGRESSION, EXIT_USAGE, UserError, print_error
from tsmlab.profile import changes, messages, model, sites, symbols, text
from tsmlab.profile.changes import Changes, LoadedProfile
from tsmlab.profile.model import Profile, Type
from tsmlab.profile.sites import GroupBy
from tsmlab.records import write_atomically
from tsmlab.wording import counted, quantity

SCHEMA = "tsmalloc-profile/1"
TOP = 20
# Other processes besides the one shown.
MAX_NAMED = 5
# As a share of what was allocated: if less is live at the exit, the peak is more informative.
LITTLE_LIVE = 0.1
FILES = "tsmalloc.*.pb"


# --- options -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReportOptions:
    by: GroupBy = "function"
    of: Type = "inuse"
    whole: bool = False
    top: int = TOP
    as_json: bool = False


def _choice(*names: str, choices: str, help_text: str) -> Callable[[Command], Command]:
    values = choices.split()
    return click.option(
        *names, type=click.Choice(values), default=values[0], show_default=True, help=help_text
    )


by_option = _choice("--by", choices="function line stack", help_text="What to group by.")
type_option = _choice(
    "--type",
    "of",
    choices="inuse alloc pinned",
    help_text="Live memory, all memory ever allocated, or free space stranded in slabs.",
)
library_option = option(
    "--library", "Also show frames inside the C, C++ and Rust standard libraries.", "whole"
)
top_option = option("--top N", "Print at most N rows.", type=whole_number(1), default=TOP)
json_option = option("--json", "Print JSON instead.", "as_json")
# These are the fields of ReportOptions; some verbs lack the first ones.
stack_options = all_of(library_option, top_option, json_option)
report_options = all_of(by_option, type_option, stack_options)
frame_options = all_of(type_option, library_option)
force_option = option("-f --force", "Overwrite the file.")
output_option = option("-o --output FILE", "The file to write.", required=True)


# --- the verb without a subcommand: a process, or a program ---------------------------------------


def native(
    arguments: Sequence[str], passed_on: Sequence[signal.Signals], stdout: int | None = None
) -> tuple[int, str]:
    """Runs the native command that takes profiles; returns its status and output. Signals from the
    terminal reach both; `passed_on` are those sent to this process only."""
    children: list[subprocess.Popen[str]] = []

    def handle(number: int, _: Any) -> None:
        for child in children if number in passed_on else ():
            child.send_signal(number)

    # Handlers, because a child would inherit an ignored signal.
    own = (signal.SIGINT, signal.SIGQUIT, *passed_on)
    before = {number: signal.getsignal(number) for number in own}
    try:
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, handle)
        command = [str(paths.tool("tsmalloc")), "profile", "take", *arguments]
        environment = paths.environment_of_native_programs()
        children.append(subprocess.Popen(command, env=environment, stdout=stdout, text=True))
        message, _ = children[0].communicate()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    status = children[0].returncode
    return status if status >= 0 else 128 - status, message


def take(arguments: Sequence[str]) -> NoReturn:
    ending = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    status, message = native(arguments, ending, subprocess.PIPE)
    click.echo(message, nl=False)
    path = message.rstrip("\n").rpartition(" of blocks in use: ")[2]
    if status == EXIT_OK and path and message.count("\n") == 1:
        click.echo()
        _show(opened(Path(path), ReportOptions()), ReportOptions())
    raise SystemExit(status)


class Verbs(Group):
    """A group in which `profile [OPTIONS] -- PROGRAM` means `profile run [OPTIONS] -- PROGRAM`, and
    `profile [OPTIONS] PID` is passed to the native command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        word = args[0] if args else "--help"
        if word in (*self.commands, "-h", "--help"):
            return super().parse_args(ctx, args)
        if "--" in args:
            return super().parse_args(ctx, ["run", *args])
        if word.startswith("-") or word.isdigit():
            take(args)
        remedy = f"To take one: {ctx.command_path} -- CMD"
        if Path(word).is_file():
            verb = f"-- {word}" if os.access(word, os.X_OK) else f"show {word}"
            remedy = f"Did you mean {ctx.command_path} {verb}?"
        raise UserError(
            f"unknown verb `profile {word}`.", f"{remedy}\nVerbs: {', '.join(self.commands)}."
        )


@click.group("profile", cls=Verbs)
def command() -> None:
    """Take a heap profile, or read one: which lines hold the memory?

    All sums are estimates from samples, shown with their 95% interval. Names and lines come from
    the binaries on this machine.

    For a running process: tsmalloc profile [--seconds N] [--interval BYTES] [--peak] [--keep]
    [--output FILE] PID. If the process is already sampling, its profile is read as it is;
    otherwise it samples for N seconds (default: 10), and keeps sampling with --keep. --peak shows
    the blocks live at the peak.

    \b
    Examples:
      tsmalloc profile 4711
      tsmalloc profile --seconds 60 -o server.pb 4711
      tsmalloc profile -- ./server --selftest
      tsmalloc profile show server.pb
      tsmalloc profile diff before.pb after.pb
      tsmalloc profile leaks first.pb later.pb --exit-code
      tsmalloc profile flame server.pb -o server.html

    docs/formats/profile.md describes the file and the formulas; pprof can read it as well.
    """


# --- reading -------------------------------------------------------------------------------------


def opened(path: Path, options: ReportOptions) -> LoadedProfile:
    return resolved(model.read(path), options)


def resolved(profile: Profile, options: ReportOptions) -> LoadedProfile:
    if options.of == "pinned" and (not profile.has_pinned or profile.comment("kind") == "peak"):
        raise UserError(
            f"{profile.path} does not record pinned space.",
            "Take a profile of the current state with `tsmalloc profile PID`: peak profiles, and "
            "those of earlier versions, lack it.",
        )
    found = symbols.look_up(profile)
    return LoadedProfile(profile, sites.Stacks(profile, found, options.whole), found.notes)


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
@report_options
@click.argument("file", type=FILE)
def show(file: Path, **params: Any) -> None:
    """Show where the memory in the profile FILE was allocated.

    Flat: allocated by the function itself, directly or through the standard library. Cumulative:
    including its callees.

    \b
    Example:
      tsmalloc profile show --by line --top 10 server.pb

    Exit status: 0 success; 1 usage error, or a file that is not a profile.
    """
    options = ReportOptions(**params)
    _show(opened(file, options), options)


def _show(
    loaded: LoadedProfile, options: ReportOptions, *, err: bool = False, with_ages: bool = False
) -> None:
    profile, notes, by, of = loaded.profile, loaded.notes, options.by, options.of
    found = sites.gather(profile, loaded.stacks, by, of)
    if not options.as_json:
        report = text.shown(profile, found, by, of, options.top, notes, with_ages)
        click.echo(report, nl=False, err=err)
        return
    print_json(
        "show",
        profile=about(profile),
        type=of,
        by=by,
        total=found.total.to_json(),
        objects=round(found.objects.total),
        block_bytes=round(found.blocks),
        sites=[site.to_json() for site in found.sites],
        notes=notes,
    )


def _compare(
    verb: str, before: Path, after: Path, options: ReportOptions, report: Callable[..., str]
) -> Changes:
    first, second = opened(before, options), opened(after, options)
    one, other = first.profile, second.profile
    builds = changes.other_builds(one, other)
    notes = list(dict.fromkeys([*first.notes, *second.notes, *builds]))
    if verb == "leaks" and one.time_nanos > other.time_nanos:
        raise UserError(f"{before} is later than {after}.", "Give the earlier one first.")
    found = changes.between(first, second, options.by, options.of)
    if not options.as_json:
        click.echo(report(one, other, found, options.top, notes), nl=False)
        return found
    print_json(
        verb,
        before=about(one),
        after=about(other),
        type=options.of,
        by=options.by,
        same_process=found.same_process,
        seconds=found.seconds,
        total=found.total.to_json(),
        sites=[site.to_json() for site in found.sites],
        notes=notes,
    )
    return found


@command.command("diff")
@report_options
@click.argument("before", type=FILE)
@click.argument("after", type=FILE)
def diff(before: Path, after: Path, **params: Any) -> None:
    """Show what changed from the profile BEFORE to the profile AFTER.

    Sites marked as grown or shrunk have a family-wise error rate of 5%: if nothing changed, one
    comparison in twenty marks any site at all. Two profiles of one process share their samples,
    which makes the errors smaller.

    \b
    Example:
      tsmalloc profile diff before.pb after.pb

    Exit status: 0 success; 1 usage error, or a file that is not a profile.
    """
    _compare("diff", before, after, ReportOptions(**params), text.difference)


@command.command("leaks")
@stack_options
@option("--exit-code", "Exit with 3 if a site has grown.")
@click.argument("file", type=FILE)
@click.argument("later_file", type=FILE, required=False)
def leaks(file: Path, later_file: Path | None, exit_code: bool, **params: Any) -> int:
    """List the stacks with live memory in FILE and its age, or those that grew until LATER_FILE.

    It cannot distinguish a leak from memory that is still reachable, such as a cache that fills.

    \b
    Example:
      tsmalloc profile leaks first.pb later.pb --exit-code

    Exit status: 0 success; 1 usage error, or a file that is not a profile; with --exit-code, 3 if a
    site has grown."""
    stacks = ReportOptions(by="stack", **params)
    if later_file is not None:
        grown = _compare("leaks", file, later_file, stacks, text.growth).grown
        return EXIT_REGRESSION if exit_code and grown else EXIT_OK
    if exit_code:
        raise UserError("--exit-code needs two profiles.", "Give a later one, too.")
    _show(opened(file, stacks), stacks, with_ages=True)
    return EXIT_OK


@command.command("flame")
@output_option
@force_option
@frame_options
@click.argument("file", type=FILE)
def flame(file: Path, output: Path, force: bool, **params: Any) -> None:
    """Draw the profile FILE as a flame graph: a self-contained HTML page.

    \b
    Example:
      tsmalloc profile flame server.pb -o server.html

    Exit status: 0 success; 1 usage error, or a file that is not a profile.
    """
    from tsmlab.profile import flame as page  # noqa: PLC0415 (no other verb needs it)

    export.check_new(output, force)
    loaded = opened(file, ReportOptions(**params))
    parameters.write(output, page.page(loaded.profile, loaded.stacks, params["of"], loaded.notes))
    click.echo(str(output))


@command.command("folded")
@frame_options
@click.argument("file", type=FILE)
def folded(file: Path, **params: Any) -> None:
    """Print the stacks of FILE one per line, outermost frame first, with their bytes.

    \b
    Example:
      tsmalloc profile folded server.pb | flamegraph.pl >server.svg

    Exit status: 0 success; 1 usage error, or a file that is not a profile.
    """
    loaded = opened(file, ReportOptions(**params))
    for line, estimate in sites.folded(loaded.profile, loaded.stacks, params["of"]).items():
        click.echo(f"{line} {estimate.total:.0f}")
    _tell(loaded.notes)


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        print_error(f"tsmalloc: {note}")


@command.command("symbolize")
@output_option
@force_option
@click.argument("file", type=FILE)
def symbolize(file: Path, output: Path, force: bool) -> None:
    """Add functions, lines and inlined frames to the profile FILE, for a machine without the
    binaries.

    \b
    Example:
      tsmalloc profile symbolize server.pb -o symbolized.pb

    Exit status: 0 success; 1 usage error, or a file that is not a profile.
    """
    export.check_new(output, force)
    message = messages.read(file)
    found = symbols.look_up(model.profile_from(message, file))
    symbols.name_locations(message, found)
    parameters.write(output, messages.packed(message))
    lines = sum(any(f.line for f in frames) for frames in found.frames.values())
    click.echo(f"{output}: {lines:,} of {len(found.frames):,} addresses resolved to a line")
    _tell(found.notes)


# --- a program -----------------------------------------------------------------------------------


@command.command("run", context_settings={"allow_interspersed_args": False})
@option("--interval BYTES", "Mean number of bytes between samples. [default: the library's]")
@option(
    "-o --output FILE",
    "Keep the profile; with a trailing slash (DIR/), those of all processes.",
    type=str,
)
@force_option
@option("--peak", "Show what was live at the peak, not at exit.", "is_peak")
@report_options
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    interval: str | None,
    output: str | None,
    force: bool,
    is_peak: bool,
    program: Sequence[str],
    **params: Any,
) -> int:
    """Run PROGRAM under the engine with its profiler on, and show the profile.

    Same as `profile -- PROGRAM`. Each process writes a profile, even if it is killed or crashes.
    The one that allocated most is shown on stderr, since stdout is the program's.

    \b
    Example:
      tsmalloc profile run --peak -o server.pb -- ./server --selftest

    Exit status: that of the program, or 1 if there is no profile.
    """
    line = parameters.command_line(program, "profile")
    diagnosis = diagnose(line)
    if diagnosis.fatal and not _has_engine(diagnosis):
        diagnosis.raise_if_fatal(as_shells=True)
    options = ["--interval", interval] if interval is not None else []
    options += ["--peak"] if is_peak else []
    kept = None if output is None else Path(output).absolute()
    keeps_all = kept is not None and (str(output).endswith("/") or kept.is_dir())
    with tempfile.TemporaryDirectory(prefix="tsmalloc-profile-") as temporary:
        folder = kept if kept is not None and keeps_all else Path(temporary) / "profiles"
        if any(folder.glob(FILES)):
            raise UserError(f"{output} already contains profiles.", "Choose a new directory.")
        if kept is not None and not keeps_all:
            export.check_new(kept, force)
        passed_on = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
        status, _ = native([*options, "--output", f"{folder}/", "--", *line], passed_on)
        if not folder.is_dir():
            return status  # the native command rejected an option
        profiles = _profiles(folder, status)
        shown = ReportOptions(**params)
        _show(resolved(profiles[0], shown), shown, err=not shown.as_json)
        if kept is not None and not keeps_all:
            _keep(profiles[0].path, kept)
        if not shown.as_json:
            if shown.of == "inuse" and not is_peak:
                _point_to_peak(profiles[0])
            _name_files(profiles, output, keeps_all)
    return status


def _profiles(folder: Path, status: int) -> list[Profile]:
    """The profiles of a program that has ended, the process that allocated most first."""
    profiles = []
    for path in sorted(folder.glob(FILES)):
        try:
            profiles.append(model.read(path))
        except UserError as error:
            print_error(f"warning: {error.message}")
    if not profiles:
        raise UserError(
            f"the program left no profile (exit status {status}).",
            "A program that allocates little may have no samples: --interval 1 samples every "
            "malloc.",
            status or EXIT_USAGE,
        )
    return sorted(profiles, key=lambda each: -each.allocated)


def _keep(profile: Path, output: Path) -> None:
    """Writes the user's file; if that fails, keeps the profile elsewhere."""
    content = profile.read_bytes()
    try:
        write_atomically(output, content)
    except OSError as error:
        number, fallback = tempfile.mkstemp(prefix="tsmalloc-profile-", suffix=".pb")
        with os.fdopen(number, "wb") as file:
            file.write(content)
        raise UserError(
            f"cannot write {output}: {error.strerror}.", f"The profile is {fallback}."
        ) from error


def _has_engine(diagnosis: Diagnosis) -> bool:
    """Whether nothing can be preloaded into the program, but the engine is linked into it."""
    if diagnosis.resolved is None or diagnosis.fatal[0].code not in ("static", "static-pie"):
        return False
    return b"TSMALLOC_PROFILE_OUTPUT" in diagnosis.resolved.program.read_bytes()


def _point_to_peak(profile: Profile) -> None:
    if sum(row.live_space for row in profile.rows) < LITTLE_LIVE * profile.allocated:
        print_error(
            f"{quantity(profile.allocated, 'bytes')} were allocated, but little is live at the "
            f"end: --peak shows the peak, --type alloc all allocations."
        )


def _name_files(profiles: Sequence[Profile], output: str | None, keeps_all: bool) -> None:
    if output is not None:
        print_error(f"profile    {profiles[0].path if keeps_all else output}")
    for each in profiles[1 : 1 + MAX_NAMED]:
        place = f": {each.path}" if keeps_all else ""
        name = f"{each.comment('command') or '?'} (pid {each.pid})"
        print_error(f"process    {name} allocated {quantity(each.allocated, 'bytes')}{place}")
    if (more := len(profiles) - 1 - MAX_NAMED) > 0:
        print_error(f"           and {counted(more, 'smaller one')}")
    if output is None:
        print_error("The profile was not kept: -o FILE keeps it.")
    elif not keeps_all and len(profiles) > 1:
        print_error("The others were not kept: -o DIR/ keeps all.")
