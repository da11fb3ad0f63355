"""The journal of a study: what was begun, and everything that is done.

Everything that took time (a run, a count, a decision that depended on the clock) is a line of JSON,
written at once. A resumed study repeats everything from its beginning, in the same order, but takes
from the journal what is there: so it ends as if it had never been interrupted.
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
# Facts about a machine that numbers depend on: results must not be mixed if these differ.
SAME_MACHINE = ("kernel", "architecture", "cpu", "usable_cores", "libc")

T = TypeVar("T")
Clock = Callable[[], float]
# SHA-256 by file name; None if the file cannot be read.
Digests = dict[str, str | None]


@dataclass(frozen=True)
class Header:
    """The first line: what was begun. verb and words: the command line as typed in the folder.
    files: the SHA-256 of everything that takes part."""

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
        """A header for a new study. files: programs and data; the allocators' libraries are
        added."""
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
        """Raises UserError unless the same study would run now."""
        if self.tsmalloc_version != now.tsmalloc_version:
            raise UserError(
                f"the run was started by tsmalloc {self.tsmalloc_version}; this is "
                f"{now.tsmalloc_version}.",
                BEGIN_ANEW,
            )
        if differs := machine.difference(self.machine, now.machine, SAME_MACHINE):
            raise UserError(f"the run was started on another machine: {differs}.", BEGIN_ANEW)
        others = changed(self.files)
        if not others and (self.allocators != now.allocators or self.files != now.files):
            others = ["the installed allocators"]
        if others:
            raise UserError(
                f"changed since the run started: {', '.join(others)}.",
                f"Restore (or rebuild) the original files, or {BEGIN_ANEW.lower()}",
            )


class Memo(Protocol):
    """Does each thing only once, however often its study is resumed."""

    def once(self, key: str, kind: Any, make: Callable[[], T]) -> T:
        """The value that `make` returned when it was first called with this key; it has the
        annotated type `kind`."""

    def clock(self) -> float:
        """Seconds since some moment; pauses between two sessions do not count."""

    def knows(self, key: str) -> bool:
        """Whether this was done in an earlier session."""


def unmade() -> Any:
    """For once(), with a key that the memo knows."""
    raise AssertionError("what the journal knows is not made again")


@dataclass(frozen=True)
class Part:
    """A part of a study, with its own keys."""

    whole: Memo
    name: str

    def once(self, key: str, kind: Any, make: Callable[[], T]) -> T:
        return self.whole.once(f"{self.name}: {key}", kind, make)

    def clock(self) -> float:
        return self.whole.clock()

    def knows(self, key: str) -> bool:
        return self.whole.knows(f"{self.name}: {key}")


class NullJournal:
    """The journal of a study that cannot be resumed: nothing is saved."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock

    def clock(self) -> float:
        return self._clock()

    def knows(self, key: str) -> bool:
        return False

    def once(self, key: str, kind: Any, make: Callable[[], T]) -> T:
        return make()


@dataclass(frozen=True)
class Line:
    """Every line but the first. seconds: when it was written, since the beginning and without
    pauses. number: line number in the file."""

    key: str
    seconds: float
    value: Any
    number: int = 0


class Journal:
    """A journal that is open for writing, by one process only.

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
        self._lock = threading.Lock()  # parts of a study may run at the same time

    @staticmethod
    def begin(
        header: Header, folders: Iterable[Path] | None = None, clock: Clock = time.monotonic
    ) -> Journal:
        """A new journal, in the first folder that can be written."""
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
        """Opens an existing journal. Cuts off a damaged last line, which is the run that was lost.
        Raises UserError for a file that is not a journal. The header's check() tells whether the
        study can continue."""
        try:
            file = path.open("r+b")
        except OSError as error:
            raise UserError(
                f"cannot open the journal {path}: {error.strerror}.",
                "Its path was printed when the run was interrupted.",
            ) from error
        try:
            _lock(path, file)  # first, so that nothing is added after it was read
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
        # A failed write has been reported, and closing would try again.
        with contextlib.suppress(OSError):
            self._file.close()

    def clock(self) -> float:
        """Seconds since the study began, without pauses. While results come from the journal, the
        time at which they were written."""
        return self._stood + (self._base() - self._since)

    def knows(self, key: str) -> bool:
        return key in self._lines

    def once(self, key: str, kind: Any, make: Callable[[], T]) -> T:
        """See Memo. The value has been written when this returns; raises UserError if that
        fails."""
        line = self._lines.get(key)
        if line is None:
            value = make()
            # Nested data classes become plain values only through asdict().
            line = Line(key, round(self.clock(), 3), value)
            self._write({k: v for k, v in dataclasses.asdict(line).items() if k != "number"})
            return value
        with self._lock:
            if line.seconds > self.clock():
                self._stood, self._since = line.seconds, self._base()
        try:
            kept: T = records.restore(kind, line.value)
        except records.DAMAGE as error:
            raise _damaged(self.path, line.number, error) from error
        return kept

    def remove(self) -> None:
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
    own, since one of the folders belongs to all users, and a journal's commands are run."""
    known = records.default_folders() if folders is None else list(folders)
    everyones = [path for folder in known for path in folder.glob(f"*-{verb}-*{ENDING}")]
    found = [path for path in everyones if path.stat().st_uid == os.getuid()]
    if not found:
        raise UserError(
            f"no journal of `tsmalloc {verb}` in {known[0]}.",
            "There is nothing to resume there; if the journal is elsewhere, give its file.",
        )
    # If two were begun in the same second, the one written to last: the name also ends with the
    # process ID, but those wrap around.
    return max(found, key=lambda path: (path.name.split(f"-{verb}-")[0], path.stat().st_mtime_ns))


def _parse(path: Path, content: bytes) -> tuple[Header, list[Line], int]:
    """The header, the lines, and how many bytes of the file they take."""
    texts = content.split(b"\n")
    texts.pop()  # after the last newline there is nothing, or an unfinished line
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


def digests(files: Iterable[Path]) -> Digests:
    """The SHA-256 of each file by its name, sorted; None if it cannot be read."""
    return {str(path): _digest(path) for path in sorted(set(files))}


def changed(before: Digests) -> list[str]:
    now = digests(map(Path, before))
    return [name for name, digest in before.items() if now[name] != digest]


def _digest(path: Path) -> str | None:
    try:
        return file_sha256(path)
    except OSError:
        return None
