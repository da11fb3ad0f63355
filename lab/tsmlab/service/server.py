"""One run of a server: started, proven to run on its allocator, ready, loaded, idle, ended.

Every failure is a RunFailed with a reason and the last lines of output; whatever happens, Ctrl-C
included, no process is left.
"""

import contextlib
import json
import os
import random
import re
import resource
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from tsmlab.allocators import Allocator
from tsmlab.measuring import status_text
from tsmlab.metrics import CustomMetric, Unit
from tsmlab.results import Failure, FailureKind
from tsmlab.service import loads, supervisor
from tsmlab.service.loads import Load
from tsmlab.service.processes import (
    TreeSnapshot,
    Watcher,
    hidden_from,
    listeners,
    listening_processes,
    malloc_library,
    mapped_files,
    name_of,
    snapshot,
)
from tsmlab.sweep import filled
from tsmlab.trial import run_hook, tail

LINE = "line:"
# Below the ports that the system assigns to clients.
PORTS = range(20_000, 32_000)
POLL_SECONDS = 0.05
PROGRESS_SECONDS = 1.0
WARMUP_SECONDS = 5.0
# A load with a duration may take this much longer.
LOAD_GRACE_SECONDS = 60.0


@dataclass(frozen=True)
class Phase:
    """A stretch of a run: the load at a rate, or idle time. seconds: None means as long as the load
    takes."""

    name: str
    seconds: float | None = None
    rate: str = ""

    @property
    def is_load(self) -> bool:
        return not self.name.startswith("idle")


@dataclass(frozen=True)
class Service:
    """What to run. Commands have placeholders: {port} and {dir}, and in the load also {seconds} and
    {rate}. warmups: loads before the measured one. port: None for a free one in each run."""

    server: str
    load: str
    phases: tuple[Phase, ...]
    ready: str | None = None
    reset: str | None = None
    port: int | None = None
    warmups: int = 1
    metrics: tuple[CustomMetric, ...] = ()
    ready_seconds: float = 60.0
    grace_seconds: float = 10.0
    load_seconds: float | None = None
    server_cpus: tuple[int, ...] = ()
    load_cpus: tuple[int, ...] = ()

    def words(self, values: Mapping[str, str]) -> list[str]:
        return [filled(word, values) for word in shlex.split(self.server)]

    def on(self, usable: Iterable[int]) -> Self:
        """With processors for the server and for the load, if none were chosen: separate ones, if
        there are two for each. With one each, every request waits until an idle processor wakes,
        which took milliseconds in virtual machines (docs/adr/0145-services.md)."""
        every = tuple(sorted(usable))
        server, load = self.server_cpus, self.load_cpus
        if not server and not load and len(every) >= 4:
            half = (len(every) + 1) // 2
            server, load = every[:half], every[half:]
        others = tuple(each for each in every if each not in server + load) or every
        return replace(self, server_cpus=server or others, load_cpus=load or others)


@dataclass(frozen=True)
class Part:
    """The measurements of a phase. load_share: how busy the load generator was; 1.0 is all that its
    threads and processors allow."""

    phase: Phase
    before: TreeSnapshot
    after: TreeSnapshot
    load: Load | None = None
    custom: dict[str, float] = field(default_factory=dict)
    units: dict[str, Unit] = field(default_factory=dict)
    load_share: float = 0.0

    @property
    def seconds(self) -> float:
        return self.after.at_seconds - self.before.at_seconds

    @property
    def cpu_seconds(self) -> float:
        return self.after.cpu_seconds - self.before.cpu_seconds

    @property
    def requests(self) -> float | None:
        if self.load is None:
            return None
        return self.load.requests or self.load.throughput * self.seconds


class RunFailed(Exception):
    def __init__(self, kind: FailureKind, text: str, stderr_tail: str = "") -> None:
        super().__init__(text)
        self.failure = Failure(kind, text, stderr_tail)


def free_port() -> int:
    taken = set(listeners().values())
    return random.SystemRandom().choice([port for port in PORTS if port not in taken])


