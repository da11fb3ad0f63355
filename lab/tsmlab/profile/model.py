"""A heap profile as values: rows of samples, with the mappings and locations they refer to."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tsmlab.errors import UserError
from tsmlab.profile import messages

# Live bytes, all allocated bytes, or the free room in slabs that live blocks pin.
Type = Literal["inuse", "alloc", "pinned"]
WORDS: dict[Type, str] = {"inuse": "live", "alloc": "allocated", "pinned": "pinned"}
# Functions that only pass requests on: stacks begin with their callers.
DROP_FRAMES = (
    r"(?:__libc_|__rust_|__rdl_|__rg_|ts_)?(?:malloc|calloc|realloc|memalign|aligned_alloc|"
    r"posix_memalign|valloc|pvalloc|alloc_zeroed|alloc)(?:@.*)?|"
    r"operator new(?:\[\])?(?:\(.*)?|"
    r"(?:std::(?:__1::)?|__gnu_cxx::)\w*alloc\w*(?:<.*>)?::allocate(?:\(.*)?|"
    r"alloc::alloc::.*|<alloc::alloc::Global.*|ts::(?:engine::|\(anonymous namespace\)::).*"
)
# The libraries of C, C++ and Rust: function names, files with inline functions, and modules.
_LIBRARY_FUNCTION = re.compile(
    r"(?:std|__gnu_cxx|__cxxabiv1)::|"
    # For static programs, whose C library has no module of its own, and no line information.
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
_PARAMETERS = re.compile(r"(?<!operator)\((?!anonymous |\*)")
# The labels that each sample has.
_NUMBERS = ("bytes", "block", "class", "interval", "allocs", "live")


def printable(name: str) -> str:
    """A file name, which may hold any bytes, for a terminal."""
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


@dataclass(frozen=True)
class Frame:
    """A call: line 0 and file "" if unknown. `linkage` is the mangled name, `bare` the name without
    return type and parameters, if known."""

    function: str
    file: str = ""
    line: int = 0
    module: str = ""
    linkage: str = field(default="", compare=False)
    bare: str = field(default="", compare=False)

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    @property
    def label(self) -> str:
        return f"{self.function} {self.place}".rstrip()

    @cached_property
    def is_of_library(self) -> bool:
        """Whether it belongs to the standard library of C, C++ or Rust.

        The file decides only for inlined calls and C, whose names have no parameters: code that a
        compiler has merged has the line of one function and the name of another.
        """
        if _LIBRARY_MODULE.fullmatch(self.module):
            return True
        is_named = _LIBRARY_FUNCTION.match(self.bare or self.function) is not None
        if not self.file or self.file.endswith(".o"):  # a symbol without a line
            return is_named
        outside = re.sub("<.*>", "", self.function)
        is_whole = outside == "main" or _PARAMETERS.search(outside) is not None
        return self.is_in_library_file and (is_named or not is_whole)

    @cached_property
    def is_in_library_file(self) -> bool:
        return _LIBRARY_FILE.search(self.file) is not None


@dataclass(frozen=True, slots=True)
class Mapping:
    start: int
    limit: int
    offset: int
    file: str  # of any bytes
    build_id: str

    @property
    def module(self) -> str:
        return printable(Path(self.file).name)


@dataclass(frozen=True, slots=True)
class Location:
    """An address within a call, its mapping, and the frames named in the profile itself."""

    address: int
    mapping: Mapping | None
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """The samples of one stack, size class and interval, with the fields of the format. The stack
    is of location ids, innermost first, and `age` the mean of the live samples in seconds."""

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
        """The probability that a malloc of this block size was sampled."""
        return -math.expm1(-self.block / self.interval) if self.interval else 1.0

    def size(self, of: Type) -> float:
        """The mean of the requested sizes, or of the bytes that a block pins."""
        space = {"inuse": self.live_space, "alloc": self.space, "pinned": self.pinned}[of]
        samples = self.samples(of)
        return space * self.probability / samples if samples else self.bytes

    def samples(self, of: Type) -> int:
        return {"inuse": self.live, "alloc": self.allocs, "pinned": self.pinning}[of]

    def objects(self, of: Type) -> int:
        return self.allocs if of == "alloc" else self.live


@dataclass(frozen=True)
class Profile:
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
        """The rest of the comment that begins with a key."""
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
        """How many seconds the process had run when sampling began."""
        return (self._number("began_after_ms") or 0) / 1000.0

    @property
    def paused(self) -> float:
        """How many seconds sampling has been off since then."""
        return (self._number("paused_ms") or 0) / 1000.0

    @property
    def process_began_nanos(self) -> int | None:
        """When the process began, in nanoseconds since 1970; None in files of earlier versions."""
        before = self._number("began_after_ms")
        if before is None:
            return None
        return self.time_nanos - self.duration_nanos - before * 1_000_000

    @property
    def in_use(self) -> int | None:
        """Bytes of all blocks of the process, sampled or not; None if unknown."""
        return self._number("in_use")

    @property
    def allocated(self) -> float:
        return sum(row.space for row in self.rows)

    @cached_property
    def drops(self) -> re.Pattern[str]:
        """Matches the functions that should not be shown. pprof's expressions are not quite
        Python's."""
        try:
            return re.compile(self.drop_frames or DROP_FRAMES)
        except re.error:
            return re.compile(DROP_FRAMES)


