"""A fresh Debian 12 in a folder, which mmdebstrap fills: its programs run there, in a namespace of
mounts and processes of their own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from package_commands import run, try_to_run

IN_ROOT = """
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"
"""


@dataclass
class Machine:
    """A Debian in a folder."""

    root: Path

    def try_to_run(self, *command: str, **environment: str) -> tuple[int, str]:
        return try_to_run(
            *("unshare", "--mount", "--pid", "--fork", "sh", "-ec", IN_ROOT, self.root),
            *command,
            **({"HOME": "/tmp", "DEBIAN_FRONTEND": "noninteractive"} | environment),
        )

    def run(self, *command: str, **environment: str) -> str:
        status, said = self.try_to_run(*command, **environment)
        assert status == 0, f"{' '.join(command)} ends with {status}:\n{said}"
        return said


def mirror() -> str:
    """The mirror that this machine's packages come from, if they are of Debian 12."""
    shown = run(
        *("apt-get", "indextargets", "--format", "$(REPO_URI)"),
        *("Identifier: Packages", "Origin: Debian", "Codename: bookworm"),
    )
    return shown.split()[0] if shown else "http://deb.debian.org/debian"


@contextmanager
def fresh_debian(folder: Path, include: str = "") -> Iterator[Machine]:
    """Without recommended packages, which take minutes to download."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed (Debian: mmdebstrap)")
    if os.getuid() != 0:
        pytest.skip("a fresh Debian needs root: chroot and mounts")
    root = folder / "root"
    added = ["--include", include] if include else []
    run("mmdebstrap", "--variant=apt", *added, "bookworm", root, mirror())
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "etc/apt/apt.conf.d/90tests").write_text('APT::Install-Recommends "0";\n')
    yield Machine(root)
    shutil.rmtree(root)
