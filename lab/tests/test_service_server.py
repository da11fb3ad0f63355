"""One run of a server: found, checked, measured and ended, whatever it does."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prompt import is_alive, rollup, wait_until
from refusals import mentions
from service_programs import LOAD, SERVER, SHIM

from tsmlab.allocators import Allocator, glibc
from tsmlab.service import processes, supervisor
from tsmlab.service.loads import metrics_of
from tsmlab.service.processes import hidden_from, listening_processes, malloc_library
from tsmlab.service.server import Phase, RunFailed, Server, Service

LOADED = Phase("load", 0.5)


@pytest.fixture(scope="session")
def server(build):
    return build("server.c", SERVER)


@pytest.fixture(scope="session")
def shim(build):
    return Allocator("shim", build("shim.so.c", SHIM, "-shared", "-fPIC"), "user", "1")


@pytest.fixture(scope="session")
def service(build, server):
    load = build("load.c", LOAD)

    def make(*modes, **changes):
        given = {
            "server": f"{server} {{port}} {' '.join(modes)}",
            "load": f"{load} {{port}} 80 {{seconds}}",
            "phases": (LOADED, Phase("idle", 0.1)),
            "warmups": 0,
            "ready_seconds": 20.0,
            "grace_seconds": 5.0,
        }
        return Service(**(given | changes))

    return make


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Each test ends with the same processes that it began with."""
    before = set(supervisor.children(os.getpid()))
    affinity = os.sched_getaffinity(0)
    yield
    assert set(supervisor.children(os.getpid())) <= before
    assert os.sched_getaffinity(0) == affinity


@contextmanager
def ready(service, allocator=None):
    with Server(service, allocator or glibc(), {}) as running:
        running.wait_until_ready()
        yield running


def broken(service, allocator=None):
    """The failure of a run that is expected to become ready and have one load."""
    with pytest.raises(RunFailed) as caught, ready(service, allocator) as running:
        running.load(LOADED)
    return caught.value.failure


def test_only_the_server_gets_the_allocator(service, shim):
    asked = service(
        load="grep -c shim /proc/self/maps; grep -ac LD_PRELOAD /proc/self/environ; true",
        metrics=metrics_of(["mapped=^([0-9]+)", r"told=^\d+\n([0-9]+)"]),
    )
    with ready(asked, shim) as running:
        assert running.malloc == str(shim.path)
        assert running.load(LOADED).custom == {"custom": 0.0, "custom2": 0.0}
        mapped = Path(f"/proc/{running.listener}/maps").read_text()
        assert str(shim.path) in mapped


def test_a_run_measures_cost_memory_and_latency(service):
    with ready(service()) as running:
        part = running.load(Phase("load", 1.0))
        idle = running.idle(Phase("idle", 0.3))
        running.stop()
    assert (part.load.requests, part.load.loop) == (80.0, "open")
    assert part.after.faults >= part.before.faults
    assert part.after.switches > part.before.switches
    assert part.after.threads == 1
    assert part.seconds > 0.9
    assert 100_000 < part.after.pss_bytes <= part.after.rss_bytes
    assert idle.seconds >= 0.3
    series = running.watcher.series
    assert len(series) >= 3
    assert all(size > 100_000 and count == 1 for _, size, count in series)
    times = [at for at, _, _ in series]
    assert times == sorted(times)
    assert running.killed == 0
    assert not running.folder.exists()


def test_a_server_that_does_little_is_looked_at_less_often():
    limits = (0.1, 0.25)
    assert processes.pause_after(limits, spent=0.00003, share=0.004) == 0.1
    assert processes.pause_after(limits, spent=0.00003, share=0.0002) == pytest.approx(0.15)
    assert processes.pause_after(limits, spent=0.00003, share=0.0) == 0.25


def test_processor_time_counts_children_that_have_ended(tmp_path):
    """Including daemons, which the supervisor has waited for."""
    burn = "import time; e = time.process_time() + 0.3\nwhile time.process_time() < e: pass"
    script = tmp_path / "s.py"
    script.write_text(
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\n"
        f"subprocess.run(['sh', '-c', 'python3 -c \"$1\" & exit 0', 'x', {burn!r}])\n"
        "import time; time.sleep(60)\n"
    )
    asked = Service(f"{sys.executable} {script}", "true", (LOADED,), ready="true")
    with ready(asked) as running:
        wait_until(lambda: running.snapshot().cpu_seconds >= 0.6)


def test_memory_of_prefork_is_shared_out(service):
    """Four processes share 32 MiB: the sum of PSS counts them once, that of RSS four times."""
    with ready(service("prefork")) as running:
        wait_until(lambda: running.snapshot().processes == 4)
        found = running.snapshot()
        by_hand = sum(rollup(pid, "Pss") for pid in running.tree())
        assert found.pss_bytes == pytest.approx(by_hand, rel=0.02)
        assert found.rss_bytes > 3 * found.pss_bytes


def test_a_daemon_is_found_and_ended(service):
    with ready(service("daemon")) as running:
        daemon = running.listener
        assert running.load(LOADED).load is not None
        running.stop()
        assert not is_alive(daemon)


