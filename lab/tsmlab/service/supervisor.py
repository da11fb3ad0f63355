"""Starts a server and ends all processes that come from it.

A separate program that imports nothing from the lab: as child subreaper it is the parent of all
daemons that the server leaves, so the tree below it is the server's, without the load generator. It
ends with the lab: when its input pipe is closed, for whatever reason, nothing is left running.

Input: a line of JSON (argv, env, cpus, output), then `term` (SIGTERM to the server) or `kill`
(SIGKILL to all that is left). Output: lines of JSON: started or error, ended, gone, killed.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """All processes below one, the nearest first, including zombies."""
    found = children(pid)
    for each in found:
        found += children(each)
    return found


def report(**fields: object) -> None:
    # The lab may be gone.
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(fields).encode() + b"\n")


def start(request: dict[str, object]) -> int:
    """Starts the server in a session of its own; returns its process, or 0 if that failed."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.sched_setaffinity(0, request["cpus"])  # type: ignore[arg-type]
            output = os.open(str(request["output"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            null = os.open(os.devnull, os.O_RDONLY)
            for ours, its in ((null, 0), (output, 1), (output, 2)):
                os.dup2(ours, its)
            os.closerange(3, write)
            argv, env = request["argv"], request["env"]
            os.execvpe(argv[0], argv, env)  # type: ignore[index,arg-type]
        except OSError as error:
            os.write(write, f"{error.errno} {error.strerror}".encode())
        os._exit(127)
    os.close(write)
    problem = os.read(read, 1000).decode()
    os.close(read)
    if problem:
        os.waitpid(pid, 0)
        report(error=problem)
        return 0
    report(started=pid)
    return pid


def kill_all() -> int:
    """Kills the whole tree, including processes that join it in the meantime."""
    killed: set[int] = set()
    while True:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return len(killed)
        time.sleep(0.002)


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    alarm, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    words = sys.stdin.buffer
    server = start(json.loads(words.readline()))
    gone = False
    while server:
        ready = select.select([0, alarm], [], [])[0]
        if alarm in ready and signal.SIGTERM in os.read(alarm, 4096):
            break
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == server:
                    report(ended=os.waitstatus_to_exitcode(ended[1]))
        except ChildProcessError:
            if not gone:
                gone = True
                report(gone=True)
        if 0 in ready:
            word = os.read(0, 4096)
            if b"term" not in word:
                break
            for pid in children(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
    report(killed=kill_all())


if __name__ == "__main__":
    main()
