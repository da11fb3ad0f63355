"""Rounds on the machines of a cluster of dask.distributed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from tsmlab import __version__, journal, machine
from tsmlab.analysis import Question, analyse
from tsmlab.errors import UserError
from tsmlab.journal import Digests, Memo
from tsmlab.machine import Machine
from tsmlab.results import FLEET, MachineKind, Sample
from tsmlab.schedule import Slot
from tsmlab.wording import counted, quantity_or

LOCAL = re.compile(r"local(?::([1-9]\d{0,3}))?")
REMOTE = re.compile(r"(tcp|tls)://\S+:\d+")
CONNECT_SECONDS = 10.0
# How long to wait for a worker to reappear before giving up.
PATIENCE_SECONDS = 30.0
# A round that has killed this many workers is not given to another one.
MAX_DEATHS = 3
REQUIREMENT = "distributed>=2026.1"


# --- on a worker ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """What a worker must have in common with this machine: the lab's version and sources, and the
    files that take part, by their paths relative to a folder."""

    version: str
    lab: str
    folder: str
    files: Digests


class Trial(Protocol):
    """Makes runs, here or on a worker."""

    def run(self, slot: Slot) -> Sample: ...
    def packed(self) -> Self:
        """A copy for a worker, without the journal."""

    def unpacked(self, folder: Path) -> Self:
        """A copy of a packed one on a worker, for a round that has this folder."""


@dataclass(frozen=True)
class Job:
    """A round. environment: that of the machine where the study began; cpus: for each worker by
    name; trial: packed."""

    expected: Expected
    environment: Mapping[str, str]
    cpus: Mapping[str, tuple[int, ...]]
    trial: Trial
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class FinishedRound:
    """A finished round, and where it was made."""

    worker: str
    kind: str
    samples: list[Sample]


@functools.cache
def here() -> Machine:
    """This machine, as it was before a worker restricted itself to its processors."""
    usable_cpus()
    return machine.describe()


@functools.cache
def usable_cpus() -> tuple[int, ...]:
    """The same for the usable processors."""
    return tuple(sorted(os.sched_getaffinity(0)))


@functools.cache
def lab_digest() -> str:
    """One hash of all the lab's sources: a checkout's version alone does not identify them."""
    folder = Path(__file__).parent
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        whole.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def difference(expected: Expected) -> str | None:
    """How this worker differs from the machine that began the study; None if it does not."""
    if __version__ != expected.version:
        return f"it has tsmalloc {__version__}, not {expected.version}"
    if lab_digest() != expected.lab:
        return f"its tsmalloc {__version__} has different files"
    try:
        os.chdir(expected.folder)
    except OSError as error:
        return f"it cannot enter the directory {expected.folder}: {error.strerror}"
    changed = _changed(tuple(expected.files.items()))
    return f"these files are missing or differ: {', '.join(changed)}" if changed else None


@functools.lru_cache(maxsize=1)
def _changed(files: tuple[tuple[str, str | None], ...]) -> list[str]:
    return journal.changed(dict(files))


# Host, difference, machine, processors.
Examined = tuple[str, str | None, Machine, tuple[int, ...]]


def examine(expected: Expected) -> Examined:
    return socket.gethostname(), difference(expected), here(), usable_cpus()


def dask_setup(_worker: Any) -> None:
    """Called in each worker of --cluster local. Ctrl-C in a terminal reaches workers, too, but must
    only end the study, which then ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def make_round(job: Job) -> FinishedRound:
    """All runs of a round, one after the other, on this worker's processors."""
    from distributed import get_worker  # noqa: PLC0415 - each worker has it

    name, kind = str(get_worker().name), kind_of(here())
    if problem := difference(job.expected):
        raise UserError(f"the worker {name} does not match: {problem}.", _SAME_LAB)
    _set_environment(job.environment)
    if cpus := job.cpus.get(name):
        os.sched_setaffinity(0, cpus)
    with tempfile.TemporaryDirectory(prefix="tsmalloc-round-") as folder:
        trial = job.trial.unpacked(Path(folder))
        try:
            samples = [trial.run(slot) for slot in job.slots]
        except KeyboardInterrupt as error:
            raise UserError(
                f"the worker {name} was interrupted.", "Continue with --resume."
            ) from error
    where = {"worker": name, "kind": kind}
    tagged = [replace(s, measurement={**s.measurement, FLEET: where}) for s in samples]
    return FinishedRound(name, kind, tagged)


