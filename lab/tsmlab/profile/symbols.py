"""Functions and lines of the addresses in a profile.

The process writes only addresses; names come from the binaries on this machine. llvm-symbolizer or
addr2line reads DWARF, with inlined frames; any machine with a compiler has one of them
(docs/adr/0134-profiles-offline.md). debuginfod is never queried, and a name is never used for an
address outside its function.
"""

from __future__ import annotations

import bisect
import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tsmlab.profile import binaries
from tsmlab.profile.model import DROP_FRAMES, Frame, Location, Mapping, Profile

PROGRAMS = {
    "llvm-symbolizer": ("--output-style=GNU", "--no-demangle", "-a", "-f", "-i", "-e"),
    "addr2line": ("-a", "-f", "-i", "-e"),
}
# The whole name and, if the demangler can, the one without return type and parameters.
DEMANGLERS = {"c++filt": (["-i"], ["-i", "-p"]), "llvm-cxxfilt": ([], None)}
REMEDY = "sudo apt install llvm (or binutils), for lines and inlined frames"
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_MANGLED = re.compile(r"_[ZR]")
_VERSION = re.compile(r"@@?[A-Z][\w.]*$")  # of a symbol
FAILURES = (OSError, subprocess.SubprocessError, ValueError)
Call = tuple[str, str, int]


@dataclass
class Symbols:
    """The frames of each location, by id, and notes about locations without any."""

    frames: dict[int, tuple[Frame, ...]]
    notes: list[str] = field(default_factory=list)


def look_up(profile: Profile, debug_folder: Path = binaries.DEBUG_FOLDER) -> Symbols:
    """The frames of all locations: the file's own, or those found in the binaries."""
    symbols = Symbols({})
    by_mapping: dict[Mapping | None, dict[int, Location]] = defaultdict(dict)
    for number, location in profile.locations.items():
        if location.frames:
            symbols.frames[number] = location.frames
        else:
            by_mapping[location.mapping][number] = location
    origin = binaries.Origin(profile)
    path, note = origin.perf_map()
    jitted = perf_map(path)
    for mapping, locations in by_mapping.items():
        if mapping is None or not mapping.file.startswith("/") or _is_anonymous(mapping.file):
            symbols.notes += [note] if note else []
            for number, location in locations.items():
                symbols.frames[number] = (_unmapped(mapping, location.address, jitted),)
        else:
            found = binaries.find(mapping, origin, debug_folder)
            _look_up_in(found, mapping, locations, symbols)
    symbols.notes = list(dict.fromkeys(symbols.notes))
    demangle(symbols)
    return symbols


def _is_anonymous(file: str) -> bool:
    return file.startswith(("/memfd:", "/dev/zero", "//anon", "/SYSV"))


def _unmapped(mapping: Mapping | None, address: int, jitted: Callable[[int], str | None]) -> Frame:
    """A frame for code that is in no file: a JIT's, or the kernel's."""
    area = mapping.file if mapping and mapping.file.startswith("[") else "[anon]"
    module = mapping.module if mapping else ""
    return Frame(jitted(address) or f"{area}+{address:#x}", module=module)


def _look_up_in(
    found: binaries.MappedBinary, mapping: Mapping, locations: dict[int, Location], symbols: Symbols
) -> None:
    module = mapping.module
    if found.note:
        symbols.notes.append(f"no symbols for {module}: {found.note}")
    if found.doubt:
        symbols.notes.append(f"unverified names: {found.doubt}")
    at = {number: found.address(mapping, each.address) for number, each in locations.items()}
    wanted = sorted({address for address in at.values() if address is not None})
    calls: dict[int, list[Call]] = {}
    programs = [name for name in PROGRAMS if shutil.which(name)]
    if found.lines is not None and not programs:
        symbols.notes.append(f"no lines: {REMEDY}")
    elif found.lines is not None and wanted:
        # llvm-symbolizer does not support dwz.
        program = programs[-1 if found.lines.alternate else 0]
        command = [program, *PROGRAMS[program], str(found.lines.path)]
        try:
            calls = parsed(_output_of(command, [f"{address:#x}" for address in wanted]))
        except FAILURES as error:
            symbols.notes.append(f"no lines for {module}: {program} failed ({error})")
    for number, location in locations.items():
        address = at[number]
        frames = () if address is None else _frames(found, address, calls, module)
        offset = location.address - mapping.start + mapping.offset
        symbols.frames[number] = frames or (Frame(f"{module}+{offset:#x}", module=module),)


