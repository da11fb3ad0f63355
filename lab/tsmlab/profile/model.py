"""A heap profile as values: rows of samples, the mappings and locations that they refer to.

Why: everything that shows a profile asks the same questions of it.
Refuses to: guess. A file without the labels that tsmalloc writes is refused, since its errors could
not be told.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tsmlab.errors import UserError
from tsmlab.profile import messages

# Of a row: what is live, all that was allocated, or the free room of slabs that live blocks pin.
Type = Literal["inuse", "alloc", "pinned"]
WORDS: dict[Type, str] = {"inuse": "live", "alloc": "allocated", "pinned": "pinned"}
# The engine holds proxies of blocks up to this part of the interval (profile/stranded_bytes.h).
BLOCKS_PER_PROXY = 256
# Functions that only hand the request on: reports begin with their callers.
DROP_FRAMES = (
    r"(?:__libc_|__rust_|__rdl_|__rg_|ts_)?(?:malloc|calloc|realloc|memalign|aligned_alloc|"
    r"posix_memalign|valloc|pvalloc|alloc_zeroed|alloc)(?:@.*)?|"
    r"operator new(?:\[\])?(?:\(.*)?|"
    r"(?:std::(?:__1::)?|__gnu_cxx::)\w*alloc\w*(?:<.*>)?::allocate(?:\(.*)?|"
    r"alloc::alloc::.*|<alloc::alloc::Global.*|ts::(?:engine::|\(anonymous namespace\)::).*"
)
# Of the libraries of C, C++ and Rust: names, files with inline functions, and modules.
_LIBRARY_FUNCTION = re.compile(
    r"(?:std|__gnu_cxx|__cxxabiv1)::|_ZN?K?S[at]|"
    # Of static programs, whose C library has no module of its own, and no lines.
    r"(?:_start|start_thread|clone3?|__libc_start\w*|_IO_\w+|__vasprintf_internal|_*v?asprintf|"
    r"_*(?:str|wcs)n?dup|_*get(?:line|delim)|_*f?(?:d|re)?open(?:64)?(?:_internal)?)$"
)
_LIBRARY_FILE = re.compile(
    r"/include/(?:[\w-]+/)?c\+\+/|"
    r"^/usr/include/(?:[\w-]+-linux-[\w-]+/)?(?:bits/|sys/)?[\w-]+\.h$|"
    r"(?:^|/)(?:library/(?:alloc|core|std)|hashbrown-[\d.]+)/src/"
)
_LIBRARY_MODULE = re.compile(
    r"(?:libstdc\+\+|libc\+\+|libc\+\+abi|libgcc_s|libc|libc\.musl-\w+|ld-[\w-]+)(?:-[\d.]+)?\.so.*"
)
_NUMBERS = ("bytes", "block", "class", "interval", "allocs", "live")
_ABSENT = {**dict.fromkeys(_NUMBERS, -1), "pinning": 0}


def printable(name: str) -> str:
    """A file's name, which may be of any bytes, for a terminal."""
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def bare_name(function: str) -> tuple[str, bool]:
    """A demangled name of C++ without template arguments, arguments, and the type that it returns,
    which names of templates begin with; and whether it had arguments."""
    text = without_templates(function).replace("(anonymous namespace)", "[anonymous]")
    head, arguments, _ = text.replace("operator()", "operator[]").partition("(")
    operator = head.find("operator")
    begin = head.rfind(" ", 0, operator if operator >= 0 else len(head)) + 1
    return head[begin:], bool(arguments)


def without_templates(function: str) -> str:
    """A name without what stands between angle brackets."""
    kept = []
    depth = 0
    for at, char in enumerate(function):
        if char == "<" and not function.endswith(("operator", "operator<"), 0, at):
            depth += 1
        if depth == 0:
            kept.append(char)
        if char == ">" and depth:
            depth -= 1
    return "".join(kept)


