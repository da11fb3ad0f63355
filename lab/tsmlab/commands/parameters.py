"""Options that several verbs share, with the same wording and rules."""

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
from tsmlab.results import ResultWarning
from tsmlab.sweep import Parameter
from tsmlab.trial import Program

Command = Callable[..., Any]
T = TypeVar("T")


# Three years in seconds, as in the native tools.
MAX_SECONDS = 1e8
NO_LIMIT = "none"
# A hundred times the baseline: beyond that, `none` is meant.
MAX_PERCENT = 10_000.0


def whole_number(minimum: int) -> Callable[[Any], int]:
    """A whole number, at least `minimum`; click's own type would clutter --help with its range."""

    def number(value: Any) -> int:
        text = str(value)
        if not re.fullmatch(r"\d{1,9}", text) or int(text) < minimum:
            raise click.BadParameter(
                f"{value!r} is not a whole number of at least {minimum} with at most nine digits"
            )
        return int(text)

    return number


def duration(value: Any) -> float:
    """Seconds, or a number followed by s, m or h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(value))
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    if not 0.0 < seconds <= MAX_SECONDS:
        raise click.BadParameter(
            f"{value!r} is not a time like 90, 90s or 1.5m, above zero and below three years"
        )
    return seconds


def percent(value: str) -> float:
    """1, 1% or +1% as 1.0; NaN for anything else, negative numbers included."""
    match = re.fullmatch(r"\+?(\d+(?:\.\d+)?)\s*%?", value)
    return float(match[1]) if match else math.nan


def percentage(value: str) -> float:
    found = percent(value)
    if not 0.0 < found < 100.0:
        raise click.BadParameter(f"{value!r} is not a percentage between 0 and 100, like 1 or 0.5%")
    return found / 100.0


def limit(value: str) -> float | str:
    """+2% or 2 for up to 2% more; 0 for no increase; none for no limit."""
    if value == NO_LIMIT:
        return value
    found = percent(value)
    if math.isnan(found):
        raise click.BadParameter(f"{value!r} is not a limit like +3%, 0.5% or {NO_LIMIT}")
    if found > MAX_PERCENT:
        raise click.BadParameter(f"{value!r} is above +{MAX_PERCENT:.0f}%: use {NO_LIMIT}")
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
            raise click.BadParameter(f"{value!r}: a range starts with the lower number, like 2-3")
        beyond = max(allowed) + 1  # not allowed
        chosen.update(range(min(first, beyond), min(last, beyond) + 1))
    if not chosen or not chosen <= allowed:
        usable = ",".join(map(str, sorted(allowed)))
        raise click.BadParameter(f"{value!r}: the usable processors are {usable}")
    return tuple(sorted(chosen))


class _File(click.Path):
    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "":
            self.fail("missing file name.", param, ctx)
        if isinstance(value, str) and value.endswith("/"):
            self.fail(f"{value} is a directory, not a file.", param, ctx)
        return super().convert(value, param, ctx)


FILE = _File(path_type=Path)


# The type of an option by its metavar.
TYPES: dict[str, Any] = {
    "TIME": duration,
    "PERCENT": percentage,
    "N": whole_number(0),
    "FILE": FILE,
    "DIR": click.Path(path_type=Path),
}


def option(spec: str, help_text: str, name: str = "", **more: Any) -> Callable[[Command], Command]:
    """An option as its help shows it: `-o --output FILE`; without a metavar it is a flag. name: the
    parameter's name. A default is shown unless help_text has it."""
    words = spec.split()
    dashed = [word for word in words if word.startswith("-")]
    metavar = " ".join(words[len(dashed) :])
    if metavar:
        shown = more.get("default") is not None and "[default:" not in help_text
        more = {"metavar": metavar, "type": TYPES.get(metavar), "show_default": shown} | more
    else:
        more["is_flag"] = True
    return click.option(*dashed, *filter(None, [name]), help=help_text, **more)


