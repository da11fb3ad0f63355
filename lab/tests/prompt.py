"""Runs the lab from the command line, for tests of its verbs, with results in the test's folder."""

import contextlib
import importlib.machinery
import importlib.util
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tsmlab.cli import main
from tsmlab.paths import repository_root
from tsmlab.study import from_json

# glibc's malloc. Unless WASTE=0, it wastes memory and time at the start of each process.
WASTE = r"""
void *__libc_malloc(size_t);
void *malloc(size_t size) { return __libc_malloc(size); }
static volatile unsigned long sum;
__attribute__((constructor)) static void start(void) {
  const char *waste = getenv("WASTE");
  if (waste && !strcmp(waste, "0")) return;
  if (waste && !strcmp(waste, "9")) abort();
  const size_t size = waste && !strcmp(waste, "2") ? 48 << 20 : 16 << 20;
  volatile char *block = malloc(size);
  for (size_t i = 0; i < size; i += 4096) block[i] = 1;
  for (unsigned long i = 0; i < 1000000; i++) sum += i;
}
"""


# Keeps 4,000 blocks and replaces them, 20,000 or argv[1] in all; if that is negative, exits with 3.
# Modes in argv[1]: "slow" sleeps for a second, "echo" repeats its input, "fail" exits with 3 if an
# allocator is preloaded. A second argument: prints how long it took.
WORK = r"""
int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  const int number = atoi(mode), blocks = number ? abs(number) : 20000;
  if (strcmp(mode, "fail") == 0 && getenv("LD_PRELOAD")) {
    fprintf(stderr, "FAILED: not today\n");
    return 3;
  }
  static char *kept[4000];
  size_t sum = 0;
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int i = 0; i < blocks; i++) {
    char **b = &kept[i % 4000];
    free(*b);
    *b = malloc(1000 + i % 500);
    memset(*b, i, 1000 + i % 500);
    sum += (unsigned char)(*b)[7];
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (strcmp(mode, "slow") == 0) sleep(1);
  if (strcmp(mode, "echo") == 0) for (int c; (c = getchar()) != EOF;) putchar(c);
  const double seconds = (double)(end.tv_sec - start.tv_sec);
  printf("sum %zu\n", sum);
  if (argc > 2) printf("seconds: %.9f\n", seconds + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
  return number < 0 ? 3 : 0;
}
"""

# A library that behaves like the C library until a certain call.
MISBEHAVING = r"""
extern void *__libc_malloc(size_t);
static int calls;
void *malloc(size_t size) {
  if (++calls == 300) { MISDEED; }
  return __libc_malloc(size);
}
"""


@pytest.fixture(scope="session")
def work(build):
    return build("work.c", WORK)


@pytest.fixture(scope="session")
def misbehaving(build):
    """misbehaving(misdeed) is the library MISBEHAVING."""
    flags = ("-shared", "-fPIC")
    return lambda does: build("bad.so.c", MISBEHAVING.replace("MISDEED", does), *flags)


@pytest.fixture(scope="session")
def waste(build):
    return build("libwaste.so.c", WASTE, "-shared", "-fPIC")


@pytest.fixture
def environment(tmp_path):
    inherited = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "COLUMNS")}
    return inherited | {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def tsmalloc(environment):
    """tsmalloc(*words, status=0, cwd=None, **variables) runs a command line, which must end with
    status."""

    def run(*words, status=0, cwd=None, **variables):
        how = {"cwd": cwd, "timeout": 300, "stdin": subprocess.DEVNULL}
        return run_alone(*words, status=status, env=environment | variables, **how)

    return run


def start(*words, **more):
    command = [sys.executable, "-m", "tsmlab", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **(pipes | more))


def ran(*command, status=None, timeout=180, **more):
    """Runs any command, which must end with this status if one is given; returns its output as
    text. The command's words may be paths and numbers."""
    how = {"capture_output": True, "text": True, "timeout": timeout}
    done = subprocess.run(list(map(str, command)), check=False, **how, **more)
    assert status in (None, done.returncode), done.stdout + done.stderr
    return done


def merged(*command, **options):
    """Returns the exit status, and the combined standard output and error."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    words = list(map(str, command))
    done = subprocess.run(words, text=True, check=False, **pipes, **options)
    return done.returncode, done.stdout


def on_terminal(*command):
    """What a command that must succeed prints where its input and output are a terminal."""
    primary, terminal = pty.openpty()
    words = list(map(str, command))
    with subprocess.Popen(words, stdin=terminal, stdout=terminal) as running:
        os.close(terminal)
        said = b""
        with contextlib.suppress(OSError):
            while piece := os.read(primary, 1 << 16):
                said += piece
    os.close(primary)
    assert running.returncode == 0
    return said.decode()


def run_alone(*words, status=0, **more):
    return ran(sys.executable, "-m", "tsmlab", *words, status=status, **more)


def in_process(verb, capfd):
    """A function (*words, status=0) that runs the verb in this process and returns its out and
    err."""

    def call(*words, status=0):
        found = main([verb, *map(str, words)])
        said = capfd.readouterr()
        assert found == status, said.err
        return said

    return call


def kept(tmp_path, verb=""):
    """The only results that were saved, or those of the verb."""
    files = (tmp_path / "state" / "tsmalloc" / "results").glob("*.json")
    (path,) = (file for file in files if verb in file.name)
    return from_json(path.read_text())


def stop_after(process, tmp_path, mark, count, number=signal.SIGINT):
    """Ends a study by a signal, once its journal has the mark this many times; returns its out and
    err."""
    journals = (tmp_path / "state").rglob
    wait_until(lambda: sum(j.read_text().count(mark) for j in journals("*.jsonl")) >= count)
    process.send_signal(number)
    return process.communicate(timeout=60)


def script(path, text):
    """Writes an executable file, and returns its path."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def write_files(root, files):
    """Writes text files by their paths below a folder, which it returns."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def wait_until(condition):
    """Returns when the condition holds; fails if that takes too long."""
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.01)


def dev_script(path):
    name = path.removesuffix(".py").replace("-", "_")
    loader = importlib.machinery.SourceFileLoader(name, str(repository_root() / "dev" / path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module  # dataclasses look it up there
    loader.exec_module(module)
    return module


@pytest.fixture
def small_disk(tmp_path):
    """small_disk(size) is a folder with a file system of its own."""
    disk = tmp_path / "disk"

    def mount(size):
        disk.mkdir()
        words = ("mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk)
        if os.geteuid() or ran(*words).returncode:
            pytest.skip("mounting a small file system needs root, and a container that allows it")
        return disk

    yield mount
    if disk.is_mount():
        ran("umount", disk, status=0)


def processes(holds):
    """The numbers of all processes for whose folder in /proc this holds."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if holds(folder):
                found.append(int(folder.name))
    return found


def rollup(pid, key):
    """The kernel's figure of a process's memory, in bytes."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return int(re.search(rf"^{key}: +(\d+) kB", text, re.MULTILINE)[1]) * 1024


def is_alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}
