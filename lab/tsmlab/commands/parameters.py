"""Options that several verbs have, in one wording and with the same rules."""

import array
import dataclasses
import fcntl
import math
import os
import random
import re
import shutil
import stat
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from tsmlab import export, sweep
from tsmlab.errors import UserError
from tsmlab.export import Target
from tsmlab.metrics import parse_all
from tsmlab.records import write_atomically
from tsmlab.results import Trouble
from tsmlab.schedule import TIME_BUDGET_SECONDS
from tsmlab.sweep import Parameter
from tsmlab.trial import Program

Command = Callable[..., Any]
Made = TypeVar("Made")


# Three years in seconds, as of the native tools.
MOST_SECONDS = 1e8


def whole(minimum: int) -> Callable[[Any], int]:
    """A whole number from `minimum` on; click's own would clutter --help with its range."""

    def number(value: Any) -> int:
        text = str(value)
        if not re.fullmatch(r"\d{1,9}", text) or int(text) < minimum:
            raise click.BadParameter(
                f"{value!r} is not a whole number from {minimum} on, of nine digits at most"
            )
        return int(text)

    return number


def duration(value: Any) -> float:
    """Seconds, or a number with s, m or h behind it."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(value))
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    if not 0.0 < seconds <= MOST_SECONDS:
        raise click.BadParameter(
            f"{value!r} is not a time above zero and below three years, like 90, 90s or 1.5m"
        )
    return seconds


def percent(value: str) -> float:
    """1, 1% or +1% as 1.0; NaN for what is no percentage. A negative one is none."""
    match = re.fullmatch(r"\+?(\d+(?:\.\d+)?)\s*%?", value)
    return float(match[1]) if match else math.nan


def percentage(value: str) -> float:
    """1 or 1% for one hundredth."""
    found = percent(value)
    if not 0.0 < found < 100.0:
        raise click.BadParameter(f"{value!r} is not a percentage between 0 and 100, like 1 or 0.5%")
    return found / 100.0


def processors(value: str) -> tuple[int, ...]:
    """A list of processors as taskset takes it: 0,2-3."""
    chosen: set[int] = set()
    allowed = os.sched_getaffinity(0)
    for part in value.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise click.BadParameter(f"{value!r} is not a list of processors, like 0,2-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise click.BadParameter(f"{value!r}: a range begins with the lower number, like 2-3")
        beyond = max(allowed) + 1  # which may not be used
        chosen.update(range(min(first, beyond), min(last, beyond) + 1))
    if not chosen or not chosen <= allowed:
        usable = ",".join(map(str, sorted(allowed)))
        raise click.BadParameter(f"{value!r}: the processors that may be used here are {usable}")
    return tuple(sorted(chosen))


class _File(click.Path):
    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "":
            self.fail("no file is named.", param, ctx)
        if isinstance(value, str) and value.endswith("/"):
            self.fail(f"{value} is the name of a folder, not of a file.", param, ctx)
        return super().convert(value, param, ctx)


FILE = _File(path_type=Path)


def allocators_option(
    what: str = "Which to run", default: str = "tsmalloc, system, and yours"
) -> Callable[[Command], Command]:
    """-a, as `chosen`: a tuple of names, globs and groups."""
    return click.option(
        *("-a", "--allocators", "chosen"),
        multiple=True,
        metavar="NAMES",
        help=f"{what}: names, globs (lock-*), groups (ours, system, all), with commas or "
        f"repeatedly. [default: {default}]",
    )


extra_option = click.option(
    "--allocator",
    "extra",
    multiple=True,
    metavar="NAME=PATH.so",
    help="Add a library of your own; :KEY=VALUE behind it sets a variable.",
)


reference_option = click.option(
    "--reference",
    default="glibc",
    show_default=True,
    metavar="NAME",
    help="The one that all others are compared with.",
)


def rounds_option(
    help_text: str, minimum: int = 1, default: int | None = None
) -> Callable[[Command], Command]:
    """-r: how many rounds, at least `minimum`; help_text tells a default that is no number."""
    return click.option(
        *("-r", "--rounds"),
        type=whole(minimum),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=help_text,
    )


def time_budget_option(
    help_text: str, default: float | None = None
) -> Callable[[Command], Command]:
    return click.option(
        *("--time-budget", "time_budget_seconds"),
        type=duration,
        default=default,
        metavar="TIME",
        help=help_text,
    )


trace_budget_option = time_budget_option(
    "For each trace: begin no round that would end later. [default: 120s]", TIME_BUDGET_SECONDS
)


def timeout_option(default: str) -> Callable[[Command], Command]:
    return click.option(
        *("--timeout", "timeout_seconds"),
        type=duration,
        metavar="TIME",
        help=f"A run that takes longer has failed. [default: {default}]",
    )


seed_option = click.option(
    "--seed",
    type=whole(0),
    metavar="N",
    help="Repeats the order of a former comparison. [default: random, printed]",
)


def options_of(kind: type[Made], given: Mapping[str, Any], **others: Any) -> Made:
    """A flow's options, which are a data class: `others`, and what the verb's parameters have under
    the same names; with a random seed if none was chosen."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    same = {name: given[name] for name in names if name in given}
    if given["seed"] is None:
        same["seed"] = random.SystemRandom().randrange(1_000_000)
    return kind(**(same | others))


