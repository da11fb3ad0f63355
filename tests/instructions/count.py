#!/usr/bin/env python3
"""Instructions of the engine's paths, and the size of its text, against those in counts.toml.

    count.py CALLS LIBRARY [--emulator COMMAND] [--update] [--paths]

CALLS is the program that makes the calls (calls.cpp), LIBRARY the release build's libtsmalloc.so.
callgrind runs one under the other and counts, for each call, the instructions inside the library:
neither the machine's load nor its caches matter, nor libc's share of the work (such as memset).
Programs for another architecture run under COMMAND, a qemu-user that steps and logs each
instruction. More than in counts.toml is an error; less is reported, so that the file can be
lowered. --update rewrites the numbers of this compiler, --paths prints instructions by function.

Numbers of different compilers are never compared. Without numbers for the compiler, or without
valgrind, the test is skipped (status 77).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

COUNTS = Path(__file__).with_name("counts.toml")
SKIPPED = 77
HEADER = """\
# Instructions of one call inside libtsmalloc.so, by compiler; written by
#     python3 tests/instructions/count.py CALLS LIBRARY --update
# and checked by the test `instructions` (see there for CALLS and LIBRARY).
"""

# One call: its instructions by function.
Call = Counter[str]
Series = list[Call]


def total(call: Call) -> int:
    return sum(call.values())


def usual(series: Series) -> Call:
    """The most common count of a series."""
    counts = Counter(map(total, series))
    return next(call for call in series if total(call) == counts.most_common(1)[0][0])


def least(series: Series) -> Call:
    return min(series, key=total)


def slow(series: Series) -> Call:
    """The most common count among calls above the minimum."""
    fewest = total(least(series))
    return usual([call for call in series if total(call) != fewest] or series)


def most(series: Series) -> Call:
    return max(series, key=total)


def most_but(larger: int) -> Callable[[Series], Call]:
    """The count exceeded by this many calls."""
    return lambda series: sorted(series, key=total)[-1 - larger]


def whole(series: Series) -> Call:
    return sum(series, Counter())


@dataclass(frozen=True)
class Measure:
    """A name in counts.toml, for one number of the calls case_<case>."""

    name: str
    case: str
    choose: Callable[[Series], Call] = usual


MEASURES = (
    Measure("malloc from the cache bin", "malloc"),
    Measure("malloc from the cache bin, over 1 KiB", "malloc_coarse"),
    Measure("malloc that refills from a slab's list", "list", slow),
    Measure("malloc that refills by carving", "carve", slow),
    Measure("malloc that refills from a new slab", "carve", most),
    Measure("malloc that collects 1200 remote frees", "collect", most),
    Measure("free to the cache bin", "free"),
    Measure("malloc that refills from a spare list", "take_list", slow),
    Measure("free that puts a list aside", "put_aside", most),
    Measure("free that overflows the cache bin", "overflow"),
    Measure("free that closes a full bin", "retire", most),
    Measure("free that retires a slab", "retire", most_but(1)),
    Measure("remote free that joins a batch", "remote_batch"),
    Measure("remote free that sends a batch", "remote_batch", most),
    Measure("remote free that stays in the cache bin", "remote_stays", least),
    Measure("calloc", "calloc"),
    Measure("aligned_alloc", "aligned_alloc"),
    Measure("malloc_usable_size", "usable_size"),
    Measure("realloc in place", "realloc_in_place"),
    Measure("realloc that moves the block", "realloc_moves"),
    Measure("operator new", "new"),
    Measure("operator delete", "delete"),
    Measure("operator delete, sized", "delete_sized"),
    Measure("malloc from the page heap", "malloc_large"),
    Measure("realloc in place, large", "realloc_large"),
    Measure("free to the page heap", "free_large"),
    Measure("ts_scope_enter", "scope_enter"),
    Measure("ts_scope_leave", "scope_leave"),
    Measure("ts_arena_malloc", "arena_malloc"),
    Measure("free of an arena's block, outside of its scope", "arena_free"),
    Measure("1200 blocks allocated", "carve", whole),
    Measure("1200 blocks freed", "retire", whole),
    Measure("1200 blocks freed into lists", "put_aside", whole),
    Measure("1200 blocks freed remotely", "remote_batch", whole),
)


class CountError(Exception):
    """The fault and its remedy, as a message."""


def run(command: Sequence[str | Path], **environment: str) -> str:
    """Returns standard output. Drops variables that would change what the library does, and allows
    no other thread to do part of the work.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TSMALLOC_", "LD_"))}
    env["TSMALLOC_BACKGROUND"] = "off"
    done = subprocess.run(
        command, env=env | environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        words = " ".join(map(str, command))
        raise CountError(f"failed with status {done.returncode}: {words}\n{done.stderr}")
    return done.stdout


def callgrind(calls: Path, library: Path) -> str:
    """A dump for each call of a case, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        # The two patterns match the same functions. If they were identical, callgrind would only
        # obey the second option.
        run(
            [
                *("valgrind", "-q", "--tool=callgrind", "--zero-before=case*"),
                *("--dump-after=case_*", "--combine-dumps=yes", "--compress-strings=no"),
                *("--compress-pos=no", f"--callgrind-out-file={out}", calls),
            ],
            LD_PRELOAD=str(library),
        )
        return out.read_text(errors="replace")


class Emulated:
    """Counts each call of a case in qemu's log of single instructions. A case's callees are
    nameless in it, since qemu only knows the program's symbols.
    """

    INSTRUCTION = re.compile(r"Trace (\d+): \S+ \[\w+/(\w+)/\w+/\w+\] (\S*)")

    def __init__(self, library: Path) -> None:
        self.library = library
        self.code = range(0)
        self.file = ""  # as the system numbers it, once it is open
        self.calls: dict[str, tuple[str, Call]] = {}  # by thread
        self.found: dict[str, Series] = {}

    def note_system_call(self, line: str) -> None:
        if opened := re.search(r'openat\(.*"(.*)".*\) = (\d+)$', line):
            self.file = opened[2] if Path(opened[1]).name == self.library.name else ""
        elif self.file and (mapped := re.search(r"mmap\((.*)\) = (0x\w+)$", line)):
            _, length, access, _, file, offset = mapped[1].split(",")
            if file == self.file and "PROT_EXEC" in access and offset == "0":
                self.code = range(int(mapped[2], 16), int(mapped[2], 16) + int(length))

    def note_instruction(self, thread: str, at: int, symbol: str) -> None:
        name, call = self.calls.get(thread, ("", Call()))
        if symbol and symbol != name:  # in the program: a case, or its caller
            if name.startswith("case_") and total(call):
                self.found.setdefault(name.removeprefix("case_"), []).append(call)
            self.calls[thread] = symbol, Call()
        elif at in self.code:
            call[f"{at - self.code.start:#x}"] += 1

    def read(self, log: Iterable[str]) -> dict[str, Series]:
        for line in log:
            if instruction := self.INSTRUCTION.match(line):
                thread, at, symbol = instruction.groups()
                self.note_instruction(thread, int(at, 16), symbol)
            else:
                self.note_system_call(line)
        return self.found


def emulate(calls: Path, library: Path, emulator: Sequence[str]) -> dict[str, Series]:
    """The calls of each case under an emulator, in order."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        run(
            [*emulator, calls],
            LD_PRELOAD=str(library),
            LD_BIND_NOW="1",
            EMULATOR_OPTIONS=f"-singlestep -strace -d nochain,exec -D {log}",
        )
        with log.open(errors="replace") as lines:
            return Emulated(library).read(lines)


