#!/usr/bin/env python3
"""Runs the project's tests and checks, each stage quietly, and sums up what passed.

    test.py test     the release build, the lab, the checks, and stress and fuzz inputs of the heaps
                     under sanitizers (what `make test` does): only some of the long tests, and of
                     those that repeat for each fit, strategy or allocator
    test.py all      every test of every build: half an hour on two processors
    test.py quick    the release build, the lab, the checks
    test.py lint     only the checks, and the links of the documents
    test.py format   formats the sources
    test.py preset NAME [TARGETS [TESTS]]
                     one build, with the compiler in CC and CXX: all of it, or these targets; its
                     tests, or those with matching names

C++ and Python tests have their own runners; this combines their results. A stage that passes is one
line; one that fails lists its failed tests with the end of their output, and where the rest is. A
stage that ran no test has failed. A failure does not stop later stages.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import clang_checks

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "test-logs"
VENV = ROOT / ".venv" / "bin"
PROCESSORS = len(os.sched_getaffinity(0))
JOBS = str(PROCESSORS)
# Tests wait more than compilers do, and a few C++ ones sleep for most of a minute.
TESTS_AT_ONCE = str(PROCESSORS + 2)
LOG_LINES_SHOWN = 60
FAILURES_SHOWN = 10
FAILURE_LINES_SHOWN = 20


@dataclass(frozen=True)
class Build:
    """A preset, which parts of it to build, and which of its tests to run: those whose name matches
    one regular expression and not another, and that have no label that a third one matches. It is
    skipped if one of its tools is missing (files, each with the package that has it)."""

    preset: str
    targets: tuple[str, ...] = ("all",)
    tests: str = "."
    but: tuple[str, ...] = ()
    without: str = "^$"
    tools: tuple[tuple[str, str], ...] = ()


RELEASE = Build("release", without="^(every_fit|long)$")
# The engine and the hardened heap at debug level 3: their invariants are checked on each slow path.
# Their programs are one target, tests_checked, because make builds several targets one after the
# other.
LEVEL_3_TESTS = r"^(stress\.(engine|secure)|fuzz\.(engine|secure)_operations)$"
# Sanitizers with assertions (tsan at debug level 1, asan at 2) where they matter most: many threads
# in the engine and in the hardened heap. (The classic heaps take half of the time to compile, so
# only `all` includes them. Code that samples rarely does hardly more than code that does not.)
TSAN_TESTS = r"^stress\.(engine|engine\.profile-64|secure)$"
ASAN_TESTS = (
    r"^stress\.engine\.profile-64$|^fuzz\.(arena_operations|frame_tables|image_reader)$|"
    + LEVEL_3_TESTS
)
CHOSEN = (
    RELEASE,
    Build("asan", ("tests_checked",), ASAN_TESTS),
    Build("tsan", ("stress-engine", "stress-secure"), TSAN_TESTS),
)
# `asan` checks for undefined behaviour as well, so `ubsan` has nothing to add; and it asserts what
# `debug` does of the classic heaps, but a sanitizer's malloc leaves no room for drop-in libraries:
# `debug` adds the tests under those, of each strategy with one fit. `tsan` says nothing of programs
# without threads. Other machines run under qemu-user, many times slower: the drop-in libraries of
# the engine and the hardened heap, the unit tests of all heaps.
EMULATED_TARGETS = (
    "tsmalloc",
    "tsmalloc-secure",
    "conformance_suite",
    "reliability_suite",
    "stress-engine",
    "stress-secure",
    "tests_unit",
    "instruction_calls",
)
EMULATED_TESTS = (
    r"^(conformance\.[a-z_]+|[A-Z][A-Za-z]+)\.(tsmalloc|secure)$|^stress\.(engine|secure)$"
    r"|^FullMemory\.inside-|^unit\.|^instructions$"
)
# What qemu-user 7.2 does not support, each with its reason; tests/unit/CMakeLists.txt lists single
# unit tests.
NOT_EMULATED = {
    r"^(conformance\.scarcity|SmallAddressSpace)\.": "limits on address space are ignored",
    r"^MappingLimit\.": "at the limit of mappings the emulator itself fails",
    r"^(conformance\.threads|ThreadExit)\.": "the emulator's memory counts as the program's",
    r"^AlignedAllocation\.tsmalloc$": "likewise",
    r"^(StartUp|StaticTls|FullMemory)\.(tsmalloc|secure)$": "they execute themselves",
    r"^(Misuse|Options|Techniques)\.": "they start programs from a script",
    r"^OlderKernels\.": "no seccomp",
    r"^ReallocGrowth\.secure$": "a mapping that grows is moved each time, under glibc as well",
    r"^ForkInThreadedProgram\.secure$": "a fork copies notes of 100 MB on the reserved addresses",
    r"^unit\.engine\.pages_of_": "their page size is the double's, the same on each machine",
}


def emulated(preset: str, machine: str) -> Build:
    """The build for another machine, with Debian's cross compiler."""
    tools = (
        (f"/usr/bin/{machine}-linux-gnu-g++", f"g++-{machine}-linux-gnu"),
        (f"/usr/bin/qemu-{machine}", "qemu-user"),
        ("/usr/src/googletest", "googletest"),
    )
    return Build(preset, EMULATED_TARGETS, EMULATED_TESTS, tuple(NOT_EMULATED), tools=tools)