def read(path: Path) -> Profile:
    """Reads a profile; UserError for a file that tsmalloc did not write."""
    return profile_from(messages.read(path), path)


def profile_from(message: Any, path: Path) -> Profile:
    try:
        return _profile(message, path)
    except (IndexError, KeyError) as error:
        raise UserError(
            f"{path} is damaged: it refers to an entry that it does not have ({error}).",
            "If it was copied, copy it again; otherwise profile the program again.",
        ) from error


def _profile(message: Any, path: Path) -> Profile:
    strings = [each.decode(errors="backslashreplace") for each in message.string_table]

    def text(index: int) -> str:
        if index < 0:
            raise IndexError(f"string {index}")
        return strings[index] if index else ""

    def file_name(index: int) -> str:
        text(index)
        name: bytes = message.string_table[index] if index else b""
        return name.decode(errors="surrogateescape")

    def refused(problem: str) -> UserError:
        remedy = "Give a profile that tsmalloc wrote; use google/pprof for others."
        return UserError(f"{path} {problem}", remedy)

    types = [text(each.type) for each in message.sample_type]
    if "inuse_space" not in types or "alloc_space" not in types:
        raise refused(f"is not a heap profile: it contains {', '.join(types) or 'nothing'}.")
    mappings: dict[int, Mapping | None] = {0: None} | {
        m.id: Mapping(m.memory_start, m.memory_limit, m.file_offset,
                      file_name(m.filename), text(m.build_id).lower())
        for m in message.mapping
    }  # fmt: skip
    functions = {
        f.id: (text(f.name), text(f.filename), text(f.system_name)) for f in message.function
    }

    locations = {}
    for each in message.location:
        mapping, frames = mappings[each.mapping_id], []
        for line in each.line:
            name, file, linkage = functions[line.function_id]
            module = mapping.module if mapping else ""
            frames.append(Frame(name, file, line.line, module, linkage))
        locations[each.id] = Location(each.address, mapping, tuple(frames))

    def row(sample: Any) -> Row:
        labels = {text(each.key): each for each in sample.label}
        numbers = [labels[name].num for name in _NUMBERS if name in labels]
        if len(numbers) < len(_NUMBERS) or min(numbers) < 0:
            raise refused(
                f"has a sample without tsmalloc's labels ({', '.join(_NUMBERS)}), so its "
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
            cut="stack" in labels and text(labels["stack"].str) == "cut",
            pinned=space.get("pinned_space", 0.0),
            pinning=labels["pinning"].num if "pinning" in labels else 0,
        )

    return Profile(
        path=path,
        rows=[row(sample) for sample in message.sample],
        locations=locations,
        comments=tuple(map(text, message.comment)),
        drop_frames=text(message.drop_frames),
        time_nanos=message.time_nanos,
        duration_nanos=message.duration_nanos,
        period=message.period,
        has_pinned="pinned_space" in types,
    )
