"""The probes of OpenTelemetry's memory profiling (USDT): an attached tracer gets samples.

External profilers find these probes only by ELF notes, so nothing else would reveal wrong ones. No
kernel with eBPF is needed: the tracer is our own debugger, which does what the kernel does. It
raises the semaphores, and traps where the notes say.
"""

import math
import os
import platform
import re
import subprocess
from pathlib import Path

import pytest
from prompt import ran

from tsmlab import paths

SOURCE = Path(__file__).with_name("probed_program.c")
BYTES = 1000
MEASURED = 400_000
KEPT = MEASURED // 4

NOTE = re.compile(
    r"Provider: otel_memory\s+Name: (\w+)\s+"
    r"Location: (0x[0-9a-f]+), Base: 0x[0-9a-f]+, Semaphore: (0x[0-9a-f]+)\s+Arguments: (.*)"
)


def library():
    return paths.library("libtsmalloc.so")


def notes():
    """Location, semaphore and arguments of each probe."""
    text = ran("readelf", "--notes", library(), status=0).stdout
    found = NOTE.findall(text)
    assert len(found) == len(dict.fromkeys(name for name, *_ in found)), "a probe is there once"
    return {
        name: (location, semaphore, arguments) for name, location, semaphore, arguments in found
    }


def test_notes():
    found = notes()
    assert set(found) == {"alloc", "free"}
    assert len({semaphore for _, semaphore, _ in found.values()}) == len(found)
    assert len(found["alloc"][2].split()) == 3
    assert len(found["free"][2].split()) == 1
    assert all(a.startswith("8@") for _, _, each in found.values() for a in each.split())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the tracer knows x86-64 alone")
def test_an_attached_tracer_gets_samples(tmp_path):
    found = notes()
    assert found["alloc"][2] == "8@%rdi 8@%rsi 8@%rdx"
    assert found["free"][2] == "8@%rdi"
    program = tmp_path / "probed"
    subprocess.run(["gcc", "-O1", SOURCE, "-o", program], check=True)
    places = [found[name][i] for i in (0, 1) for name in ("alloc", "free")]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TSMALLOC_")}
    finished = ran(program, library(), *places, env=environment)
    assert (finished.returncode, finished.stderr) == (0, "")

    phase = 0
    live = {}
    allocated = {}
    for words in map(str.split, finished.stdout.splitlines()):
        if words[0] == "phase":
            phase = int(words[1])
        elif words[0] == "alloc":
            _, pointer, size, weighted = words
            assert int(size) == BYTES
            assert pointer not in live
            live[pointer] = int(weighted)
            allocated.setdefault(phase, []).append(int(weighted))
        else:
            live.pop(words[1])  # each free belongs to a sample
        if words == ["phase", "3"]:
            kept = list(live.values())
    assert phase == 5
    assert not live
    assert 5 not in allocated  # without a tracer

    # Estimates are within four of their standard errors; each sample weighs its bytes by 1 / p.
    for estimates, truth in ((allocated[2], MEASURED * BYTES), (kept, KEPT * BYTES)):
        error = math.sqrt(sum(w * (w - BYTES) for w in estimates))
        assert abs(sum(estimates) - truth) < 4 * error
        assert error < truth / 4