ALL = (
    Build("release"),
    Build(
        "debug",
        (
            "tests_checked",
            "tests_fuzz",
            "drop_in_libraries",
            "tests_programs",
            "thread_test_measurement",
            "tests_conformance",
            "tests_footprint",
            "tests_link",
            "tests_reliability",
            "tests_misuse",
        ),
        r"^(programs|conformance|[A-Z]).*[.-](tsmalloc|secure|best|linked)$"
        r"|^(link|footprint|StaticLink|Hardened)"
        r"|^fuzz\.|" + LEVEL_3_TESTS,
    ),
    Build("asan"),
    Build("musl", ("tests_musl",), tools=(("/usr/bin/musl-gcc", "musl-tools"),)),
    emulated("arm64", "aarch64"),
    emulated("riscv64", "riscv64"),
    Build(
        "tsan",
        ("tests_unit", "tests_property", "tests_stress", "tests_native"),
        r"^(unit|property|stress|native)",
    ),
)
BUILDS = {"test": CHOSEN, "all": ALL, "quick": (RELEASE,)}
PYTHON_SOURCES = ("lab", "dev", "packaging", "tests", "tools")
# What mypy checks, each with the folder that its imports start from.
TYPED_SOURCES = (
    ("lab", ("tsmlab",)),
    ("dev/setup", (".",)),
    ("dev", ("test.py", "check_layers.py")),
)
CONFIG = ROOT / "lab" / "pyproject.toml"


Counts = Counter[str]  # of tests that passed, failed, or were skipped


def told(counts: Counts) -> str:
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    return f"{counts['passed']} passed, {counts['failed']} failed{skipped}"


