"""The journal of a run of experiments: what was begun, and every run that is finished.

Why: Ctrl-C, a crash or a power cut after half an hour must cost one run and not all of them. Each
finished run is a line of JSON, written at once; --resume reads them and goes on with the rest.
Refuses to: mix what does not belong together. A file, program or library that is not what it was
ends the resuming with its name; so does a line that was damaged, unless it is the last.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from tsmlab import __version__, fingerprints, machine, records
from tsmlab.allocators import Allocator, Family
from tsmlab.errors import UserError
from tsmlab.experiments.model import Causes, Definition, Point, Run
from tsmlab.experiments.plan import Plan
from tsmlab.machine import Machine
from tsmlab.results import AllocatorInfo, Stop

SCHEMA = "tsmalloc-journal/1"
ENDING = ".jsonl"
BEGIN_ANEW = "Begin anew, without --resume."
# What of the machine numbers depend on so much that those of two may not be mixed.
SAME_MACHINE = ("kernel", "architecture", "cpu", "usable_cores", "libc")


@dataclass(frozen=True)
class Planned:
    """An experiment of the run, with all that decides which runs it consists of."""

    definition: Definition
    program: str
    points: list[Point]
    allocators: list[str]
    rounds: int
    with_causes: bool


@dataclass(frozen=True)
class Header:
    """The first line: what was begun. files: the SHA-256 of everything that takes part."""

    schema: str
    created: str
    tsmalloc_version: str
    seed: int
    cpus: list[int] | None
    time_budget_seconds: float | None
    machine: Machine
    allocators: list[AllocatorInfo]
    experiments: list[Planned]
    files: dict[str, str | None]

    @staticmethod
    def of(
        plans: Sequence[Plan],
        seed: int,
        cpus: Sequence[int] | None,
        time_budget_seconds: float | None,
    ) -> Header:
        """What begins now."""
        allocators = {a.name: a for each in plans for a in each.allocators}
        files = [Path(each.definition.file) for each in plans]
        files += [each.program for each in plans]
        files += [allocator.path for allocator in allocators.values() if allocator.path]
        return Header(
            schema=SCHEMA,
            created=records.now(),
            tsmalloc_version=__version__,
            seed=seed,
            cpus=None if cpus is None else list(cpus),
            time_budget_seconds=time_budget_seconds,
            machine=machine.describe(),
            allocators=[AllocatorInfo.of(allocator) for allocator in allocators.values()],
            experiments=[_planned(each) for each in plans],
            files=fingerprints.digests(files),
        )

    def plans(self) -> list[Plan]:
        """What is run, in the same terms in which it was begun."""
        allocators = {info.name: _allocator(info) for info in self.allocators}
        return [
            Plan(
                definition=each.definition,
                program=Path(each.program),
                points=each.points,
                allocators=[allocators[name] for name in each.allocators],
                rounds=each.rounds,
                with_causes=each.with_causes,
            )
            for each in self.experiments
        ]

    def changed(self) -> list[str]:
        """The files that are not what they were."""
        now = fingerprints.digests(map(Path, self.files))
        return [name for name, digest in self.files.items() if now[name] != digest]

    def check_unchanged(self) -> None:
        """Raises UserError if what would be run now is not what was begun."""
        if changed := self.changed():
            raise UserError(
                f"changed since the run began: {', '.join(changed)}.",
                f"Bring back what was there (or build it again), or {BEGIN_ANEW.lower()}",
            )
        if self.tsmalloc_version != __version__:
            raise UserError(
                f"the run was begun by tsmalloc {self.tsmalloc_version}, this is {__version__}.",
                BEGIN_ANEW,
            )
        here = machine.describe()
        for fact in SAME_MACHINE:
            then, now = getattr(self.machine, fact), getattr(here, fact)
            if then != now:
                raise UserError(
                    f"the run was begun on another machine: {fact} was {then}, is {now}.",
                    BEGIN_ANEW,
                )


def _planned(each: Plan) -> Planned:
    return Planned(
        definition=each.definition,
        program=str(each.program),
        points=each.points,
        allocators=[allocator.name for allocator in each.allocators],
        rounds=each.rounds,
        with_causes=each.with_causes,
    )


def _allocator(info: AllocatorInfo) -> Allocator:
    family: Family = records.restore(Family, info.family)
    path = None if info.path is None else Path(info.path)
    return Allocator(info.name, path, family, info.version, info.package, dict(info.env))


@dataclass(frozen=True)
class CellName:
    """Which cell of which experiment; `point` is an index."""

    experiment: str
    point: int
    allocator: str


@dataclass(frozen=True)
class Entry:
    """Every further line: a run or the causes of a cell, or why the rounds ended. `seconds` is when
    it was written, since the beginning and without pauses."""

    seconds: float
    cell: CellName | None
    run: Run | None
    causes: Causes | None
    stop: Stop | None


class Journal:
    """A journal that is written to; whoever has it open is alone with it.

    `runs`, `causes` and `stop` are what was in it when it was opened.
    """

    def __init__(self, path: Path, file: BinaryIO, header: Header, entries: Sequence[Entry]):
        self.path = path
        self.header = header
        self.runs = {(e.cell, e.run.round): e.run for e in entries if e.cell and e.run}
        self.causes = {e.cell: e.causes for e in entries if e.cell and e.causes}
        self.stop = next((e.stop for e in entries if e.stop), None)
        self.seconds = max((e.seconds for e in entries), default=0.0)
        self._file = file

    @staticmethod
    def begin(header: Header, folders: Iterable[Path] | None = None) -> Journal:
        """A new journal, in the first folder that takes it."""
        moment = datetime.fromisoformat(header.created).strftime("%Y%m%d-%H%M%S")
        name = f"{moment}-experiment-{os.getpid()}{ENDING}"
        problems = []
        for folder in records.default_folders() if folders is None else folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                file = (folder / name).open("xb")
            except OSError as error:
                problems.append(f"{folder}: {error.strerror}")
                continue
            journal = Journal(folder / name, file, header, [])
            try:
                _lock(journal.path, file)
                journal._write(header)
            except UserError as error:
                with journal:
                    journal.path.unlink(missing_ok=True)
                problems.append(str(error).rstrip("."))
                continue
            return journal
        raise UserError(
            f"no journal could be begun anywhere ({'; '.join(problems)}).",
            "Free some space, or set XDG_STATE_HOME to a folder that can be written to.",
        )

    @staticmethod
    def resume(path: Path) -> Journal:
        """One that was begun before. A damaged last line is cut off: it is the run that was lost.
        Raises UserError for what is no journal. Whether what was begun can be gone on with, the
        header says (check_unchanged)."""
        try:
            file = path.open("r+b")
        except OSError as error:
            raise UserError(
                f"the journal {path} cannot be opened: {error.strerror}.",
                "`tsmalloc experiment run` prints where its journal is.",
            ) from error
        try:
            _lock(path, file)  # first: nobody adds to what is read
            header, entries, length = _parse(path, file.read())
        except UserError:
            file.close()
            raise
        file.truncate(length)
        file.seek(length)
        return Journal(path, file, header, entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What could not be written has been said, and closing would try again.
        with contextlib.suppress(OSError):
            self._file.close()

    def add(
        self,
        seconds: float,
        cell: CellName | None = None,
        run: Run | None = None,
        causes: Causes | None = None,
        stop: Stop | None = None,
    ) -> None:
        """Writes one line; it is the kernel's when this returns."""
        self._write(Entry(round(seconds, 3), cell, run, causes, stop))

    def _write(self, record: Header | Entry) -> None:
        text = json.dumps(dataclasses.asdict(record), allow_nan=False, separators=(",", ":"))
        try:
            self._file.write(text.encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise UserError(
                f"the journal {self.path} cannot be written: {error.strerror}.",
                "Make room, then go on with --resume.",
            ) from error


def _lock(path: Path, file: BinaryIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UserError(
            f"another process is writing the journal {path}.",
            "Wait for it, or end it first.",
        ) from error


def latest(folders: Iterable[Path] | None = None) -> Path:
    """The journal that was begun last; raises UserError if there is none. Only the user's own: one
    of the folders is everybody's, and what a journal names is run."""
    known = records.default_folders() if folders is None else list(folders)
    everyones = [path for folder in known for path in folder.glob(f"*-experiment-*{ENDING}")]
    found = [path for path in everyones if path.stat().st_uid == os.getuid()]
    if not found:
        raise UserError(
            f"there is no journal in {known[0]}.", "Nothing was begun here, or name its file."
        )
    # Of two that were begun in the same second, the one that was written to last: the process's
    # number, which the name ends with, begins anew some time.
    return max(
        found, key=lambda path: (path.name.split("-experiment-")[0], path.stat().st_mtime_ns)
    )


def _parse(path: Path, content: bytes) -> tuple[Header, list[Entry], int]:
    """Header, entries, and how many bytes of the file they are."""
    lines = content.split(b"\n")
    lines.pop()  # behind the last line's end is nothing, or a line that was not finished
    if not lines:
        raise UserError(f"the journal {path} has no complete line.", BEGIN_ANEW)
    header = records.from_json(
        Header,
        SCHEMA,
        lines[0].decode(errors="replace"),
        f"the journal {path}",
        "Give the path that `tsmalloc experiment run` printed as its journal.",
    )
    entries, length = [], len(lines[0]) + 1
    for number, line in enumerate(lines[1:], start=2):
        try:
            entry = records.restore(Entry, json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines):
                break
            raise UserError(f"{path}: line {number} is damaged: {error}.", BEGIN_ANEW) from error
        assert isinstance(entry, Entry)
        entries.append(entry)
        length += len(line) + 1
    return header, entries, length