def series_of(dumps: str, library: Path) -> dict[str, Series]:
    """The calls of each case, in order. Costs of callees are in the lines after `calls=`."""
    found: dict[str, Series] = {}
    for dump in re.split(r"^part: ", dumps, flags=re.MULTILINE)[1:]:
        trigger = re.search(r"^desc: Trigger: --dump-after=case_(\w+)$", dump, re.MULTILINE)
        if trigger is None:
            continue
        call: Call = Counter()
        is_ours = is_callee = False
        function = ""
        for line in dump.splitlines():
            if line.startswith("ob="):
                is_ours = Path(line[3:]).name == library.name
            elif line.startswith("fn="):
                function = line[3:]
            elif line.startswith("calls="):
                is_callee = True
            elif re.fullmatch(r"\d+ \d+", line):
                if is_ours and not is_callee:
                    call[function] += int(line.split()[1])
                is_callee = False
        found.setdefault(trigger[1], []).append(call)
    return found


def sizes(library: Path) -> dict[str, int]:
    """Of the code only, and of everything loaded and not written to (`size`)."""
    parts = run(["size", "-A", "-d", library])
    sections = dict(re.findall(r"^(\.\S+)\s+(\d+)\s", parts, re.MULTILINE))
    loaded = run(["size", "-B", "-d", library]).splitlines()[1].split()[0]
    return {"bytes of code": int(sections[".text"]), "bytes of text": int(loaded)}