def allocators_option(
    what: str = "Which to run", default: str = "tsmalloc, the system's, and yours"
) -> Callable[[Command], Command]:
    """-a, as `chosen`: a tuple of names, globs and groups."""
    return option(
        "-a --allocators NAMES",
        f"{what}: names, globs (lock-*), groups (ours, system, all), comma-separated or "
        f"repeated. [default: {default}]",
        "chosen",
        multiple=True,
    )


extra_option = option(
    "--allocator NAME=LIBRARY",
    "Add a library of your own, or a known allocator under another name; a trailing :KEY=VALUE "
    "sets an environment variable for it: eager=tsmalloc:TSMALLOC_PURGE_DELAY=0",
    "extra",
    multiple=True,
)


reference_option = option(
    "--reference NAME", "The allocator that all others are compared with.", default="glibc"
)


def rounds_option(
    help_text: str, minimum: int = 1, default: int | None = None
) -> Callable[[Command], Command]:
    """-r: how many rounds, at least `minimum`; help_text describes a default that is not a
    number."""
    return option("-r --rounds N", help_text, type=whole_number(minimum), default=default)


def time_budget_option(
    help_text: str, default: float | None = None
) -> Callable[[Command], Command]:
    return option("--time-budget TIME", help_text, "time_budget_seconds", default=default)


def timeout_option(default: str) -> Callable[[Command], Command]:
    return option(
        "--timeout TIME",
        f"A run that takes longer counts as failed. [default: {default}]",
        "timeout_seconds",
    )


seed_option = option(
    "--seed N", "Repeat the random order of an earlier run. [default: random, and printed]"
)


