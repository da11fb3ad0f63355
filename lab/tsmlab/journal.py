"""The journal of a study: what was begun, and each thing that is done of it.

What took time (a run, a count, a decision that depended on the clock) is a line of JSON, written at
once. A resumed study does everything again from its beginning, in the same order, and takes what
the journal has instead of doing it: so it ends as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self, TypeVar

from tsmlab import __version__, machine, paths, records
from tsmlab.allocators import Allocator, file_sha256
from tsmlab.errors import UserError
from tsmlab.machine import Machine
from tsmlab.results import AllocatorInfo

SCHEMA = "tsmalloc-journal/3"
ENDING = ".jsonl"
BEGIN_ANEW = "Start over, without --resume."
# Facts of the machine on which numbers depend so much that those of two may not be mixed.
SAME_MACHINE = ("kernel", "architecture", "cpu", "usable_cores", "libc")

Made = TypeVar("Made")
Clock = Callable[[], float]
# SHA-256 by file name; None of a file that cannot be read.
Digests = dict[str, str | None]


@dataclass(frozen=True)
class Header:
    """The first line: what was begun. verb and words: the command line, as it was typed in the
    folder. files: the SHA-256 of everything that takes part."""

    schema: str
    created: str
    tsmalloc_version: str
    verb: str
    words: list[str]
    folder: str
    seed: int
    machine: Machine
    allocators: list[AllocatorInfo]
    files: Digests

    @staticmethod
    def of(
        verb: str,
        words: Sequence[str],
        seed: int,
        allocators: Iterable[Allocator],
        files: Iterable[Path] = (),
    ) -> Header:
        """What begins now. files: programs and data; the allocators' libraries join them."""
        known = list(dict.fromkeys(allocators))
        return Header(
            schema=SCHEMA,
            created=records.now(),
            tsmalloc_version=__version__,
            verb=verb,
            words=list(words),
            folder=str(paths.working_folder()),
            seed=seed,
            machine=machine.describe(),
            allocators=[AllocatorInfo.of(allocator) for allocator in known],
            files=digests([*files, *(a.path for a in known if a.path)]),
        )

    def check(self, now: Header) -> None:
        """Raises UserError unless what would be run now is what was begun."""
        if self.tsmalloc_version != now.tsmalloc_version:
            raise UserError(
                f"the run was started by tsmalloc {self.tsmalloc_version}; this is "
                f"{now.tsmalloc_version}.",
                BEGIN_ANEW,
            )
        for fact in SAME_MACHINE:
            then, here = getattr(self.machine, fact), getattr(now.machine, fact)
            if then != here:
                raise UserError(
                    f"the run was started on another machine: {fact} was {then}, is {here}.",
                    BEGIN_ANEW,
                )
        others = changed(self.files)
        if not others and (self.allocators != now.allocators or self.files != now.files):
            others = ["the installed allocators"]
        if others:
            raise UserError(
                f"changed since the run started: {', '.join(others)}.",
                f"Restore (or rebuild) the original files, or {BEGIN_ANEW.lower()}",
            )


class Memo(Protocol):
    """Does a thing once and for all, however often its study is resumed."""

    def once(self, key: str, kind: Any, make: Callable[[], Made]) -> Made:
        """What `make` returned when it was first called under this key, which is a value of the
        annotated type `kind`."""

    def clock(self) -> float:
        """Seconds since some moment; a pause between two sessions does not count."""

    def knows(self, key: str) -> bool:
        """Whether this was done in an earlier session."""


@dataclass(frozen=True)
class Part:
    """A part of a study, with keys of its own."""

    whole: Memo
    name: str

    def once(self, key: str, kind: Any, make: Callable[[], Made]) -> Made:
        return self.whole.once(f"{self.name}: {key}", kind, make)

    def clock(self) -> float:
        return self.whole.clock()

    def knows(self, key: str) -> bool:
        return self.whole.knows(f"{self.name}: {key}")