image_option = click.option(
    "--image",
    type=whole(0),
    metavar="N",
    help="Which program image of the trace. [default: the one with the most events]",
)
touch_option = click.option(
    "--touch",
    type=click.Choice(["none", "first", "page", "all"]),
    default="page",
    show_default=True,
    metavar="HOW",
    help="What is written into each object: nothing, its first byte, one of each page, or all.",
)
ignore_failure_option = click.option(
    "-i",
    "--ignore-failure",
    is_flag=True,
    help="Exit with 0 even if the program failed under an allocator.",
)
expect_exit_option = click.option(
    *("--expect-exit", "expected_exit"),
    type=whole(0),
    default=0,
    show_default=True,
    metavar="N",
    help="The exit status that means success.",
)
margin_option = click.option(
    "--margin",
    type=percentage,
    default="1%",
    metavar="PERCENT",
    show_default=True,
    help="Differences smaller than this do not matter to you.",
)
deterministic_option = click.option(
    "--deterministic",
    is_flag=True,
    help="Judge by what does not depend on neighbours: instructions and cache misses (valgrind), "
    "system calls (strace), peak memory; not by time.",
)
report_option = click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a report with figures into this folder.",
)


def all_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def input_option(default: str) -> Callable[[Command], Command]:
    return click.option(
        *("--input", "input_file"),
        metavar="FILE",
        help=f"The program's standard input. [default: {default}]",
        type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    )


# What is swept; see sweep_of.
sweep_options = all_of(
    click.option(
        *("-L", "--parameter-list", "lists"),
        nargs=2,
        multiple=True,
        metavar="NAME VALUES",
        help="Compare at each of VALUES (a,b,c), which replaces {NAME} in the command. Of several "
        "parameters, every combination.",
    ),
    click.option(
        *("-P", "--parameter-scan", "scans"),
        nargs=3,
        multiple=True,
        metavar="NAME MIN MAX",
        help="The same for the numbers from MIN to MAX.",
    ),
    click.option(
        *("-D", "--parameter-step-size", "step"),
        metavar="STEP",
        help="The step of -P. [default: 1]",
    ),
)


def sweep_of(words: Sequence[str], given: dict[str, Any], env: Sequence[str]) -> list[Parameter]:
    """The parameters of sweep_options, scans first. env: values of allocators' variables, which may
    have placeholders, too."""
    scans, lists, step = given["scans"], given["lists"], given["step"]
    if step is not None and not scans:
        raise UserError("-D is the step of -P, which is not given.", "For example: -P n 0 8 -D 2")
    found = [sweep.parameter_scan(name, low, high, step) for name, low, high in scans]
    found += [sweep.parameter_list(*each) for each in lists]
    hooks = [given[name] for name in ("setup", "cleanup") if given[name]]
    sweep.check(found, [*words, *hooks, *env])
    return found


# Options of how a program is run, and of its success; see program_of.
program_options = all_of(
    click.option(
        *("--metric", "metrics"),
        multiple=True,
        metavar="[NAME=]REGEX",
        help="Rank by a number that the program prints: the first group of REGEX, with its unit. "
        "Lower is better, unless :higher is behind it. Further ones are judged, too.",
    ),
    click.option("-p", "--setup", metavar="COMMAND", help="A shell command before each run."),
    click.option("-c", "--cleanup", metavar="COMMAND", help="A shell command after each run."),
    input_option("empty"),
    expect_exit_option,
    click.option(
        "--ignore-output",
        is_flag=True,
        help="Do not compare the program's output with the reference's.",
    ),
    click.option(
        "--no-doctor",
        is_flag=True,
        help="Skip the check that an allocator can be preloaded into the program.",
    ),
)


