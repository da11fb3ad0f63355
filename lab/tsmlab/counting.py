"""Counts that are immune to machine noise: instructions, simulated cache misses, system calls."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from tsmlab import strace
from tsmlab.errors import UserError
from tsmlab.measuring import Executor, MeasureExecutor, Measurement, RunRequest
from tsmlab.metrics import BUILT_IN, PEAK_MEMORY, MetricSpec
from tsmlab.system_libraries import run_tool

INSTRUCTIONS = "instructions"
CACHE_MISSES = "cache_misses"
SYSTEM_CALLS = "system_calls"
ROUNDS = 3
# The same simulated caches on every machine, so that misses can be compared between machines.
_CACHES = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=8388608,16,64")
_VALGRIND = ("valgrind", "-q", "--tool=cachegrind", "--cache-sim=yes", "--trace-children=yes")
# A run under a tool may take this many times the normal limit, plus a minute.
SLOWDOWN = 10.0
START_SECONDS = 60.0
# Warnings about times, or about too few rounds of something that repeats exactly.
NOT_OF_COUNTS = frozenset(
    {"few-rounds", "noise-floor", "first-round", "drift", "outliers", "bimodal"}
    | {"high-load", "short-runs", "governor", "sampling-cost"}
)


@dataclass(frozen=True)
class Counters:
    valgrind: bool
    strace: bool

    @staticmethod
    def installed() -> Counters:
        has_valgrind = shutil.which("valgrind") is not None
        has_valgrind = has_valgrind and run_tool(["valgrind", "--version"]).returncode == 0
        return Counters(has_valgrind, strace.refusal() is None)

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        """Replaces a comparison's own metrics: the first judged one ranks. Times are measured, not
        judged."""
        counted = [MetricSpec(PEAK_MEMORY, "peak memory", "bytes", judged=True)]
        if self.valgrind:
            counted.insert(0, MetricSpec(INSTRUCTIONS, "instructions", "count", judged=True))
            counted.append(MetricSpec(CACHE_MISSES, "cache misses", "count", judged=True))
        if self.strace:
            counted.append(MetricSpec(SYSTEM_CALLS, "system calls", "count", judged=True))
        others = (spec for spec in BUILT_IN if spec.key != PEAK_MEMORY)
        return (*counted, *(replace(spec, judged=False) for spec in others))

    @property
    def note(self) -> str | None:
        tools = {"valgrind": self.valgrind, "strace": self.strace}
        missing = [tool for tool, works in tools.items() if not works]
        if not missing:
            return None
        return f"counting needs {', '.join(missing)}: sudo apt install {' '.join(missing)}"


def measuring(deterministic: bool) -> tuple[Executor, Counters | None, list[str]]:
    """The executor of a verb, which counts if the verb should be deterministic; the counters;
    notes."""
    if not deterministic:
        return MeasureExecutor(), None, []
    counters = Counters.installed()
    notes = [counters.note] if counters.note else []
    return CountingExecutor(MeasureExecutor(), counters), counters, notes


@dataclass(frozen=True)
class CountingExecutor:
    """Repeats each run under each tool, and adds the tool's counts."""

    executor: Executor
    counters: Counters

    def run(self, request: RunRequest) -> Measurement:
        plain = self.executor.run(request)
        if plain.interrupted or plain.timed_out or plain.exit_code is None:
            return plain
        extra: dict[str, float] = {}
        with tempfile.TemporaryDirectory(prefix="tsmalloc-counts-") as name:
            folder = Path(name)
            if self.counters.valgrind:
                out = f"--cachegrind-out-file={folder}/%p"
                under = _slower(request)
                command = (*_VALGRIND, *_CACHES, out, *request.command)
                counted = self.executor.run(replace(under, command=command))
                if counted.exit_code != plain.exit_code:
                    return counted  # a program that fails under the tool has failed
                extra |= _cachegrind(folder)
            if self.counters.strace:
                table = folder / "calls"
                counted = strace.run(_slower(request), self.executor, table)
                if counted.exit_code != plain.exit_code:
                    return counted
                extra[SYSTEM_CALLS] = float(strace.read(table)["total"].calls)
        return replace(plain, extra={**plain.extra, **extra})


def _slower(request: RunRequest) -> RunRequest:
    """For a run under a tool: more time, and no output."""
    seconds = request.timeout_seconds
    limit = None if seconds is None else SLOWDOWN * seconds + START_SECONDS
    nowhere = Path("/dev/null")
    return replace(request, timeout_seconds=limit, stdout=nowhere, stderr=nowhere)


def _cachegrind(folder: Path) -> dict[str, float]:
    """Sums over all processes: instructions, and misses of the last cache."""
    instructions = misses = 0
    for file in folder.iterdir():
        text = file.read_text(encoding="utf-8", errors="replace")
        events = re.search(r"^events: (.*)$", text, re.MULTILINE)
        summary = re.search(r"^summary:\s*(.*)$", text, re.MULTILINE)
        if events is None or summary is None:
            raise UserError(f"valgrind wrote no totals to {file.name}.", "Is the disk full?")
        sums = dict(zip(events[1].split(), map(int, summary[1].split()), strict=False))
        instructions += sums["Ir"]
        misses += sums["ILmr"] + sums["DLmr"] + sums["DLmw"]
    return {INSTRUCTIONS: float(instructions), CACHE_MISSES: float(misses)}