_SAME_LAB = "All machines need the same tsmalloc, and the same files under the same paths."


def kind_of(found: Machine) -> str:
    """Machines of one kind are interchangeable."""
    memory = quantity_or(found.memory_bytes, "bytes", "?")
    return f"{found.cpu or found.architecture}, {found.usable_cores} cores, {memory} of memory"


# --- on the machine where the study began ---------------------------------------------------------


@dataclass
class WorkerPool:
    """Makes the rounds of one trial (schedule.WorkerPool). Each round is one line of the journal,
    written when it is done."""

    fleet: Fleet
    trial: Trial
    memo: Memo

    def __post_init__(self) -> None:
        self._futures: dict[str, Any] = {}
        self._begun_at: dict[str, float] = {}
        self._done: dict[str, FinishedRound] = {}
        self._start = self.memo.clock()

    @property
    def size(self) -> int:
        return self.fleet.size

    def samples(self, slots: Sequence[Slot]) -> list[Sample]:
        wanted = [(s.entry.point, s.entry.allocator.name, s.entry.replicate) for s in slots]
        for again in ("", ", once more"):
            made = self._wait(slots, again).samples
            found = {(s.point, s.allocator, s.replicate): s for s in made}
            if found.keys() >= set(wanted):
                break
            # The round was begun without an allocator that has been reinstated since. The whole
            # round is repeated, because part of it might run on another machine.
        return [found[entry] for entry in wanted]

    def begin(self, slots: Sequence[Slot], again: str = "") -> None:
        key = f"{_key(slots)}{again}"
        if key in self._futures or key in self._done or self.memo.knows(key):
            return
        self._begun_at[key] = self.memo.clock() - self._start
        self._futures[key] = self.fleet.submit(
            Job(
                expected=self.fleet.expected,
                environment=self.fleet.environment,
                cpus=self.fleet.cpus,
                trial=self.trial.packed(),
                slots=tuple(slots),
            )
        )

    def _wait(self, slots: Sequence[Slot], again: str) -> FinishedRound:
        """Saves any round that finishes in the meantime."""
        key = f"{_key(slots)}{again}"
        if key not in self._done and self.memo.knows(key):
            self._done[key] = self.memo.once(key, FinishedRound, journal.unmade)
        self.begin(slots, again)
        while key not in self._done:
            for ready in self.fleet.ready(self._futures):
                begun, made = self._begun_at[ready], self.fleet.result(self._futures.pop(ready))
                later = [
                    replace(s, started_seconds=round(begun + s.started_seconds, 6))
                    for s in made.samples
                ]
                self._done[ready] = self.memo.once(
                    ready, FinishedRound, functools.partial(replace, made, samples=later)
                )
        return self._done[key]


def _key(slots: Sequence[Slot]) -> str:
    points = {slot.entry.point for slot in slots}
    where = f" at {max(points)}" if len(points) == 1 and max(points) else ""
    return f"{slots[0].phase} {slots[0].round}{where}, in one piece"


def kinds_of(samples: Sequence[Sample], question: Question) -> list[MachineKind]:
    found = []
    for name in dict.fromkeys(s.kind for s in samples if s.phase == "measured" and s.kind):
        own = [sample for sample in samples if sample.kind == name]
        workers = {sample.measurement[FLEET]["worker"] for sample in own}
        found.append(MachineKind(name, len(workers), analyse(own, question)))
    return found


