"""Fresh Debian 12 roots, made by mmdebstrap, and commands run in them.

They test a package or an image in a place without anything of this project or of this machine's
packages. They use the machine's own mirror, and each test gets a root of its own.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from package_commands import ROOT, one_worker_at_a_time, run

SUITE = "bookworm"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Runs in namespaces of its own: the root's /proc is mounted, and everything ends with the command.
ENTER = """
import ctypes, json, os, sys
root, command, variables, user, read_only = json.loads(sys.argv[1])
if read_only:
    status = os.system(f"mount --bind '{root}' '{root}' && mount -o remount,bind,ro '{root}'")
    if status != 0:
        sys.exit("the root cannot be made read-only")
os.chroot(root)
os.chdir("/")
# By the system call: the root may lack a command for it.
if ctypes.CDLL(None).mount(b"proc", b"/proc", b"proc", 0, None) != 0:
    sys.exit("/proc cannot be mounted")
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
os.execve(command[0], command, variables)
"""


def need_chroots():
    """Skips a test if no root can be made."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make and enter a root directory")
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap (Debian: sudo apt install mmdebstrap)")


def _sources():
    """The machine's package sources for this suite; if it has none, mmdebstrap's default mirror."""
    etc = Path("/etc/apt")
    candidates = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    return [
        str(path)
        for path in candidates
        if path.suffix in {".list", ".sources"}
        and path.is_file()
        and SUITE in path.read_text()
        and "debian" in path.read_text()
    ]


def archive(variant, *packages):
    """A root as an archive, made once and kept in build/."""
    made = ROOT / "build" / "artefacts" / f"{'-'.join((SUITE, variant, *packages))}.tar"
    with one_worker_at_a_time(made):
        if not made.is_file():
            unfinished = made.with_suffix(".unfinished.tar")
            include = [f"--include={','.join(packages)}"] if packages else []
            run("mmdebstrap", f"--variant={variant}", *include, SUITE, unfinished, *_sources())
            unfinished.rename(made)
    return made


def unpack(made, root):
    """Unpacks a new root from an archive; it resolves host names as this machine does."""
    root.mkdir(parents=True)
    run("tar", "--extract", "--numeric-owner", "--file", made, "--directory", root)
    for folder in ("proc", "tmp", "etc"):
        (root / folder).mkdir(exist_ok=True)
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    return root


def in_root(root, command, variables, *, user=0, read_only=False):
    """The output of a command that must succeed in the root, in exactly this environment."""
    request = json.dumps([str(root), list(command), dict(variables), user, read_only])
    namespaces = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
    return run(*namespaces, sys.executable, "-c", ENTER, request)
