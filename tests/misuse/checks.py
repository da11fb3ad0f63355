"""What the scripts of this folder share: running programs under a library, and noting faults."""

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
    """Notes a fault, with the outcome."""
    if not holds:
        faults.append(f"{what}\n    seen: {seen}")


def finish() -> int:
    """Prints the faults; the exit status."""
    print("\n".join(faults))
    return 1 if faults else 0


def run(library: str, *command: str, **options: str) -> Result:
    """A program under a library, or under none if that is empty, with options of ours."""
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
    """The lines of ours on standard error."""
    return [line for line in result.stderr.splitlines() if line.startswith("tsmalloc: ")]


def expect_report(line: str, function: str, misuse: str, block_bytes: int | None = None) -> None:
    """A report names the function, the pointer, the misuse by a word of it, the size of the block
    if that is known, and the option by which the program goes on."""
    size = rf"\b{block_bytes} bytes.*" if block_bytes else ""
    pattern = rf"tsmalloc: {function}\(0x\w+\): .*{misuse}.*{size}TSMALLOC_ON_MISUSE.*"
    expect(re.fullmatch(pattern, line) is not None, pattern, line)


def only(lines: list[str]) -> str:
    """The one line that is said; "" if it is none, or more."""
    expect(len(lines) == 1, "one line", lines)
    return lines[0] if len(lines) == 1 else ""