@dataclass
class Fleet:
    """A cluster. cpus: each worker's processors, by name; size: how many rounds run at once;
    environment: for programs there; machines: one of each kind; hosts: a worker of each."""

    client: Any
    expected: Expected
    cpus: Mapping[str, tuple[int, ...]]
    size: int
    environment: Mapping[str, str]
    machines: Sequence[Machine] = ()
    hosts: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._dask = need_dask()
        self._stopped = threading.Event()
        self._alone_since: float | None = None
        self._only: str | None = None  # the kind that all workers must be

    def only_kind(self) -> Machine:
        """The machine that all workers have; raises UserError if they are of several kinds. A
        worker of another kind that joins later is rejected with its first round."""
        if len(self.machines) > 1:
            kinds = "; ".join(map(kind_of, self.machines))
            raise UserError(
                f"this needs machines of one kind, but the cluster has several: {kinds}.",
                "Stop the workers of all kinds but one, or use `tsmalloc compare --cluster`, "
                "which judges each kind separately.",
            )
        self._only = kind_of(self.machines[0])
        return self.machines[0]

    def touch_memory(self, wanted_bytes: int) -> int:
        """machine.touch() on each machine; returns the least that any of them touched."""
        with self._translate_errors():
            touched: Mapping[str, int] = self.client.run(
                machine.touch, wanted_bytes, workers=list(self.hosts)
            )
        return min(touched.values())

    @property
    def processors(self) -> int:
        """How many a program has on the worker with the fewest."""
        return min(map(len, self.cpus.values()))

    def stop(self) -> None:
        """Interrupts threads that wait for a round."""
        self._stopped.set()

    def submit(self, job: Job) -> Any:
        with self._translate_errors():
            return self.client.submit(make_round, job, pure=False)

    def ready(self, futures: Mapping[str, Any]) -> list[str]:
        """The keys of the finished futures; waits for one, but only briefly."""
        with self._translate_errors(), contextlib.suppress(TimeoutError):
            self._dask.wait(list(futures.values()), timeout=1.0, return_when="FIRST_COMPLETED")
        if self._stopped.is_set():
            raise KeyboardInterrupt
        found = [key for key, future in futures.items() if future.done()]
        if not found:
            self._check_workers()
        return found

    def result(self, future: Any) -> FinishedRound:
        with self._translate_errors():
            done: FinishedRound = future.result()
        if self._only not in {None, done.kind}:
            raise UserError(
                f"the worker {done.worker} joined on a different kind of machine: {done.kind}.",
                "Stop it, then continue with --resume: its round was discarded.",
            )
        return done

    def _check_workers(self) -> None:
        with self._translate_errors():
            workers = self.client.scheduler_info(n_workers=-1).get("workers")
        if workers:
            self._alone_since = None
            return
        self._alone_since = self._alone_since or time.monotonic()
        if time.monotonic() - self._alone_since > PATIENCE_SECONDS:
            raise UserError(
                "the cluster has no workers left.",
                "Start some (tsmalloc worker ADDRESS), then continue with --resume.",
            )

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Rewords errors of the cluster as ours."""
        try:
            yield
        except self._dask.KilledWorker as error:
            raise UserError(
                f"one round killed at least {MAX_DEATHS} workers.",
                "Check their logs, then continue with --resume.",
            ) from error
        except (
            self._dask.CancelledError,
            self._dask.client.ClosedClientError,
            self._dask.client.FutureCancelledError,
            OSError,
        ) as error:
            if isinstance(error, TimeoutError):
                raise
            raise UserError(
                f"lost the cluster: {error or type(error).__name__}.",
                "Restart it, then continue with --resume.",
            ) from error


# --- joining a cluster ----------------------------------------------------------------------------


@contextlib.contextmanager
def joined(
    text: str | None, files: Iterable[Path], note: Callable[[str], None]
) -> Iterator[Fleet | None]:
    """The cluster of --cluster; None without it. files: those that take part. Raises UserError for
    a cluster that cannot be reached, or does not fit."""
    if text is None:
        yield None
        return
    dask = need_dask()
    local = LOCAL.fullmatch(text)
    if local is None and REMOTE.fullmatch(text) is None:
        raise UserError(
            f"cannot parse --cluster {text!r}.", "Write local, local:4, or tcp://HOST:8786."
        )
    environment = dict(os.environ)
    with contextlib.ExitStack() as stack:
        # Dask sets variables that tune the C library's malloc, here and in its workers.
        stack.callback(_set_environment, environment)
        address = text
        if local is not None:
            count = int(local[1] or len(os.sched_getaffinity(0)))
            cluster = stack.enter_context(
                dask.LocalCluster(
                    n_workers=count,
                    threads_per_worker=1,
                    memory_limit=0,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                    preload=[__name__],
                )
            )
            address = cluster.scheduler_address
        try:
            client = stack.enter_context(dask.Client(address, timeout=CONNECT_SECONDS))
        except (OSError, ValueError) as error:
            raise UserError(
                f"no cluster at {address}.",
                f"Start one with `dask scheduler`, and run on each machine: tsmalloc worker "
                f"{address}",
            ) from error
        _set_environment(environment)
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        fleet = _examined(client, address, files, note, environment)
        try:
            yield fleet
        finally:
            fleet.stop()


def _set_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _examined(
    client: Any,
    address: str,
    files: Iterable[Path],
    note: Callable[[str], None],
    environment: Mapping[str, str],
) -> Fleet:
    workers: Mapping[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise UserError(
            f"the cluster at {address} has no workers.",
            f"Start one on each machine: tsmalloc worker {address}",
        )
    for worker in workers.values():
        if worker["nthreads"] != 1:
            raise UserError(
                f"the worker {worker['name']} runs {worker['nthreads']} tasks at once.",
                f"Start it as: tsmalloc worker {address}",
            )
    expected = Expected(__version__, lab_digest(), str(Path.cwd()), journal.digests(files))
    try:
        found: Mapping[str, Examined] = client.run(examine, expected, workers=list(workers))
    except Exception as error:  # any error of the remote machine ends up here
        raise UserError(
            f"the workers do not have this version of tsmalloc: {type(error).__name__}: {error}.",
            _SAME_LAB,
        ) from error
    hosts: dict[str, list[str]] = {}
    for where, (host, problem, *_) in found.items():
        name = str(workers[where]["name"])
        if problem is not None:
            raise UserError(f"the worker {name} on {host} does not match: {problem}.", _SAME_LAB)
        hosts.setdefault(host, []).append(name)
    kinds = {kind_of(described): described for _, _, described, _ in found.values()}
    cpus = {where: own for where, (*_, own) in found.items()}
    note(
        f"cluster    {len(found)} workers on {len(hosts)} machines of {counted(len(kinds), 'kind')}"
        if len(hosts) > 1
        else f"cluster    {counted(len(found), 'worker')} on one machine"
    )
    if len(hosts) < len(found):
        note("workers on one machine disturb each other's times, but not counts and bytes")
    return Fleet(
        client,
        expected,
        shares(hosts, workers, cpus),
        len(found),
        environment,
        list(kinds.values()),
        list({host: where for where, (host, *_) in found.items()}.values()),
    )


def shares(
    hosts: Mapping[str, Sequence[str]],
    workers: Mapping[str, Any],
    cpus: Mapping[str, Sequence[int]],
) -> dict[str, tuple[int, ...]]:
    """Each worker's share of its machine's processors; if there are more workers, all share all."""
    usable = {str(workers[where]["name"]): list(own) for where, own in cpus.items()}
    shares = {}
    for names in hosts.values():
        for place, name in enumerate(sorted(names)):
            own = usable.get(name, [])[place :: len(names)]
            shares[name] = tuple(own or usable.get(name, []))
    return shares


def machine_of(fleet: Fleet | None, memo: Memo) -> Machine:
    """The machine of a study whose tables are of one kind; raises UserError if a fleet has several
    kinds, or another one than the study being resumed."""
    if fleet is None:
        return memo.once("machine", Machine, machine.describe)
    now = fleet.only_kind()
    begun = memo.once("machine", Machine, lambda: now)
    if kind_of(begun) != kind_of(now):
        raise UserError(
            f"the study was started on {kind_of(begun)}, but the cluster has {kind_of(now)}.",
            "Continue on a cluster of the first kind, or start over.",
        )
    return begun


def need_dask() -> Any:
    """The module `distributed`; raises UserError without it."""
    try:
        import distributed  # noqa: PLC0415 - takes half a second, and may not be there
    except ImportError as error:
        raise UserError(
            "--cluster needs dask.distributed, which is not installed.",
            f"Install it: {sys.executable} -m pip install '{REQUIREMENT}'",
        ) from error
    return distributed