class Unkept:
    """The journal of a study that cannot be resumed: nothing is kept."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock

    def clock(self) -> float:
        return self._clock()

    def knows(self, key: str) -> bool:
        return False

    def once(self, key: str, kind: Any, make: Callable[[], Made]) -> Made:
        return make()


@dataclass(frozen=True)
class Line:
    """Every line but the first. seconds: when it was written, since the beginning and without
    pauses. number: of the line in its file."""

    key: str
    seconds: float
    value: Any
    number: int = 0


class Journal:
    """A journal that is written to, by the one process that has it open.

    done: how much was in it when it was opened. seconds: how long that took.
    """

    def __init__(
        self, path: Path, file: BinaryIO, header: Header, lines: Sequence[Line], clock: Clock
    ) -> None:
        self.path = path
        self.header = header
        self.done = len(lines)
        self.seconds = max((line.seconds for line in lines), default=0.0)
        self._file = file
        self._lines = {line.key: line for line in lines}
        self._base = clock
        self._stood = 0.0
        self._since = clock()
        self._lock = threading.Lock()  # parts of a study may be done side by side

    @staticmethod
    def begin(
        header: Header, folders: Iterable[Path] | None = None, clock: Clock = time.monotonic
    ) -> Journal:
        """A new journal, in the first folder that takes it."""
        name = f"{records.file_stem(header.created, header.verb)}{ENDING}"

        def write(folder: Path) -> Journal:
            file = (folder / name).open("xb")
            journal = Journal(folder / name, file, header, [], clock)
            try:
                _lock(journal.path, file)
                journal._write(dataclasses.asdict(header))
            except UserError:
                with journal:
                    journal.path.unlink(missing_ok=True)
                raise
            return journal

        return records.in_first_folder(folders, write, "could not create a journal anywhere")

    @staticmethod
    def resume(path: Path, clock: Clock = time.monotonic) -> Journal:
        """One that was begun before. A damaged last line is cut off: it is the run that was lost.
        Raises UserError for a file that is no journal. Whether what was begun can be gone on with,
        the header says (check)."""
        try:
            file = path.open("r+b")
        except OSError as error:
            raise UserError(
                f"cannot open the journal {path}: {error.strerror}.",
                "Its path was printed when the run was interrupted.",
            ) from error
        try:
            _lock(path, file)  # first: nothing is added to what is read
            header, lines, length = _parse(path, file.read())
        except UserError:
            file.close()
            raise
        file.truncate(length)
        file.seek(length)
        return Journal(path, file, header, lines, clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A failed write has been told, and closing would try again.
        with contextlib.suppress(OSError):
            self._file.close()

    def clock(self) -> float:
        """Seconds since the study began, without pauses. While the journal tells what was done, as
        late as it was then."""
        return self._stood + (self._base() - self._since)

    def knows(self, key: str) -> bool:
        return key in self._lines

    def once(self, key: str, kind: Any, make: Callable[[], Made]) -> Made:
        """See Memo. What is made is the kernel's when this returns; raises UserError where it
        cannot be written."""
        line = self._lines.get(key)
        if line is None:
            value = make()
            # A data class within another one becomes plain only through asdict().
            line = Line(key, round(self.clock(), 3), value)
            self._write({k: v for k, v in dataclasses.asdict(line).items() if k != "number"})
            return value
        with self._lock:
            if line.seconds > self.clock():
                self._stood, self._since = line.seconds, self._base()
        try:
            kept: Made = records.restore(kind, line.value)
        except records.DAMAGE as error:
            raise _damaged(self.path, line.number, error) from error
        return kept

    def remove(self) -> None:
        """Nothing is left to be resumed."""
        self.path.unlink(missing_ok=True)

    def _write(self, record: dict[str, Any]) -> None:
        text = json.dumps(records.with_checksum(record), separators=(",", ":"))
        try:
            with self._lock:
                self._file.write(text.encode() + b"\n")
                self._file.flush()
        except OSError as error:
            raise UserError(
                f"cannot write the journal {self.path}: {error.strerror}.",
                "Free some space, then continue with --resume.",
            ) from error


def _lock(path: Path, file: BinaryIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UserError(
            f"another process is writing the journal {path}.", "Wait for it, or stop it first."
        ) from error


def latest(verb: str, folders: Iterable[Path] | None = None) -> Path:
    """The verb's journal that was begun last; raises UserError if there is none. Only the user's
    own: one of the folders belongs to all users, and what a journal names is run."""
    known = records.default_folders() if folders is None else list(folders)
    everyones = [path for folder in known for path in folder.glob(f"*-{verb}-*{ENDING}")]
    found = [path for path in everyones if path.stat().st_uid == os.getuid()]
    if not found:
        raise UserError(
            f"no journal of `tsmalloc {verb}` in {known[0]}.",
            "There is nothing to resume there; if the journal is elsewhere, give its file.",
        )
    # Of two that were begun in the same second, the one that was written to last: the process's
    # number, which the name ends with, begins anew some time.
    return max(found, key=lambda path: (path.name.split(f"-{verb}-")[0], path.stat().st_mtime_ns))


def _parse(path: Path, content: bytes) -> tuple[Header, list[Line], int]:
    """Header, lines, and how many bytes of the file they are."""
    texts = content.split(b"\n")
    texts.pop()  # behind the last line's end is nothing, or a line that was not finished
    if not texts:
        raise UserError(f"the journal {path} has no complete line.", BEGIN_ANEW)
    header = records.from_json(
        Header,
        SCHEMA,
        texts[0].decode(errors="replace"),
        f"the journal {path}",
        "Give the path that was printed as the journal, to the version that started it.",
    )
    lines, length = [], len(texts[0]) + 1
    for number, text in enumerate(texts[1:], start=2):
        try:
            data = records.checked(json.loads(text))
            line = records.restore(Line, {**data, "number": number})
        except records.DAMAGE as error:
            if number == len(texts):
                break
            raise _damaged(path, number, error) from error
        assert isinstance(line, Line)
        lines.append(line)
        length += len(text) + 1
    return header, lines, length


def _damaged(path: Path, number: int, error: Exception) -> UserError:
    return UserError(f"{path}: line {number} is damaged: {error}.", BEGIN_ANEW)


# --- whether files are what they were -------------------------------------------------------------


def digests(files: Iterable[Path]) -> Digests:
    """The SHA-256 of each file by its name, sorted; None where it cannot be read."""
    return {str(path): _digest(path) for path in sorted(set(files))}


def changed(before: Digests) -> list[str]:
    now = digests(map(Path, before))
    return [name for name, digest in before.items() if now[name] != digest]


def _digest(path: Path) -> str | None:
    try:
        return file_sha256(path)
    except OSError:
        return None