@dataclass(frozen=True)
class Frame:
    """A call: line 0 and file "" where they are unknown."""

    function: str
    file: str = ""
    line: int = 0
    module: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    @property
    def label(self) -> str:
        return f"{self.function} {self.place}".rstrip()

    @cached_property
    def is_of_library(self) -> bool:
        """Whether it is of the standard library of C, C++ or Rust.

        A file alone does not say so of a whole name: a call that a compiler has merged into its
        caller gets the line of the one and the name of the other. A bare name is that of an inlined
        call, or of C.
        """
        if _LIBRARY_MODULE.fullmatch(self.module):
            return True
        name, has_arguments = bare_name(self.function)
        is_named = _LIBRARY_FUNCTION.match(name) is not None
        if not self.file or self.file.endswith(".o"):  # a symbol's, of which no line is known
            return is_named
        is_whole = has_arguments or name == "main"
        return self.is_in_library_file and (is_named or not is_whole)

    @cached_property
    def is_in_library_file(self) -> bool:
        return _LIBRARY_FILE.search(self.file) is not None


@dataclass(frozen=True, slots=True)
class Mapping:
    """A file in memory."""

    start: int
    limit: int
    offset: int
    file: str
    build_id: str

    @property
    def path(self) -> Path:
        """The file's place, of any bytes."""
        return Path(self.file)

    @property
    def module(self) -> str:
        return printable(self.path.name)


@dataclass(frozen=True, slots=True)
class Location:
    """An address within a call, its mapping, and the frames that the file itself names for it."""

    address: int
    mapping: Mapping | None
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """The samples of one stack, size class and interval. The stack is of location ids, innermost
    first. `bytes` and `block` are means, as requested and of blocks; `space`, `live_space` and
    `pinned` are the file's estimates of bytes; so many samples as `pinning`, if they pinned alike,
    would have the same error; `age` is the mean of the live samples, in seconds."""

    stack: tuple[int, ...]
    bytes: int
    space: float
    live_space: float
    block: int
    size_class: int
    interval: int
    allocs: int
    live: int
    age: float | None
    cut: bool
    pinned: float = 0.0
    pinning: int = 0

    @property
    def probability(self) -> float:
        """That a malloc of this block size was sampled."""
        return -math.expm1(-self.block / self.interval) if self.interval else 1.0

    def size(self, of: Type) -> float:
        """The mean of the requested sizes, or of what a block pins."""
        space = {"inuse": self.live_space, "alloc": self.space, "pinned": self.pinned}[of]
        samples = self.samples(of)
        return space * self.probability / samples if samples else self.bytes

    def samples(self, of: Type) -> int:
        return {"inuse": self.live, "alloc": self.allocs, "pinned": self.pinning}[of]

    def objects(self, of: Type) -> int:
        return self.live if of == "pinned" else self.samples(of)


@dataclass(frozen=True)
class Profile:
    """The contents of a file."""

    path: Path
    rows: Sequence[Row]
    locations: dict[int, Location]
    comments: tuple[str, ...]
    drop_frames: str
    time_nanos: int
    duration_nanos: int
    period: int
    has_pinned: bool = False

    def comment(self, key: str) -> str | None:
        """The rest of the comment that begins with a word."""
        start = f"{key} "
        return next((c[len(start) :] for c in self.comments if c.startswith(start)), None)

    @property
    def dropped(self) -> int:
        """Samples that the process had no room for."""
        text = self.comment("dropped") or "0"
        return int(text) if text.isdigit() else 0

    @property
    def pid(self) -> int | None:
        text = self.comment("pid") or ""
        return int(text) if text.isdigit() else None

    def _milliseconds(self, key: str) -> int | None:
        text = self.comment(key) or ""
        return int(text) if text.isdigit() else None

    @property
    def began_after(self) -> float:
        """For how many seconds the process had run when sampling began, as far as is known."""
        return (self._milliseconds("began_after_ms") or 0) / 1000.0

    @property
    def paused(self) -> float:
        """For how many seconds sampling has been off since then."""
        return (self._milliseconds("paused_ms") or 0) / 1000.0

    @property
    def process_began_nanos(self) -> int | None:
        """When the process began, since 1970; None if an earlier version wrote the file."""
        before = self._milliseconds("began_after_ms")
        if before is None:
            return None
        return self.time_nanos - self.duration_nanos - before * 1_000_000

    @property
    def in_use(self) -> int | None:
        """Bytes of all blocks of the process, sampled or not; None if they are not known."""
        text = self.comment("in_use") or ""
        return int(text) if text.isdigit() else None

    @property
    def allocated(self) -> float:
        """Bytes of all allocations, estimated."""
        return sum(row.space for row in self.rows)

    @cached_property
    def drops(self) -> re.Pattern[str]:
        """Matches the functions that are not shown."""
        return re.compile(self.drop_frames)


