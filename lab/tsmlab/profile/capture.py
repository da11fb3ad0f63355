"""A program under the engine with its profiler on, and the profiles that its processes leave.

The program is run by the native command, which takes the profile also of a process that a signal
ends.
"""

import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """Meanwhile signals are the child's: a terminal sends it its own, others are passed on. They
    have handlers and are not ignored, since a child inherits what is ignored."""
    children: list[subprocess.Popen[bytes]] = []

    def handle(number: int, _: Any) -> None:
        for child in children if number in FORWARDED else ():
            child.send_signal(number)

    before = {number: signal.getsignal(number) for number in (*LEFT_TO_THE_PROGRAM, *FORWARDED)}
    try:
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, handle)
        environment = paths.environment_of_native_programs()
        children.append(subprocess.Popen([paths.tool("tsmalloc"), *arguments], env=environment))
        status = children[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status
