"""A heap profile as values: rows of samples, the mappings and locations that they refer to.

A file without the labels that tsmalloc writes is refused, since its errors could not be told.
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
from tsmlab.profile.names import bare

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
# The labels that each sample has.
_NUMBERS = ("bytes", "block", "class", "interval", "allocs", "live")


def printable(name: str) -> str:
    """A file's name, which may be of any bytes, for a terminal."""
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


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
        name, has_parameters = bare(self.function)
        is_named = _LIBRARY_FUNCTION.match(name) is not None
        if not self.file or self.file.endswith(".o"):  # a symbol's, of which no line is known
            return is_named
        is_whole = has_parameters or name == "main"
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

    def _number(self, key: str) -> int | None:
        text = self.comment(key) or ""
        return int(text) if text.isdigit() else None

    @property
    def dropped(self) -> int:
        """Samples that the process had no room for."""
        return self._number("dropped") or 0

    @property
    def pid(self) -> int | None:
        return self._number("pid")

    @property
    def began_after(self) -> float:
        """For how many seconds the process had run when sampling began, as far as is known."""
        return (self._number("began_after_ms") or 0) / 1000.0

    @property
    def paused(self) -> float:
        """For how many seconds sampling has been off since then."""
        return (self._number("paused_ms") or 0) / 1000.0

    @property
    def process_began_nanos(self) -> int | None:
        """When the process began, since 1970; None if an earlier version wrote the file."""
        before = self._number("began_after_ms")
        if before is None:
            return None
        return self.time_nanos - self.duration_nanos - before * 1_000_000

    @property
    def in_use(self) -> int | None:
        """Bytes of all blocks of the process, sampled or not; None if they are not known."""
        return self._number("in_use")

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
            raise self._of_others(f"is no heap profile: it holds {kinds}.")
        drop = self._text(message.drop_frames) or DROP_FRAMES
        try:
            re.compile(drop)
        except re.error:
            drop = DROP_FRAMES  # pprof's expressions are not quite Python's
        locations = self._locations()
        return Profile(
            path=self._path,
            rows=[self._row(sample, types, locations) for sample in message.sample],
            locations=locations,
            comments=tuple(map(self._text, message.comment)),
            drop_frames=drop,
            time_nanos=message.time_nanos,
            duration_nanos=message.duration_nanos,
            period=message.period,
            has_pinned="pinned_space" in types,
        )

    def _of_others(self, problem: str) -> UserError:
        remedy = "Name a profile that tsmalloc wrote; google/pprof shows others."
        return UserError(f"{self._path} {problem}", remedy)

    def _text(self, index: int) -> str:
        if index < 0:
            raise IndexError(f"string {index}")
        return self._strings[index] if index else ""

    def _file(self, index: int) -> str:
        """A file's name, which may be of any bytes."""
        self._text(index)
        name: bytes = self._message.string_table[index] if index else b""
        return name.decode(errors="surrogateescape")

    def _locations(self) -> dict[int, Location]:
        message = self._message
        mappings: dict[int, Mapping | None] = {0: None} | {
            m.id: Mapping(
                m.memory_start,
                m.memory_limit,
                m.file_offset,
                self._file(m.filename),
                self._text(m.build_id).lower(),
            )
            for m in message.mapping
        }
        functions = {f.id: (self._text(f.name), self._text(f.filename)) for f in message.function}

        def location(each: Any) -> Location:
            mapping = mappings[each.mapping_id]
            module = mapping.module if mapping else ""
            frames = (Frame(*functions[f.function_id], f.line, module) for f in each.line)
            return Location(each.address, mapping, tuple(frames))

        return {each.id: location(each) for each in message.location}

    def _row(self, sample: Any, types: list[str], locations: dict[int, Location]) -> Row:
        labels = {self._strings[each.key]: each for each in sample.label}
        numbers = [labels[name].num for name in _NUMBERS if name in labels]
        if len(numbers) < len(_NUMBERS) or min(numbers) < 0:
            raise self._of_others(
                f"has a sample without the labels of tsmalloc ({', '.join(_NUMBERS)}), so that its "
                "errors are unknown."
            )
        size, block, size_class, interval, allocs, live = numbers
        if interval and not block:
            raise KeyError("a block without a size")
        for each in sample.location_id:
            locations[each]
        space = dict(zip(types, sample.value, strict=False))
        return Row(
            stack=tuple(sample.location_id),
            bytes=size,
            space=space["alloc_space"],
            live_space=space["inuse_space"],
            block=block,
            size_class=size_class,
            interval=interval,
            allocs=allocs,
            live=live,
            age=labels["age"].num / 1000.0 if "age" in labels else None,
            cut="stack" in labels and self._strings[labels["stack"].str] == "cut",
            pinned=space.get("pinned_space", 0.0),
            pinning=labels["pinning"].num if "pinning" in labels else 0,
        )