# What the core without features lacks (dev/price).
OF_FEATURES = ("scope_enter", "scope_leave", "arena_malloc", "arena_free")


def measure(
    calls: Path, library: Path, emulator: Sequence[str], *, partly: bool = False
) -> tuple[dict[str, int], dict[str, Call]]:
    """The numbers by name, and where calls spend them; `partly`: without those of features."""
    if emulator:
        series = emulate(calls, library, emulator)
    else:
        series = series_of(callgrind(calls, library), library)
    paths: dict[str, Call] = {}
    for wanted in MEASURES:
        if partly and wanted.case in OF_FEATURES:
            continue
        call = wanted.choose(series[wanted.case]) if wanted.case in series else Counter()
        if total(call) == 0:
            raise CountError(
                f"no call of case_{wanted.case} entered {library.name}: is the library "
                "preloaded, and are the cases in calls.cpp functions of their own?"
            )
        paths[wanted.name] = call
    return {name: total(call) for name, call in paths.items()} | sizes(library), paths


def write(counts: dict[str, dict[str, int]], path: Path) -> None:
    lines = [HEADER]
    for compiler, numbers in sorted(counts.items()):
        lines.append(f"[{compiler}]")
        lines += [f'"{name}" = {number}' for name, number in numbers.items()]
        lines.append("")
    path.write_text("\n".join(lines))


def differences(kept: dict[str, int], measured: dict[str, int]) -> tuple[list[str], list[str]]:
    """The counts that got worse or appear on only one side, and those to lower in the file."""
    worse, better = [], []
    for name in sorted(kept.keys() | measured.keys()):
        if name not in kept or name not in measured:
            worse.append(f"{name}: only in {'the file' if name in kept else 'the measurement'}")
        elif measured[name] > kept[name]:
            worse.append(f"{name}: {kept[name]} -> {measured[name]}")
        elif measured[name] < kept[name]:
            better.append(f"{name}: {kept[name]} -> {measured[name]}")
    return worse, better


def show_paths(paths: dict[str, Call]) -> None:
    for name, call in paths.items():
        print(f"{total(call):7}  {name}")
        for function, instructions in call.most_common():
            short = function.replace("(anonymous namespace)::", "").partition("(")[0]
            print(f"{instructions:15}  {short}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        usage="count.py CALLS LIBRARY [--emulator COMMAND] [--update] [--paths]"
    )
    parser.add_argument("calls", type=Path)
    parser.add_argument("library", type=Path)
    parser.add_argument("--emulator", type=str.split, default=[])
    parser.add_argument("--counts", type=Path, default=COUNTS)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--paths", action="store_true")
    options = parser.parse_args(arguments)
    if not options.emulator and shutil.which("valgrind") is None:
        print("skipped: callgrind counts the instructions; install valgrind (apt-get)")
        return SKIPPED
    compiler = run([*options.emulator, options.calls, "--compiler"]).strip()
    counts = tomllib.loads(options.counts.read_text()) if options.counts.exists() else {}
    if compiler not in counts and not options.update:
        print(f"skipped: {options.counts.name} has no numbers of {compiler}; --update adds them")
        return SKIPPED
    measured, paths = measure(options.calls, options.library, options.emulator)
    if options.paths:
        show_paths(paths)
    if options.update:
        write(counts | {compiler: measured}, options.counts)
        print(f"{options.counts}: {len(measured)} numbers of {compiler}")
        return 0
    worse, better = differences(counts[compiler], measured)
    for line in better:
        print(f"better: {line}")
    for line in worse:
        print(f"WORSE: {line}")
    if better:
        print(f"fewer than {options.counts.name} says; lower it: count.py ... --update")
    if worse:
        print("find where with --paths; if it is worth its price, say why and --update")
        return 1
    print(f"{len(measured)} numbers of {compiler}: none is worse")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CountError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")
