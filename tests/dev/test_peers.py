"""dev/peers: the list that it makes of what `tsmalloc fetch` builds."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

PEERS = Path(__file__).resolve().parents[2] / "dev" / "peers"
TSMALLOC = """#!/bin/bash
[[ $# -gt 1 ]] || exec printf '%s\\n' 'name  version' 'one   1.2' 'two   2.0'
[[ $3 != two ]] || exit 1
echo "$XDG_CACHE_HOME/tsmalloc/allocators/$3-1.2/lib$3.so:KEY=VALUE"
"""


def peers(root: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What the script does in a checkout with that tsmalloc."""
    (root / "dev").mkdir(exist_ok=True)
    shutil.copy(PEERS, root / "dev")
    (root / "tsmalloc").write_text(TSMALLOC)
    (root / "tsmalloc").chmod(0o755)
    return subprocess.run(
        [root / "dev" / "peers", *arguments], capture_output=True, text=True, check=False
    )


def test_each_that_is_built_is_a_line(tmp_path: Path) -> None:
    folder = tmp_path / "peers"
    line = f"one1.2={folder}/tsmalloc/allocators/one-1.2/libone.so:KEY=VALUE\n"
    for names, status in ((["one"], 0), ([], 1), (["two", "one"], 1)):
        done = peers(tmp_path, folder, *names)
        assert (done.returncode, done.stdout) == (status, line), done.stderr
        assert (folder / "peers.txt").read_text() == line


def test_without_a_folder_it_says_how_it_is_called(tmp_path: Path) -> None:
    done = peers(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "dev/peers DIRECTORY" in done.stderr