def read(path: Path) -> Profile:
    """Reads a profile; raises UserError for a profile that is not tsmalloc's."""
    return of_message(messages.read(path), path)


def of_message(message: Any, path: Path) -> Profile:
    try:
        return _Reader(message, path).profile()
    except (IndexError, KeyError) as error:
        raise UserError(
            f"{path} is damaged: it refers to an entry that it does not have ({error}).",
            "If it was copied, copy it again; else profile the program again.",
        ) from error


class _Reader:
    """Turns numbers into what they refer to."""

    def __init__(self, message: Any, path: Path) -> None:
        self._message = message
        self._path = path
        self._strings = [text.decode(errors="backslashreplace") for text in message.string_table]

    def profile(self) -> Profile:
        message = self._message
        types = [self._text(each.type) for each in message.sample_type]
        if "inuse_space" not in types or "alloc_space" not in types:
            kinds = ", ".join(types) or "nothing"
            raise UserError(
                f"{self._path} is no heap profile: it holds {kinds}.",
                "Name a profile that tsmalloc wrote; google/pprof shows others.",
            )
        locations = self._locations()
        drop = self._text(message.drop_frames) or DROP_FRAMES
        try:
            re.compile(drop)
        except re.error:
            drop = DROP_FRAMES  # pprof's expressions are not quite Python's
        return Profile(
            path=self._path,
            rows=self._rows(locations),
            locations=locations,
            comments=tuple(map(self._text, message.comment)),
            drop_frames=drop,
            time_nanos=message.time_nanos,
            duration_nanos=message.duration_nanos,
            period=message.period,
            has_pinned="pinned_space" in types,
        )

    def _text(self, index: int) -> str:
        if index == 0:
            return ""
        if index < 0:
            raise IndexError(f"string {index}")
        text: str = self._strings[index]
        return text

    def _bytes(self, index: int) -> bytes:
        self._text(index)
        found: bytes = self._message.string_table[index] if index else b""
        return found

    def _locations(self) -> dict[int, Location]:
        message = self._message
        mappings = {
            m.id: Mapping(
                start=m.memory_start,
                limit=m.memory_limit,
                offset=m.file_offset,
                file=self._bytes(m.filename).decode(errors="surrogateescape"),
                build_id=self._text(m.build_id).lower(),
            )
            for m in message.mapping
        }
        functions = {f.id: (self._text(f.name), self._text(f.filename)) for f in message.function}
        found = {}
        for each in message.location:
            mapping = mappings[each.mapping_id] if each.mapping_id else None
            module = mapping.module if mapping else ""
            frames = tuple(
                Frame(*functions[line.function_id], line=line.line, module=module)
                for line in each.line
            )
            found[each.id] = Location(each.address, mapping, frames)
        return found

    def _rows(self, locations: dict[int, Location]) -> list[Row]:
        names = self._strings
        types = [names[each.type] for each in self._message.sample_type]
        alloc_space, inuse_space = types.index("alloc_space"), types.index("inuse_space")
        pinned_space = types.index("pinned_space") if "pinned_space" in types else -1
        rows = []
        for sample in self._message.sample:
            numbers = dict(_ABSENT)
            age, cut = None, False
            for label in sample.label:
                key = names[label.key]
                if key == "age":
                    age = label.num / 1000.0
                elif key == "stack":
                    cut = names[label.str] == "cut"
                else:
                    numbers[key] = label.num
            if any(numbers[name] < 0 for name in _NUMBERS):
                raise UserError(
                    f"{self._path} has a sample without the labels of tsmalloc "
                    f"({', '.join(_NUMBERS)}), so that its errors are unknown.",
                    "Name a profile that tsmalloc wrote; google/pprof shows others.",
                )
            stack = tuple(sample.location_id)
            for each in stack:
                locations[each]
            size, block, size_class, interval, allocs, live = (numbers[name] for name in _NUMBERS)
            if interval and not block:
                raise KeyError("a block without a size")
            space, live_space = sample.value[alloc_space], sample.value[inuse_space]
            rows.append(
                Row(
                    stack,
                    size,
                    space,
                    live_space,
                    block,
                    size_class,
                    interval,
                    allocs,
                    live,
                    age,
                    cut,
                    pinned=sample.value[pinned_space] if pinned_space >= 0 else 0.0,
                    pinning=numbers["pinning"],
                )
            )
        return rows