@dataclass(frozen=True)
class Stage:
    """One command. With a report it is a test runner, otherwise a single test."""

    name: str
    command: Sequence[str | Path]
    cwd: Path = ROOT
    report: Path | None = None

    def run(self) -> Counts:
        """Runs the stage, prints its line, and on failure the end of what it printed."""
        log = LOGS / f"{re.sub(r'[ /]', '-', self.name)}.log"
        if self.report is not None:
            self.report.unlink(missing_ok=True)
        started = time.monotonic()
        processor_before = processor_seconds()
        with log.open("wb") as output:
            status = subprocess.run(
                self.command,
                cwd=self.cwd,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        counts, failures = self._results(status)
        seconds = time.monotonic() - started
        spent = processor_seconds() - processor_before
        print(
            f"{'FAIL' if counts['failed'] else 'ok':<5}{self.name:<18}{told(counts)}"
            f" ({seconds:.0f} s, {spent:.0f} s of a processor)",
            flush=True,
        )
        if counts["failed"]:
            for name, problems in failures[:FAILURES_SHOWN]:
                print(f"  failed: {name}")
                print(quote(problems.splitlines()[-FAILURE_LINES_SHOWN:]))
            if not failures:
                with log.open(errors="replace") as lines:
                    print(quote(deque((line.rstrip() for line in lines), LOG_LINES_SHOWN)))
            print(f"  full output: {log.relative_to(ROOT)}", flush=True)
        return counts

    def _results(self, status: int) -> tuple[Counts, list[tuple[str, str]]]:
        if self.report is None:
            return Counter(["failed" if status else "passed"]), []
        counts, failures = read_report(self.report)
        # A runner that crashed, or found no test at all, has failed whatever it reported.
        if (status != 0 or counts["passed"] == 0) and not failures:
            counts["failed"] += 1
        return counts, failures


def processor_seconds() -> float:
    """The processor time of stages that have ended, including all processes that they waited
    for."""
    times = os.times()
    return times.children_user + times.children_system


def read_report(report: Path) -> tuple[Counts, list[tuple[str, str]]]:
    """The outcomes in a JUnit file, which ctest and pytest both write, and the failed tests' names,
    each with its output."""
    try:
        cases = list(ET.parse(report).iter("testcase"))
    except (OSError, ET.ParseError):
        cases = []
    counts: Counts = Counter()
    failures = []
    for case in cases:
        problem = next((part for part in case if part.tag in {"failure", "error"}), None)
        if problem is None:
            counts["passed" if case.find("skipped") is None else "skipped"] += 1
            continue
        counts["failed"] += 1
        output = case.findtext("system-out") or problem.text or problem.get("message") or ""
        failures.append((f"{case.get('classname') or ''} {case.get('name')}".strip(), output))
    return counts, failures


def quote(lines: Iterable[str]) -> str:
    return "\n".join(f"  | {line}" for line in lines)


def build_and_test(build: Build) -> Iterator[Stage]:
    """Configures and builds a preset and runs its tests. (make's set-up has built `release`.)"""
    preset = build.preset
    for file, package in build.tools:
        if not Path(file).exists():
            print(f"skip {preset}: needs {package}", flush=True)
            return
    if preset != "release":
        yield Stage(f"{preset} configure", ["cmake", "--preset", preset])
        yield Stage(
            f"{preset} build",
            ["cmake", "--build", "--preset", preset, "-j", JOBS, "--target", *build.targets],
        )
    report = LOGS / f"ctest-{preset}.xml"
    yield Stage(
        f"{preset} tests",
        [
            *("ctest", "--preset", preset, "-j", TESTS_AT_ONCE),
            *("--tests-regex", build.tests, "--exclude-regex", "|".join(build.but) or "^$"),
            *("--label-exclude", build.without),
            *("--output-junit", report),
        ],
        report=report,
    )


def lab_tests(marked: str) -> Iterator[Stage]:
    """Runs the lab's tests, limited by one of pytest's mark expressions."""
    report = LOGS / "pytest.xml"
    command: list[str | Path] = [VENV / "python", "-m", "pytest", "-q", f"--junitxml={report}"]
    # By files, so that fixtures of a file are made once.
    command += ["-n", TESTS_AT_ONCE, "--dist", "loadfile", "-m", marked]
    yield Stage("lab tests", command, ROOT / "lab", report)


def checks(what: str) -> Iterator[Stage]:
    yield Stage("ruff check", [VENV / "ruff", "check", "--config", CONFIG, *PYTHON_SOURCES])
    yield Stage(
        "ruff format", [VENV / "ruff", "format", "--check", "--config", CONFIG, *PYTHON_SOURCES]
    )
    for folder, sources in TYPED_SOURCES:
        yield Stage(
            f"mypy {folder}", [VENV / "mypy", "--config-file", CONFIG, *sources], ROOT / folder
        )
    for check in clang_checks.TOOLS:
        if package := clang_checks.missing(check):
            print(f"skip clang {check}: needs {package}", flush=True)
        else:
            command: list[str | Path] = [sys.executable, ROOT / "dev" / "clang_checks.py", check]
            if check == "tidy" and what == "test":
                command.append("--quick")  # everything takes two minutes: `lint` and `all`
            yield Stage(f"clang {check}", command)


def stages(what: str) -> Iterator[Stage]:
    for build in BUILDS.get(what, ()):
        yield from build_and_test(build)
    if what in BUILDS:
        yield from lab_tests("" if what == "all" else "not every_allocator and not long")
    yield from checks(what)
    if what == "lint":
        yield Stage("links", [sys.executable, ROOT / "dev" / "check_links.py"])


def format_sources() -> int:
    for verb in (["check", "--fix-only", "--quiet"], ["format", "--quiet"]):
        subprocess.run(
            [VENV / "ruff", *verb, "--config", CONFIG, *PYTHON_SOURCES], cwd=ROOT, check=True
        )
    if package := clang_checks.missing("format"):
        print(f"C and C++ not formatted: needs {package}", file=sys.stderr)
        return 0
    return 0 if clang_checks.format_sources(fix=True) else 1


def _environment() -> dict[str, str]:
    """The environment without variables of an outer make or a preload that affect the tests, and
    with Python's caches, without which each of a thousand starts of the lab would compile all its
    imports."""
    dropped = {"LD_PRELOAD", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PYTHONDONTWRITEBYTECODE"}
    return {name: value for name, value in os.environ.items() if name not in dropped}


def preset_build(arguments: Sequence[str]) -> Build:
    """The build for `preset NAME [TARGETS [TESTS]]`; an empty word counts as absent."""
    name, targets, tests = [*arguments, "", "", ""][:3]
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]
    known = [preset["name"] for preset in presets if not preset.get("hidden")]
    if name not in known or len(arguments) > 3:
        raise ValueError(f"choose a preset ({', '.join(known)}): make test-preset PRESET=asan")
    return Build(name, tuple(targets.split()) or ("all",), tests or ".")


def main(arguments: Sequence[str]) -> int:
    what = arguments[0] if arguments else ""
    if what not in {*BUILDS, "lint", "format", "preset"} or (what != "preset" and arguments[1:]):
        print(__doc__, file=sys.stderr)
        return 1
    if what == "format":
        return format_sources()
    if what == "preset":
        try:
            to_run = build_and_test(preset_build(arguments[1:]))
        except ValueError as error:
            print(f"test.py: {error}", file=sys.stderr)
            return 1
    else:
        to_run = stages(what)
    LOGS.mkdir(parents=True, exist_ok=True)
    # A shell's background job ignores Ctrl-C, and so would all tests, even those that send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    total: Counts = Counter()
    try:
        for stage in to_run:
            total += stage.run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(told(total))
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
