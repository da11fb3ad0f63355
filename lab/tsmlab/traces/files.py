"""Trace files: their contents, with events as numpy arrays.

docs/formats/trace.md describes the format. bin/trace reads, checks and decompresses it, so Python
needs no zstd.
"""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tsmlab import paths
from tsmlab.errors import UserError
from tsmlab.measuring import read_answer
from tsmlab.wording import counted, names

SUFFIX = ".tstrace"
INFO_SCHEMA = "tsmalloc-trace-info/2"

KINDS = ("malloc", "calloc", "aligned", "realloc", "free", "refused", "thread_begin", "thread_end",
         "fork")  # fmt: skip
MALLOC, CALLOC, ALIGNED, REALLOC, FREE, REFUSED = range(6)

EVENT = np.dtype([
    ("time_ns", "<u8"), ("size", "<u8"), ("site", "<u8"),
    ("slot", "<u4"), ("generation", "<u4"), ("thread", "<u4"),
    ("kind", "u1"), ("log2_alignment", "u1"), ("reserved", "<u2"),
])  # fmt: skip
CHUNK = np.dtype([
    ("magic", "S4"), ("version", "<u2"), ("type", "<u2"), ("image", "<u4"), ("count", "<u4"),
    ("first", "<u8"), ("reserved", "<u8"),
])  # fmt: skip
IMAGE, EVENTS = 1, 2
_BODY_BYTES = {IMAGE: 152, 3: 24, 4: 16}


@dataclass(frozen=True)
class Program:
    """One program image of a trace. number: the argument of --image."""

    number: int
    name: str
    events: int


@dataclass(frozen=True)
class Image:
    """One process image, as printed by `trace info`. birth: root, fork, exec or orphan."""

    number: int
    birth: str
    parent: int | None
    begin_ns: int
    program: str
    allocator: str
    events: int
    threads: int
    end_ns: int
    end: str

    @property
    def as_program(self) -> Program:
        return Program(self.number, self.program, self.events)


@dataclass(frozen=True)
class Trace:
    """The contents of a trace. is_finished: false if the recorder was killed; the events until then
    are there."""

    path: Path
    bytes: int
    is_finished: bool
    images: tuple[Image, ...]
    raw_images: tuple[dict[str, Any], ...]

    @property
    def busiest(self) -> Image:
        return max(self.images, key=lambda image: image.events)

    def family(self, first: int) -> set[int]:
        """An image and all images forked from it."""
        found = {first}
        for image in self.images[first + 1 :]:
            if image.birth == "fork" and image.parent in found:
                found.add(image.number)
        return found

    def chosen(self, number: int | None) -> Image:
        """The image to replay: this one, or the program with the most events, forks included.
        Raises UserError for one that a replay cannot begin with."""
        if number is None:
            programs = [image for image in self.images if image.birth != "fork"]
            return max(programs, key=lambda image: self._events_of(self.family(image.number)))
        if number >= len(self.images):
            last = len(self.images) - 1
            raise UserError(f"{self.path} has no image {number}.", f"The last image is {last}.")
        image = self.images[number]
        if image.birth == "fork":
            raise UserError(
                f"image {number} was forked, and starts with its parent's objects.",
                f"Replay image {image.parent}, which forks it.",
            )
        return image

    def _events_of(self, numbers: set[int]) -> int:
        return sum(self.images[number].events for number in numbers)


def trace_name(trace: Path) -> str:
    return trace.name.removesuffix(SUFFIX) or trace.name


def programs(found: Sequence[Program]) -> str:
    """ "perl (image 1, 20,400 events), sh (image 0, 264 events) and 2 more"."""
    labels = [f"{p.name or '?'} (image {p.number}, {counted(p.events, 'event')})" for p in found]
    return names(labels, 3)


def check_traces(traces: Sequence[Path]) -> None:
    """Raises UserError for the first that is not a file, before anything takes time."""
    for trace in traces:
        if trace.is_dir():
            raise UserError(f"{trace} is a directory.", f"Give the traces in it: {trace}/*{SUFFIX}")
        if trace.exists() and not trace.is_file():
            raise UserError(f"{trace} is not a regular file.", "Copy the trace into one.")
        if not trace.is_file():
            raise UserError(
                f"no such trace: {trace}.",
                "Record one: tsmalloc record -o my.tstrace -- PROGRAM. Some are in lab/traces/.",
            )


def read_whole_trace(trace: Path) -> Trace:
    """Reads the whole trace; raises UserError if it is damaged, or has no events."""
    done = subprocess.run(
        [paths.tool("trace"), "info", trace],
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise _complaint(done.stderr, done.returncode)
    raw = read_answer(done.stdout.decode(errors="surrogateescape"), "trace", INFO_SCHEMA)
    if not raw["events"]:
        raise UserError(f"{trace} contains no events.", "Record a program that allocates.")
    images = tuple(Image(**each) for each in raw["images"])
    return Trace(trace, raw["file_bytes"], raw["finished"], images, tuple(raw["images"]))


def _complaint(stderr: bytes, status: int) -> UserError:
    """Splits the message of bin/trace: a sentence, and after the last semicolon the remedy."""
    message = stderr.decode(errors="replace").strip().removeprefix("trace: ")
    fault, _, remedy = message.rpartition("; ")
    if not fault:
        return UserError(message or f"trace failed (exit {status}).")
    return UserError(f"{fault}.", remedy[:1].upper() + remedy[1:])


Events = npt.NDArray[Any]


def chunks(trace: Path) -> Iterator[tuple[int, int, int, Events]]:
    """The type, the image, the number of the first event and the events of each chunk."""
    with subprocess.Popen(
        [paths.tool("trace"), "unpack", trace],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        bufsize=1 << 20,
    ) as unpacker:  # fmt: skip
        assert unpacker.stdout is not None
        assert unpacker.stderr is not None
        while header := unpacker.stdout.read(CHUNK.itemsize):
            chunk = np.frombuffer(header, CHUNK)[0]
            count = int(chunk["count"])
            size = _BODY_BYTES.get(int(chunk["type"]), count * EVENT.itemsize)
            body = unpacker.stdout.read(size)
            columns = np.frombuffer(body if count else b"", np.uint8).reshape(EVENT.itemsize, -1)
            events = cast(Events, np.ascontiguousarray(columns.T).view(EVENT).ravel())
            yield int(chunk["type"]), int(chunk["image"]), int(chunk["first"]), events
        message = unpacker.stderr.read()
    if unpacker.returncode != 0:
        raise _complaint(message, unpacker.returncode)
