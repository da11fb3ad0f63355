"""Warming memory: as much as asked for, never more than half of what is free, and never here."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tsmlab import machine

MIB = 1 << 20


def test_memory_is_touched_in_another_process() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert machine.touch(64 * MIB) == 64 * MIB
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert max(before, 64 * 1024) <= after


@pytest.mark.parametrize(("free", "touched"), [(10 * MIB, 5 * MIB), (None, 0), (0, 0)])
def test_half_of_what_is_free_stays_free(
    monkeypatch: pytest.MonkeyPatch, free: int | None, touched: int
) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: free)
    assert machine.touch(1000 * MIB) == touched


def test_the_kernel_and_the_control_group_say_what_is_free(tmp_path: Path) -> None:
    assert machine.available_bytes(tmp_path) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    5000 kB\n")
    assert machine.available_bytes(tmp_path) == 5000 * 1024
    (tmp_path / "proc/self/cgroup").write_text("0::/here\n")
    (tmp_path / "sys/fs/cgroup/here").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/here/memory.max").write_text("1048576\n")
    assert machine.available_bytes(tmp_path) == MIB