class Server:
    """A server that runs inside its `with` block."""

    def __init__(self, service: Service, allocator: Allocator, env: Mapping[str, str]) -> None:
        self.service = service
        self.allocator = allocator
        self.port = service.port or free_port()
        self.malloc: str | None = None
        self.listener = 0
        self.killed = 0
        self.ready_seconds = 0.0
        self._env = {**allocator.environment(), **env}
        self._reported: dict[str, Any] = {}
        self._text = b""

    def __enter__(self) -> Self:
        self._affinity = os.sched_getaffinity(0)
        self._folder = tempfile.TemporaryDirectory(
            prefix="tsmalloc-service-", ignore_cleanup_errors=True
        )
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        self.folder = Path(self._folder.name)
        self.folder.chmod(0o711)  # a server may change its user
        self.output = self.folder / "server.out"
        self.load_output = self.folder / "load.out"
        self.values = {"port": str(self.port), "dir": str(self.folder)}
        self.values["allocator"] = self.allocator.name
        # The load and the lab itself stay off the server's processors.
        if self.service.load_cpus:
            os.sched_setaffinity(0, self.service.load_cpus)
        reset = self.service.reset
        run_hook("reset", reset and filled(reset, self.values), self.allocator.name)
        if self.service.port and listeners(self.port):
            everyone = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
            holders = listening_processes(everyone, self.port)[:1]
            by = "".join(f" by {name_of(holder)}, process {holder}" for holder in holders)
            raise RunFailed("start", f"port {self.port} is taken{by}")
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.start = time.monotonic()
        cpus = self.service.server_cpus or tuple(self._affinity)
        words = self.service.words(self.values)
        request = {"argv": words, "env": self._env, "cpus": cpus, "output": str(self.output)}
        self._send(json.dumps(request))
        while not {"started", "error"} & self._reported.keys():
            self._receive(1.0)
        if "error" in self._reported:
            problem = self._reported["error"].partition(" ")[2]
            raise RunFailed("start", f"cannot start {words[0]}: {problem}")
        self.watcher = Watcher(self._supervisor.pid, self.start)

    def _send(self, text: str) -> None:
        assert self._supervisor.stdin is not None
        data = text.encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._supervisor.stdin.fileno(), data) :]

    def _receive(self, seconds: float, other_fd: int | None = None) -> bool:
        """Waits for the supervisor or another file; returns whether the other file is ready."""
        assert self._supervisor.stdout is not None
        own = self._supervisor.stdout.fileno()
        ready = select.select([own] + ([] if other_fd is None else [other_fd]), [], [], seconds)[0]
        if own in ready:
            self._text += os.read(own, 65536)
            *lines, self._text = self._text.split(b"\n")
            for line in lines:
                self._reported.update(json.loads(line))
            if not lines and self._supervisor.poll() is not None:
                self._reported.setdefault("gone", True)
        return other_fd in ready

    def check(self, during: str) -> None:
        """Raises RunFailed if the server has ended, or its first process has failed."""
        status = self._reported.get("ended")
        if not self._reported.get("gone") and status in (None, 0):
            return
        how = status_text(status) if status is not None else "ended"
        kind: FailureKind = "signal" if status is not None and status < 0 else "exit"
        raise self._failed(kind, f"the server ended {during}: {how}")

    def _failed(self, kind: FailureKind, text: str) -> RunFailed:
        return RunFailed(kind, text, tail(self.output))

    def _load_failed(self, kind: FailureKind, text: str) -> RunFailed:
        return RunFailed(kind, text, tail(self.load_output))

    def tree(self) -> list[int]:
        return supervisor.descendants(self._supervisor.pid)

    @property
    def now(self) -> float:
        return time.monotonic() - self.start

    def snapshot(self) -> TreeSnapshot:
        return snapshot(self._supervisor.pid, self.now)

    def wait_until_ready(self) -> None:
        timeout, ready = self.service.ready_seconds, self.service.ready
        while not self._is_ready():
            self._receive(POLL_SECONDS)
            self.check("before it was ready")
            if self.now > timeout:
                where = f" on port {self.port}" if self._fixed_port else ""
                missing = f"none of its processes listens{where}"
                if ready:
                    missing = f"--ready {ready!r} was not satisfied"
                raise self._failed("timeout", f"not ready after {timeout:g} s: {missing}")
        self.check("before it was ready")
        self.ready_seconds = self.now
        self._prove()
        self.watcher.start()

    @property
    def _fixed_port(self) -> int | None:
        """The server's port, if we chose or know it; None if the server chooses its own."""
        return self.port if self.service.port or "{port}" in self.service.server else None

    def _is_ready(self) -> bool:
        ready = self.service.ready
        if ready is None:
            return bool(listening_processes(self.tree(), self._fixed_port))
        if ready.startswith(LINE):
            text = self.output.read_text(errors="replace") if self.output.exists() else ""
            return re.search(ready.removeprefix(LINE), text, re.MULTILINE) is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                ["/bin/sh", "-c", filled(ready, self.values)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=10.0,
                check=False,
            )
            return done.returncode == 0
        return False

    def _prove(self) -> None:
        """Checks that each listening process uses the allocator: a server may have its own, or be
        started by a program that cleans the environment."""
        tree = self.tree()
        ports = (self._fixed_port, None)
        listening = next(filter(None, (listening_processes(tree, port) for port in ports)), tree)
        for pid in listening:
            self.listener, self.malloc = pid, malloc_library(pid)
            if self.allocator.path is None:
                continue
            library = os.path.realpath(self.allocator.path)
            name = f"{name_of(pid)} (process {pid})"
            try:
                mapped = {os.path.realpath(path) for *_, path in mapped_files(pid)}
            except OSError:
                continue
            if library not in mapped:
                reason = "a wrapper clears the environment, or the program is static or setuid"
                if hidden := hidden_from(pid, library):
                    reason = f"its user cannot read {hidden}"
                text = f"its library is not loaded into {name}: {reason}"
                raise self._failed("preload", text)
            if self.malloc and os.path.realpath(self.malloc) != library:
                raise self._failed("preload", f"{name} uses the malloc of {self.malloc}")

    def load(self, phase: Phase, warmup: bool = False) -> Part:
        service = self.service
        seconds = phase.seconds
        if warmup and seconds is not None:
            seconds = min(seconds, WARMUP_SECONDS)
        more = {"seconds": f"{seconds or 0:g}", "rate": phase.rate}
        command = filled(service.load, {**self.values, **more})
        limit = service.load_seconds
        if limit is None and seconds is not None:
            limit = seconds + LOAD_GRACE_SECONDS
        before = self.snapshot()
        status, cpu, wall, threads = self._run_load(command, limit)
        after = self.snapshot()
        text = self.load_output.read_text(encoding="utf-8", errors="replace")
        if status:
            raise self._load_failed("load", f"the load failed: {status_text(status)}")
        result = loads.read(text, command, self.folder)
        custom: dict[str, float] = {}
        units: dict[str, Unit] = {}
        for metric in service.metrics:
            found = metric.find(text)
            if found is None:
                missing = f"no number for {metric.name} in the load's output"
                raise self._load_failed("metric", missing)
            custom[metric.key], units[metric.key] = found
        if result is None and not service.metrics:
            what = "no known result" if text.strip() else "nothing"
            raise self._load_failed("metric", f"the load printed {what}")
        if result and result.requests and result.errors >= result.requests:
            raise self._load_failed("load", "all requests failed")
        processors = len(service.load_cpus or self._affinity)
        share = cpu / wall / max(1, min(threads, processors))
        return Part(phase, before, after, result, custom, units, round(share, 4))

    def _run_load(self, command: str, limit: float | None) -> tuple[int, float, float, int]:
        """Returns its status, its processor time, its duration and its number of threads."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.monotonic()
        threads = 1
        with self.load_output.open("wb") as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            watched = os.pidfd_open(process.pid)
            try:
                while not self._receive(0.5, watched):
                    self.check("under load")
                    for pid in (process.pid, *supervisor.descendants(process.pid)):
                        with contextlib.suppress(OSError):
                            threads = max(threads, len(list(Path(f"/proc/{pid}/task").iterdir())))
                    if limit is not None and time.monotonic() - begin > limit:
                        longer = f"the load took longer than {limit:g} s"
                        raise self._load_failed("timeout", longer)
                wall = time.monotonic() - begin
                status = process.wait()
            finally:
                os.close(watched)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        # A failed load may be the first sign that the server has ended.
        self._receive(PROGRESS_SECONDS if status else 0.0)
        if self._reported.get("gone") or self._reported.get("ended"):
            time.sleep(POLL_SECONDS)
            self._receive(0.0)
        self.check("under load")
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        return status, cpu, wall, threads

    def idle(self, phase: Phase) -> Part:
        before = self.snapshot()
        end = time.monotonic() + (phase.seconds or 0.0)
        while (left := end - time.monotonic()) > 0.0:
            self._receive(left)
            self.check("while idle")
        return Part(phase, before, self.snapshot())

    def stop(self) -> None:
        """SIGTERM, a wait, then SIGKILL; remembers how many processes needed that."""
        self.watcher.stop()
        self._send("term")
        end = time.monotonic() + self.service.grace_seconds
        while not self._reported.get("gone") and (left := end - time.monotonic()) > 0.0:
            self._receive(left)
        self._kill()

    def _kill(self) -> None:
        self._send("kill")
        while "killed" not in self._reported and self._supervisor.poll() is None:
            self._receive(0.1)
        self._receive(0.0)
        self.killed = self._reported.get("killed", 0)

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "watcher"):
            self.watcher.stop()
        if hasattr(self, "_supervisor"):
            self._kill()
            for pipe in (self._supervisor.stdin, self._supervisor.stdout):
                assert pipe is not None
                pipe.close()
            self._supervisor.wait()
        os.sched_setaffinity(0, self._affinity)
        self._folder.cleanup()
