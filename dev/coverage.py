#!/usr/bin/env python3
"""How much of src/ the tests run, in lines and branches, against tests/coverage-floor.toml.

    coverage.py [--update]

Builds the preset `coverage` (debug level 2, so that the engine's own checks run, too), runs the
tests that reach src/, and sums up with gcovr. --update rewrites the floor to the percentages
reached, rounded down. Excluded are branches that throw, that the compiler adds or that are
unreachable, tests that measure memory or time (UNFIT), and a file that is compiled twice (TWICE). A
process that aborts, or ends with _exit, leaves no counts. Failed tests are an error, and counts of
earlier runs are deleted first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "coverage"
FLOOR = ROOT / "tests" / "coverage-floor.toml"
JOBS = str(len(os.sched_getaffinity(0)))
# Preloaded, each strategy with one fit, as `make test-all` does at this debug level.
TARGETS = (
    *("drop_in_libraries", "tests_unit", "tests_property", "tests_stress", "tests_fuzz"),
    *("tests_conformance", "tests_footprint", "tests_link", "tests_reliability", "tests_misuse"),
)
TESTS = (
    r"^(unit|property|stress|fuzz|link|footprint|StaticLink|Hardened|FullMemory.inside)"
    r"|^(conformance|[A-Z]).*[.-](tsmalloc|secure|best|linked)$"
)
# They check memory or time against limits, and counting adds to both.
UNFIT = r"^footprint$|^SmallAddressSpace\.tsmalloc$|^ThreadExit\.lockfree"
# Compiled twice, with some functions on different lines, which gcovr cannot add up.
TWICE = "src/os/c_library.cpp"
# The folders of each part.
PARTS = {"engine": ("src/core/", "src/features/", "src/engine/"), "src": ("src/",)}
HEADER = """\
# Percents of lines and branches that the tests run, at least; `make coverage` checks them, and
# `dev/coverage.py --update` raises them.
"""


@dataclass(frozen=True)
class Covered:
    """How many of how many."""

    lines: int = 0
    all_lines: int = 0
    branches: int = 0
    all_branches: int = 0

    def __add__(self, other: Covered) -> Covered:
        return Covered(
            self.lines + other.lines,
            self.all_lines + other.all_lines,
            self.branches + other.branches,
            self.all_branches + other.all_branches,
        )

    def percents(self) -> dict[str, float]:
        return {
            "lines": 100 * self.lines / max(self.all_lines, 1),
            "branches": 100 * self.branches / max(self.all_branches, 1),
        }


def run(*command: str | Path) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


def gcovr() -> dict[str, Covered]:
    """The coverage of each file of src/."""
    report = BUILD / "coverage.json"
    run(
        # Without -j: with it, gcovr 5.2 hangs after an error.
        *("gcovr", "--root", ROOT, "--object-directory", BUILD, "--filter", "src/"),
        *("--exclude", TWICE, "--exclude-throw-branches", "--exclude-unreachable-branches"),
        *("--json-summary", report, "--html-details", BUILD / "coverage.html", BUILD),
    )
    summary: dict[str, Any] = json.loads(report.read_text())
    return {
        file["filename"]: Covered(
            file["line_covered"], file["line_total"], file["branch_covered"], file["branch_total"]
        )
        for file in summary["files"]
    }


def sums(files: dict[str, Covered]) -> dict[str, Covered]:
    """The sums of each part that has files."""
    total: dict[str, Covered] = {}
    for part, folders in PARTS.items():
        inside = [covered for name, covered in files.items() if name.startswith(folders)]
        total[part] = sum(inside, Covered())
    return total


def below(floor: dict[str, dict[str, float]], total: dict[str, Covered]) -> list[str]:
    """The parts that are below the floor."""
    found = []
    for part, covered in total.items():
        for what, percent in covered.percents().items():
            minimum = floor.get(part, {}).get(what, 0)
            if percent < minimum:
                found.append(f"{part}: {percent:.1f}% of the {what}, below {minimum}%")
    return found


def show(files: dict[str, Covered], total: dict[str, Covered]) -> None:
    for name, covered in [*sorted(files.items()), *total.items()]:
        if name in total or name.startswith(PARTS["engine"]):
            percents = covered.percents()
            print(
                f"{name:32} {percents['lines']:5.1f}% of {covered.all_lines:5} lines, "
                f"{percents['branches']:5.1f}% of {covered.all_branches:5} branches"
            )


def write_floor(total: dict[str, Covered]) -> None:
    lines = [HEADER]
    for part, covered in total.items():
        lines.append(f'["{part}"]')
        lines += [f"{what} = {int(percent)}" for what, percent in covered.percents().items()]
        lines.append("")
    FLOOR.write_text("\n".join(lines))


def main(arguments: Sequence[str]) -> int:
    if list(arguments) not in ([], ["--update"]):
        print(__doc__, file=sys.stderr)
        return 1
    if shutil.which("gcovr") is None:
        print("gcovr is missing: sudo apt install gcovr", file=sys.stderr)
        return 1
    run("cmake", "--preset", "coverage")
    run("cmake", "--build", "--preset", "coverage", "-j", JOBS, "--target", *TARGETS)
    # Delete old counts, and notes of objects that no longer exist, which would be misleading.
    for counts in (*BUILD.rglob("*.gcda"), *BUILD.rglob("*.gcno")):
        if counts.suffix == ".gcda" or not counts.with_suffix(".o").exists():
            counts.unlink()
    tests = ["ctest", "--preset", "coverage", "-j", JOBS, "--quiet"]
    tests += ["--tests-regex", TESTS, "--exclude-regex", UNFIT]
    # Tests check the output of programs; libgcov's messages go elsewhere.
    environment = os.environ | {"GCOV_ERROR_FILE": str(BUILD / "gcov-errors")}
    if subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode != 0:
        print("tests failed; for details: ctest --preset coverage --rerun-failed", file=sys.stderr)
        return 1
    files = gcovr()
    total = sums(files)
    show(files, total)
    print(f"line by line: {(BUILD / 'coverage.html').relative_to(ROOT)}")
    if arguments:
        write_floor(total)
        return 0
    if not FLOOR.exists():
        print(f"{FLOOR.relative_to(ROOT)} does not exist; --update writes it", file=sys.stderr)
        return 1
    missing = below(tomllib.loads(FLOOR.read_text()), total)
    for line in missing:
        print(f"below {FLOOR.relative_to(ROOT)}: {line}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"coverage.py: failed: {' '.join(map(str, error.cmd))}")
