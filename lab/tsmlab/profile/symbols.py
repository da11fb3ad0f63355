"""Functions and lines of the addresses in a profile.

The process writes addresses alone, since names cost time and memory there; the files on disk have
the rest. llvm-symbolizer or addr2line reads DWARF, with inlined frames; the machine has one of them
wherever there is a compiler (docs/adr/0134-profiles-offline.md). No debuginfod is asked, and no
name is taken for an address that lies outside the function of that name.
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
from tsmlab.profile.origin import Origin

PROGRAMS = ("llvm-symbolizer", "addr2line")
_OPTIONS = {"llvm-symbolizer": ("--output-style=GNU",), "addr2line": ()}
_COMMON = ("-a", "-f", "-i", "-C", "-e")
REMEDY = "sudo apt install llvm (or binutils), for lines and inlined frames"
_ADDRESS = re.compile(r"0x[0-9a-f]+")
# Parts that do not belong to a name: a hash of old Rust's, and a symbol's version.
_BEHIND = re.compile(r"::h[0-9a-f]{16}$|@@?[A-Z][\w.]*$")
# Letters of old Rust's names that a linker would not take.
_ESCAPED = re.compile(r"\$(LT|GT|RF|BP|C|LP|RP|u[0-9a-f]{2})\$|\.\.")
_LETTERS = {"LT": "<", "GT": ">", "RF": "&", "BP": "*", "C": ",", "LP": "(", "RP": ")", None: "::"}
Call = tuple[str, str, int]
Numbered = Sequence[tuple[int, Location]]


@dataclass
class Symbols:
    """The frames of each location, by id, and notes of those without any."""

    frames: dict[int, tuple[Frame, ...]]
    notes: list[str] = field(default_factory=list)


def look_up(profile: Profile, debug_folder: Path = binaries.DEBUG_FOLDER) -> Symbols:
    """The frames of all locations: the file's own, or those that the binaries give."""
    symbols = Symbols({})
    by_mapping: dict[Mapping | None, list[tuple[int, Location]]] = defaultdict(list)
    for number, location in profile.locations.items():
        if location.frames:
            symbols.frames[number] = location.frames
        else:
            by_mapping[location.mapping].append((number, location))
    with Origin(profile) as origin:
        path, note = origin.perf_map()
        jitted = perf_map(path)
        for mapping, locations in by_mapping.items():
            if mapping is None or not mapping.file.startswith("/") or _is_anonymous(mapping.file):
                symbols.notes += [note] if note else []
                for number, location in locations:
                    symbols.frames[number] = (_unmapped(mapping, location.address, jitted),)
            else:
                found = binaries.find(mapping, origin, debug_folder)
                _look_up_in(found, mapping, locations, symbols)
    symbols.notes = list(dict.fromkeys(symbols.notes))
    _demangle(symbols)
    return symbols


def _demangle(symbols: Symbols) -> None:
    """Names that the program left as they are: llvm's old demangler does not know all."""
    frames = [frame for each in symbols.frames.values() for frame in each]
    mangled = sorted({frame.function for frame in frames if frame.function.startswith("_Z")})
    if not mangled or shutil.which("c++filt") is None:
        return
    try:
        text = _output_of(["c++filt"], mangled)
    except (OSError, subprocess.SubprocessError):
        return
    names = dict(zip(mangled, text.splitlines(), strict=True))
    for number, each in symbols.frames.items():
        symbols.frames[number] = tuple(
            replace(f, function=names.get(f.function, f.function)) for f in each
        )


def _is_anonymous(file: str) -> bool:
    return file.startswith(("/memfd:", "/dev/zero", "//anon", "/SYSV"))


def _unmapped(mapping: Mapping | None, address: int, jitted: Callable[[int], str | None]) -> Frame:
    """A frame of code that no file has: a JIT's, or the kernel's."""
    area = mapping.file if mapping and mapping.file.startswith("[") else "[anon]"
    module = mapping.module if mapping else ""
    return Frame(jitted(address) or f"{area}+{address:#x}", module=module)


def _look_up_in(
    found: binaries.Found, mapping: Mapping, locations: Numbered, symbols: Symbols
) -> None:
    module = mapping.module
    if found.note:
        symbols.notes.append(f"no symbols of {module}: {found.note}")
    if found.doubt and (found.lines or found.loaded):
        symbols.notes.append(f"unverified names: {found.doubt}")
    at = {number: found.address(mapping, each.address) for number, each in locations}
    wanted = sorted({address for address in at.values() if address is not None})
    calls: dict[int, list[Call]] = {}
    programs = [name for name in PROGRAMS if shutil.which(name)]
    if found.lines is not None and not programs:
        symbols.notes.append(f"no lines: {REMEDY}")
    elif found.lines is not None and wanted:
        # llvm-symbolizer knows no dwz.
        program = programs[-1 if found.lines.alternate else 0]
        try:
            calls = _ask(program, found.lines.path, wanted)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            symbols.notes.append(f"no lines of {module}: {program} failed ({error})")
    for number, location in locations:
        address = at[number]
        frames = () if address is None else _frames(found, address, calls, module)
        offset = location.address - mapping.start + mapping.offset
        symbols.frames[number] = frames or (Frame(f"{module}+{offset:#x}", module=module),)


def _frames(
    found: binaries.Found, address: int, calls: dict[int, list[Call]], module: str
) -> tuple[Frame, ...]:
    told = calls.get(address, [])
    if any(file for _, file, _ in told):
        other = "??" if all(name for name, _, _ in told) else found.symbol(address) or "??"
        return tuple(Frame(name or other, file, line, module) for name, file, line in told)
    # Without a line, addr2line names the nearest function before the address, however far away.
    symbol = found.symbol(address)
    if symbol is None:
        return ()
    return (Frame((told[0][0] if told else "") or symbol, module=module),)


def _ask(program: str, file: Path, addresses: Sequence[int]) -> dict[int, list[Call]]:
    """The answer of the program for addresses in a file: for each its calls, innermost first."""
    command = [program, *_OPTIONS[program], *_COMMON, str(file)]
    return parsed(_output_of(command, [f"{address:#x}" for address in addresses]).splitlines())


def _output_of(command: Sequence[str], lines: Sequence[str]) -> str:
    environment = {
        k: v for k, v in os.environ.items() if k not in ("DEBUGINFOD_URLS", "LD_PRELOAD")
    }
    return subprocess.run(
        command,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        errors="backslashreplace",
        env=environment | {"LC_ALL": "C.UTF-8"},
        check=True,
    ).stdout


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
            known = "" if file in ("??", "") else file
            function = "" if name == "??" else _plain(name)
            current.append((function, known, int(number) if number.isdigit() else 0))
            name = None
    return found


def _plain(name: str) -> str:
    found = _BEHIND.sub("", name)
    return _ESCAPED.sub(_letter, found) if "$" in found else found


def _letter(match: re.Match[str]) -> str:
    code = match[1]
    return _LETTERS[code] if code in _LETTERS else chr(int(code[1:], 16))


def perf_map(path: Path | None) -> Callable[[int], str | None]:
    """The functions, by address, that a JIT has written down for perf."""
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
    """Writes functions, lines and inlined frames into a message, for those that it lacks."""
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
            name = text(frame.function)
            message.function.add(
                id=functions[key], name=name, system_name=name, filename=text(frame.file)
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