def _frames(
    found: binaries.MappedBinary, address: int, calls: dict[int, list[Call]], module: str
) -> tuple[Frame, ...]:
    frames = calls.get(address, [])
    if any(file for _, file, _ in frames):
        other = "??" if all(name for name, _, _ in frames) else found.symbol(address) or "??"
        return tuple(Frame(name or other, file, line, module) for name, file, line in frames)
    # Without line information, addr2line names the nearest function before the address, however far
    # away.
    symbol = found.symbol(address)
    return () if symbol is None else (Frame(_VERSION.sub("", symbol), module=module),)


def _output_of(command: Sequence[str], lines: Sequence[str]) -> list[str]:
    environment = {
        k: v for k, v in os.environ.items() if k not in ("DEBUGINFOD_URLS", "LD_PRELOAD")
    }
    done = subprocess.run(
        command,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        errors="backslashreplace",
        env=environment | {"LC_ALL": "C.UTF-8"},
        check=True,
    )
    return done.stdout.splitlines()


def parsed(lines: Iterable[str]) -> dict[int, list[Call]]:
    """The output of both programs: an address, then two lines for each call."""
    found: dict[int, list[Call]] = {}
    current: list[Call] = []
    name: str | None = None
    for line in lines:
        if name is None and _ADDRESS.fullmatch(line):
            current = found.setdefault(int(line, 16), [])
        elif name is None:
            name = line
        else:
            place = re.sub(r" \(discriminator \d+\)$", "", line)
            file, _, number = place.rpartition(":")
            function = "" if name == "??" else _VERSION.sub("", name)
            known = "" if file == "??" else file
            current.append((function, known, int(number) if number.isdigit() else 0))
            name = None
    return found


def demangle(symbols: Symbols) -> None:
    """Makes names readable. Mangled ones stay if there is no demangler."""
    frames = {frame for each in symbols.frames.values() for frame in each}
    linkages = {frame: frame.linkage or frame.function for frame in frames}
    mangled = sorted({each for each in linkages.values() if _MANGLED.match(each)})
    whole, bare = {}, {}
    program = next((name for name in DEMANGLERS if shutil.which(name)), None)
    if mangled and program is not None:
        plain, without_parameters = DEMANGLERS[program]
        try:
            whole = dict(zip(mangled, _output_of([program, *plain], mangled), strict=True))
            if without_parameters is not None:
                lines = _output_of([program, *without_parameters], mangled)
                bare = dict(zip(mangled, lines, strict=True))
        except FAILURES as error:
            symbols.notes.append(f"mangled names: {program} failed ({error})")

    def named(frame: Frame) -> Frame:
        linkage = linkages[frame]
        if linkage not in whole:
            return frame
        return replace(frame, function=whole[linkage], linkage=linkage, bare=bare.get(linkage, ""))

    for number, each in symbols.frames.items():
        symbols.frames[number] = tuple(map(named, each))


def perf_map(path: Path | None) -> Callable[[int], str | None]:
    """The functions, by address, that a JIT has written to a file for perf."""
    try:
        text = path.read_text(errors="backslashreplace") if path else ""
    except OSError:
        text = ""
    found = re.findall(r"(?m)^([0-9a-fA-F]+) ([0-9a-fA-F]+) (.*)$", text)
    entries = sorted((int(start, 16), int(size, 16), name) for start, size, name in found)

    def name_of(address: int) -> str | None:
        at = bisect.bisect_right(entries, (address, 1 << 64, "")) - 1
        start, size, name = entries[at] if at >= 0 else (0, 0, "")
        return str(name) if address < start + size else None

    return name_of


def name_locations(message: Any, symbols: Symbols) -> None:
    """Adds functions, lines and inlined frames to a message where they are missing."""
    strings = {text: number for number, text in enumerate(message.string_table)}

    def text(value: str) -> int:
        data = value.encode(errors="surrogateescape")
        if data not in strings:
            strings[data] = len(message.string_table)
            message.string_table.append(data)
        return strings[data]

    functions: dict[tuple[str, str], int] = {}
    highest = max((each.id for each in message.function), default=0)

    def function(frame: Frame) -> int:
        key = frame.function, frame.file
        if key not in functions:
            functions[key] = highest + len(functions) + 1
            message.function.add(
                id=functions[key],
                name=text(frame.function),
                system_name=text(frame.linkage or frame.function),
                filename=text(frame.file),
            )
        return functions[key]

    named = set()
    for location in message.location:
        if location.line:
            continue
        for frame in symbols.frames[location.id]:
            location.line.add(function_id=function(frame), line=frame.line)
        named.add(location.mapping_id)
    for mapping in message.mapping:
        if mapping.id in named:
            mapping.has_functions = mapping.has_filenames = True
            mapping.has_line_numbers = mapping.has_inline_frames = True
    if not message.drop_frames:
        message.drop_frames = text(DROP_FRAMES)