def options_of(kind: type[T], params: Mapping[str, Any], **overrides: Any) -> T:
    """A flow's options, which are a data class: `overrides`, and the verb's parameters of the same
    names; with a random seed if none was given."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    same = {name: params[name] for name in names if name in params}
    if same.get("seed", 0) is None:
        same["seed"] = random.SystemRandom().randrange(1_000_000)
    return kind(**(same | overrides))


image_option = option(
    "--image N", "Which program image of the trace to use. [default: the one with the most events]"
)
ignore_failure_option = option(
    "-i --ignore-failure", "Exit with 0 even if the program failed under an allocator."
)
expect_exit_option = option(
    "--expect-exit N", "The exit status that means success.", "expected_exit", default=0
)
margin_option = option(
    "--margin PERCENT", "Treat differences smaller than this as equal.", default="1%"
)
deterministic_option = option(
    "--deterministic",
    "Instead of time, judge by counts that are immune to machine noise: instructions and cache "
    "misses (valgrind), system calls (strace) and peak memory.",
)
report_option = option("--report DIR", "Write a report with figures into this directory.")


def all_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def input_option(default: str) -> Callable[[Command], Command]:
    return option(
        "--input FILE",
        f"The program's standard input. [default: {default}]",
        "input_file",
        type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    )


# The parameters of a sweep; see sweep_of.
sweep_options = all_of(
    option(
        "-L --parameter-list NAME VALUES",
        "Compare with {NAME} in the command replaced by each of VALUES (a,b,c). With several "
        "parameters, every combination is measured.",
        "lists",
        nargs=2,
        multiple=True,
    ),
    option(
        "-P --parameter-scan NAME MIN MAX",
        "The same for the numbers from MIN to MAX.",
        "scans",
        nargs=3,
        multiple=True,
    ),
    option("-D --parameter-step-size STEP", "Step for -P. [default: 1]", "step"),
)


def sweep_of(words: Sequence[str], params: dict[str, Any], env: Sequence[str]) -> list[Parameter]:
    """The parameters of sweep_options, scans first. env: values of allocators' variables, which may
    have placeholders, too."""
    scans, lists, step = params["scans"], params["lists"], params["step"]
    if step is not None and not scans:
        raise UserError("-D is the step of -P, and needs it.", "For example: -P n 0 8 -D 2")
    found = [sweep.parameter_scan(name, low, high, step) for name, low, high in scans]
    found += [sweep.parameter_list(*each) for each in lists]
    hooks = [params[name] for name in ("setup", "cleanup") if params[name]]
    sweep.check(found, [*words, *hooks, *env])
    return found


# How a program is run, and what counts as success; see program_of.
program_options = all_of(
    option(
        "--metric [NAME=]REGEX",
        "Rank by a number that the program prints: the first group of REGEX, with its unit. "
        "Lower is better, unless :higher follows. If given several times, the first one determines "
        "the ranking.",
        "metrics",
        multiple=True,
    ),
    option("-p --setup COMMAND", "A shell command before each run."),
    option("-c --cleanup COMMAND", "A shell command after each run."),
    input_option("empty"),
    expect_exit_option,
    option("--ignore-output", "Do not compare the program's output with the reference's."),
    option("--no-doctor", "Skip the check that an allocator can be preloaded into the program."),
)


def command_line(words: Sequence[str], purpose: str) -> Sequence[str]:
    """The words from the program on, without a `--` before it; raises UserError if there are none.
    purpose: what the program is for."""
    found = words[1:] if words[0] == "--" else words
    if not found:
        raise UserError(f"no program to {purpose}.", "Give it after --.")
    return found


def program_of(words: Sequence[str], params: dict[str, Any]) -> Program:
    stdin = params["input_file"] or Path(os.devnull)
    if not stdin.is_file() and not stdin.samefile(os.devnull):
        raise UserError(
            f"--input {stdin} is not a regular file, and each run must read its input from the "
            f"start.",
            "Write the input to a file first.",
        )
    return Program(
        command=tuple(words),
        stdin=stdin,
        expected_exit=params["expected_exit"],
        metrics=parse_all(params["metrics"]),
        setup=params["setup"],
        cleanup=params["cleanup"],
    )


def about_input(params: Mapping[str, Any]) -> list[ResultWarning]:
    """A warning if our standard input was redirected, which the program does not see."""
    if params["input_file"] is not None or not _has_input():
        return []
    return [
        ResultWarning(
            "input",
            "the program's input is empty: input redirected to tsmalloc does not reach it",
            "each run must read the same input, from its start",
            "pass it as a file: --input FILE",
        )
    ]


def _has_input() -> bool:
    """Whether standard input is a file with contents, or a pipe with data waiting."""
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


def files_of(words: Sequence[str], params: dict[str, Any]) -> list[Path]:
    program = shutil.which(words[0])
    return [Path(found) for found in (program, _script(words), params.get("input_file")) if found]


def _script(words: Sequence[str]) -> Path | None:
    """The first argument that is not an option, if it is a text file. Later arguments do not count:
    a program may write to them, and so it may to data."""
    path = Path(next((word for word in words[1:] if not word.startswith("-")), ""))
    try:
        if path.is_file():
            with path.open("rb") as file:
                return path if b"\0" not in file.read(4096) else None
    except OSError:
        pass
    return None


# The files to export to, and what to print.
output_options = all_of(
    option("--export-json FILE", "Write everything, including raw samples."),
    option("--export-csv FILE", "Write one line for each run."),
    option("--export-markdown FILE", "Write the table and verdict."),
    option("-f --force", "Overwrite files; write into a --report directory that is not empty."),
    option("--json", "Print JSON instead of the table.", "as_json"),
    option("-q --quiet", "Print no progress, notes or warnings."),
    option("-v --verbose", "Print warnings with causes and remedies."),
)
cluster_option = option(
    "--cluster WHERE",
    "Run rounds on a dask.distributed cluster: tcp://HOST:PORT, or local:N for N processes here.",
)
# Where a study runs, and what it prints.
study_options = all_of(
    cluster_option,
    option("--cpus LIST", "Run everything on these processors only.", type=processors),
    output_options,
)


def write(path: Path, content: str | bytes) -> None:
    try:
        write_atomically(path, content)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}.", "Free some space, or name another file."
        ) from error


def export_targets(params: dict[str, Any], force: bool) -> Sequence[Target]:
    """The files that study_options ask for; raises UserError for one that cannot be written."""
    paths = {name: params.get(f"export_{name}") for name in get_args(export.Format)}
    targets = [Target(name, path) for name, path in paths.items() if path is not None]
    export.check_targets(targets, force)
    return targets
