"""A program under the engine with its profiler on, and the profiles that its processes leave.

Why: one command from "memory grows" to the line.
The program is run by the native command, which takes the profile also of a process that a signal
ends.
"""

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tsmlab import paths
from tsmlab.errors import UserError
from tsmlab.profile.model import Profile, read

FILES = "tsmalloc.*.pb"
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
LEFT_TO_THE_PROGRAM = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True)
class Captured:
    """The program's end, and the profiles, that of the process that allocated most first."""

    status: int
    profiles: list[Profile]
    problems: list[str]


def capture(command: Sequence[str], interval: int | None, is_peak: bool, folder: Path) -> Captured:
    """Runs the program to its end, with this command's input, output and signals."""
    options = [] if interval is None else ["--interval", str(interval)]
    options += ["--peak"] if is_peak else []
    status = _run(["profile", "take", *options, "--output", f"{folder}/", "--", *command])
    profiles, problems = [], []
    for path in sorted(folder.glob(FILES)):
        try:
            profiles.append(read(path))
        except UserError as error:
            problems.append(error.message)
    profiles.sort(key=lambda each: -each.allocated)
    return Captured(status, profiles, problems)


def _run(arguments: Sequence[str]) -> int:
    with _signals_for() as child:
        child.process = subprocess.Popen(
            [paths.tool("tsmalloc"), *arguments], env=paths.environment_of_native_programs()
        )
        status = child.process.wait()
    return status if status >= 0 else 128 - status


@dataclass
class _Child:
    process: subprocess.Popen[bytes] | None = None

    def pass_on(self, number: int, _: FrameType | None) -> None:
        if self.process is not None:
            self.process.send_signal(number)


@contextlib.contextmanager
def _signals_for() -> Iterator[_Child]:
    """Meanwhile signals are the child's: a terminal sends it its own, others are passed on. They
    have handlers and are not ignored, since a child inherits what is ignored."""
    child = _Child()
    before = {number: signal.getsignal(number) for number in (*LEFT_TO_THE_PROGRAM, *FORWARDED)}
    for number, handler in before.items():
        if handler == signal.SIG_IGN:
            continue
        if number in FORWARDED:
            signal.signal(number, child.pass_on)
        else:
            signal.signal(number, lambda *_: None)
    try:
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
