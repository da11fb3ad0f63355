"""The description of a machine, read from made-up files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tsmlab.machine import describe


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_machine_is_described() -> None:
    machine = describe()
    assert machine.kernel
    assert 1 <= machine.usable_cores <= machine.cores
    assert machine.memory_bytes > 1 << 20


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    machine = describe(tmp_path)
    assert machine.cpu is None
    assert machine.memory_bytes is None
    assert machine.transparent_hugepages is None
    assert machine.governor is None
    assert machine.cgroup_memory_limit_bytes is None


def test_files_are_understood(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "etc/os-release": 'NAME="X"\nPRETTY_NAME="Some Linux 12"\n',
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n",
            "proc/meminfo": "MemTotal:       1024 kB\nSwapTotal:      0 kB\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
            "proc/sys/kernel/randomize_va_space": "2\n",
        },
    )
    machine = describe(root)
    assert machine.system == "Some Linux 12"
    assert machine.cpu == "A CPU @ 2 GHz"
    assert (machine.memory_bytes, machine.swap_bytes) == (1 << 20, 0)
    assert machine.transparent_hugepages == "madvise"
    assert machine.governor == "powersave"
    assert machine.address_randomisation == 2


@pytest.mark.parametrize(
    ("files", "memory", "cpus"),
    [
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "1000000\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/b/cpu.max": "150000 100000\n",
            },
            1_000_000,
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "2000000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            2_000_000,
            0.5,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, None, None),
    ],
)
def test_the_tightest_limit_of_the_group_counts(
    tmp_path: Path, files: dict[str, str], memory: int | None, cpus: float | None
) -> None:
    machine = describe(write(tmp_path, files))
    assert machine.cgroup_memory_limit_bytes == memory
    assert machine.cgroup_cpu_limit == cpus
