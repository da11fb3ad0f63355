"""The description of a machine, read from made-up files; and touching its memory: as much as
requested, never more than half of what is free, and never in this process.
"""

import resource

import pytest
from prompt import write_files

from tsmlab import machine
from tsmlab.machine import describe

MIB = 1 << 20


def test_this_machine_is_described_and_its_memory_touched_in_another_process():
    found = describe()
    assert found.kernel
    assert 1 <= found.usable_cores <= found.cores
    assert found.memory_bytes > 1 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert machine.touch(64 * MIB) == 64 * MIB
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >= 64 * 1024
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 32 * 1024


def test_what_cannot_be_read_is_none(tmp_path):
    found = describe(tmp_path)
    unknown = ("cpu", "memory_bytes", "transparent_hugepages", "governor")
    for name in (*unknown, "cgroup_memory_limit_bytes"):
        assert getattr(found, name) is None, name


def test_files_are_understood(tmp_path):
    root = write_files(
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
    found = describe(root)
    assert found.system == "Some Linux 12"
    assert found.cpu == "A CPU @ 2 GHz"
    assert (found.memory_bytes, found.swap_bytes) == (1 << 20, 0)
    assert found.transparent_hugepages == "madvise"
    assert found.governor == "powersave"
    assert found.address_randomisation == 2


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
def test_the_tightest_limit_of_the_group_counts(tmp_path, files, memory, cpus):
    found = describe(write_files(tmp_path, files))
    assert found.cgroup_memory_limit_bytes == memory
    assert found.cgroup_cpu_limit == cpus


@pytest.mark.parametrize(("free", "touched"), [(10 * MIB, 5 * MIB), (None, 0), (0, 0)])
def test_half_of_what_is_free_stays_free(monkeypatch, free, touched):
    monkeypatch.setattr(machine, "available_bytes", lambda: free)
    assert machine.touch(1000 * MIB) == touched


def test_the_kernel_and_the_control_group_say_what_is_free(tmp_path):
    assert machine.available_bytes(tmp_path) is None
    write_files(tmp_path, {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable:    5000 kB\n"})
    assert machine.available_bytes(tmp_path) == 5000 * 1024
    group = {"proc/self/cgroup": "0::/here\n", "sys/fs/cgroup/here/memory.max": "1048576\n"}
    write_files(tmp_path, group)
    assert machine.available_bytes(tmp_path) == MIB