@pytest.mark.parametrize(
    "changes",
    [
        {"ready": "line:^ready now"},
        {"reset": "echo {port} > {dir}/restored", "ready": "grep -q {port} {dir}/restored"},
    ],
)
def test_ready_by_a_line_or_by_a_command_that_sees_what_reset_made(service, changes):
    with ready(service(**changes)) as running:
        assert running.listener


def test_the_malloc_of_a_process_is_told(shim):
    for path, expected in ((None, "libc.so.6"), (shim.path, Path(str(shim.path)).name)):
        env = {**os.environ, **({"LD_PRELOAD": str(path)} if path else {})}
        process = subprocess.Popen(["sleep", "60"], env=env)
        try:
            wait_until(lambda pid=process.pid: malloc_library(pid))
            assert Path(str(malloc_library(process.pid))).name == expected
        finally:
            process.kill()
            process.wait()


def test_who_listens_is_found():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert listening_processes([os.getpid()], port) == [os.getpid()]
    assert listening_processes([os.getpid()], port) == []
    assert processes.snapshot(1 << 22, 0.0).processes == 0


@pytest.mark.parametrize(
    ("modes", "changes", "kind", "told"),
    [
        ("deaf", {"ready_seconds": 0.3}, "timeout", ["starting"]),
        ("quit", {}, "exit", ["exit 3", "cannot open the database"]),
        ("crash", {}, "signal", ["SIGABRT"]),
        ("", {"server": "/no/such/server {port}"}, "start", ["/no/such/server"]),
        ("", {"load": "/no/such/load"}, "load", ["exit 127"]),
        ("", {"load": "echo no route >&2; exit 4"}, "load", ["exit 4"]),
        ("", {"load": "true"}, "metric", ["printed nothing"]),
        ("", {"load": "echo all is well"}, "metric", ["no known result"]),
        ("", {"load": "sleep 60", "load_seconds": 0.5}, "timeout", ["0.5 s"]),
    ],
)
def test_a_server_or_a_load_that_fails(service, modes, changes, kind, told):
    found = broken(service(modes, **changes))
    assert found.kind == kind
    mentions(f"{found.text}\n{found.stderr_tail}", *told)


def test_a_server_that_ignores_sigterm_is_killed(service):
    with ready(service("stubborn", grace_seconds=0.3)) as running:
        pid = running.listener
        running.stop()
    assert running.killed == 1
    assert not is_alive(pid)


def test_a_port_that_is_taken_is_told(service):
    """With its owner; or the second server reports its error, and the first one is not mistaken for
    it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        found = broken(service(port=port))
        assert found.kind == "start"
        mentions(found.text, str(port), str(os.getpid()))
        asked = service(ready=None)
        found = broken(replace(asked, server=asked.server.replace("{port}", str(port))))
        assert (found.kind, "Address already in use" in found.stderr_tail) == ("exit", True)


def test_a_server_that_loses_the_preload_or_has_a_malloc_of_its_own(build, service, shim):
    asked = replace(service(), server=f"env -u LD_PRELOAD {service().server}")
    assert broken(asked, shim).kind == "preload"
    own = "void *__libc_malloc(size_t);\nvoid *malloc(size_t n) { return __libc_malloc(n); }\n"
    program = build("own.c", SERVER + own, "-rdynamic")
    found = broken(service(server=f"{program} {{port}}"), shim)
    assert (found.kind, str(program) in found.text) == ("preload", True)


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_a_library_that_a_servers_user_may_not_read(tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "library.so").touch()
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    with subprocess.Popen([*user, "sleep", "60"]) as other:
        wait_until(lambda: processes.name_of(other.pid) == "sleep")
        found = hidden_from(other.pid, str(hidden / "library.so"))
        assert found in [hidden, *hidden.parents]
        assert hidden_from(other.pid, "/etc/passwd") is None
        assert hidden_from(os.getpid(), str(hidden / "library.so")) is None
        other.kill()


def test_nothing_survives_the_lab(service, tmp_path):
    """Even if the lab is killed."""
    script = tmp_path / "lab.py"
    script.write_text(
        "import sys, time\nfrom tsmlab.service.server import *\n"
        "from tsmlab.allocators import glibc\n"
        f"with Server(Service({service('daemon').server!r}, 'true', ()), glibc(), {{}}) as s:\n"
        "    s.wait_until_ready()\n    print(s.listener, flush=True)\n    time.sleep(60)\n"
    )
    lab = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    daemon = int(lab.stdout.readline())
    assert is_alive(daemon)
    lab.send_signal(signal.SIGKILL)
    lab.wait()
    lab.stdout.close()
    wait_until(lambda: not is_alive(daemon))


@pytest.mark.parametrize("step", ["ready", "load", "idle"])
def test_an_interrupt_leaves_nothing(service, step):
    def run():
        with Server(service(ready="false" if step == "ready" else None), glibc(), {}) as running:
            if step != "ready":
                running.wait_until_ready()
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            if step == "ready":
                running.wait_until_ready()
            getattr(running, step)(Phase(step, 30.0))

    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
