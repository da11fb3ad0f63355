"""Shared by the scripts of this folder: runs programs under a library, and collects failures."""

from __future__ import annotations

import os
import re
import subprocess

AT_ONCE = "stopped at once"
LATER = "stopped later"
REPORTED = "reported at once, continues"
REPORTED_LATER = "reported later, continues"

Result = subprocess.CompletedProcess[str]
faults: list[str] = []


def expect(holds: bool, what: str, seen: object) -> None:
    """Records a failure, with the outcome."""
    if not holds:
        faults.append(f"{what}\n    seen: {seen}")


def finish() -> int:
    """Prints the failures and returns the exit status."""
    print("\n".join(faults))
    return 1 if faults else 0


def run(library: str, *command: str, **options: str) -> Result:
    """Runs a program with our options under a library, or under none if that is empty."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TSMALLOC_")}
    if library:
        environment["LD_PRELOAD"] = library
    environment |= {f"TSMALLOC_{name}": value for name, value in options.items()}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def outcomes(library: str, program: str, **options: str) -> dict[str, str]:
    """The outcome of each class."""
    result = run(library, program, **options)
    return dict(line.split("\t") for line in result.stdout.splitlines())


def reports(result: Result) -> list[str]:
    """Our lines on standard error."""
    return [line for line in result.stderr.splitlines() if line.startswith("tsmalloc: ")]


def expect_report(line: str, function: str, misuse: str, block_bytes: int | None = None) -> None:
    """Whether a report has the function, pointer, misuse, block size if known, and remedy."""
    size = rf"\b{block_bytes} bytes.*" if block_bytes else ""
    pattern = rf"tsmalloc: {function}\(0x\w+\): .*{misuse}.*{size}TSMALLOC_ON_MISUSE.*"
    expect(re.fullmatch(pattern, line) is not None, pattern, line)


def only(lines: list[str]) -> str:
    """The only line of output; "" if there is none, or more than one."""
    expect(len(lines) == 1, "one line", lines)
    return lines[0] if len(lines) == 1 else ""