def command_line(words: Sequence[str], purpose: str) -> Sequence[str]:
    """The words from the program on, without the -- that may be before it; raises UserError where
    there are none. purpose: what is to be done with it."""
    found = words[1:] if words[0] == "--" else words
    if not found:
        raise UserError(f"there is no program to {purpose}.", "Name it after --.")
    return found


def program_of(words: Sequence[str], given: dict[str, Any]) -> Program:
    """The program that the command line names, with its program_options."""
    stdin = given["input_file"] or Path(os.devnull)
    if not stdin.is_file() and not stdin.samefile(os.devnull):
        raise UserError(
            f"--input {stdin} is no regular file, and each run reads its input anew.",
            "Write what each run is to read into a file first.",
        )
    return Program(
        command=tuple(words),
        stdin=stdin,
        expected_exit=given["expected_exit"],
        metrics=parse_all(given["metrics"]),
        setup=given["setup"],
        cleanup=given["cleanup"],
    )


def about_input(given: Mapping[str, Any]) -> list[Trouble]:
    """A warning where something was redirected to us, and the program does not see it."""
    if given["input_file"] is not None or not _has_input():
        return []
    return [
        Trouble(
            "input",
            "the program's input is empty: what is redirected to tsmalloc does not reach it",
            "each run must read the same, from its beginning",
            "give the file by name: --input FILE",
        )
    ]


def _has_input() -> bool:
    """Whether standard input is a file with contents, or a pipe in which something waits."""
    try:
        status = os.fstat(0)
        if stat.S_ISREG(status.st_mode):
            return status.st_size > 0
        if not stat.S_ISFIFO(status.st_mode):
            return False
        waiting = array.array("i", [0])
        fcntl.ioctl(0, termios.FIONREAD, waiting)
    except OSError:
        return False
    return waiting[0] > 0


def files_of(words: Sequence[str], given: dict[str, Any]) -> list[Path]:
    """The program's file, if it is one, its script's, and its input's."""
    program = shutil.which(words[0])
    return [Path(found) for found in (program, _script(words), given.get("input_file")) if found]


def _script(words: Sequence[str]) -> Path | None:
    """The first argument that is no option, if it is a text. Of further ones, a program may write
    to some; and so it may to data."""
    path = Path(next((word for word in words[1:] if not word.startswith("-")), ""))
    try:
        if path.is_file():
            with path.open("rb") as file:
                return path if b"\0" not in file.read(4096) else None
    except OSError:
        pass
    return None


# The files to export to, and what is printed.
output_options = all_of(
    click.option(
        "--export-json", type=FILE, metavar="FILE", help="Write everything, raw samples too."
    ),
    click.option("--export-csv", type=FILE, metavar="FILE", help="Write one line for each run."),
    click.option(
        "--export-markdown", type=FILE, metavar="FILE", help="Write the table and verdict."
    ),
    click.option(
        "-f", "--force", is_flag=True, help="Overwrite files; write into any --report folder."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table."),
    click.option("-q", "--quiet", is_flag=True, help="No progress, notes or warnings."),
    click.option("-v", "--verbose", is_flag=True, help="Warnings with causes and remedies."),
)
# Where a study runs, and its output.
study_options = all_of(
    click.option(
        "--cluster",
        metavar="WHERE",
        help="Make rounds on a cluster of dask.distributed: tcp://HOST:PORT, or local:N for "
        "processes here.",
    ),
    click.option(
        "--cpus", type=processors, metavar="LIST", help="Run everything on these processors only."
    ),
    output_options,
)


def write(path: Path, content: str | bytes) -> None:
    try:
        write_atomically(path, content)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}.", "Make room, or name another file."
        ) from error


def export_targets(given: dict[str, Any], force: bool) -> Sequence[Target]:
    """The files that study_options ask for; raises UserError for one that cannot be written."""
    paths = {name: given.get(f"export_{name}") for name in get_args(export.Format)}
    targets = [Target(name, path) for name, path in paths.items() if path is not None]
    export.check_targets(targets, force)
    return targets
