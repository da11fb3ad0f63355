"""Shared fixtures of the native tools' tests: a program with known calls, known traces, and small
disks.
"""

import os
import subprocess

import pytest
from shim_programs import CALLS


@pytest.fixture(scope="session")
def calls(build):
    """The program of CALLS."""
    return build("calls.c", CALLS)


@pytest.fixture
def small_disk(tmp_path):
    """small_disk(size) is a folder with a file system of its own."""
    disk = tmp_path / "disk"

    def mount(size):
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk]
        if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("mounting a small file system needs root, and a container that allows it")
        return disk

    yield mount
    if disk.is_mount():
        subprocess.run(["umount", disk], check=True)
