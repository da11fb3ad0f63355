"""dev/lines: which files count, and in which folders."""

import subprocess
import sys
from pathlib import Path

from prompt import ran

LINES = Path(__file__).resolve().parents[2] / "dev" / "lines"
FILES = {
    "Makefile": b"all:\n",
    "lab/a.py": b"one\ntwo\n",
    "lab/part/deep/b.py": b"last line without an end",
    "lab/requirements-dev.txt": b"pinned\n",
    "rust/Cargo.lock": b"pinned\n",
    "lab/drawn.svg": b"<svg>\n",
    "lab/zeros.bin": b"\n\0\n",
    "lab/latin.txt": b"\xe4\n",
}


def lines(*arguments):
    done = ran(sys.executable, LINES, *arguments)
    return done.returncode, [line.split() for line in done.stdout.splitlines()]


def test_lines_and_bytes_by_folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
    (tmp_path / "untracked.py").write_text("one\n")
    rows = [["4", "37", "total"], ["3", "32", "lab"], ["1", "24", "lab/part"], ["1", "5", "."]]
    assert lines(tmp_path) == (0, rows)
    (tmp_path / "Makefile").unlink()
    assert lines(tmp_path) == (0, [["3", "32", "total"], *rows[1:3]])


def test_only_help_is_an_option():
    assert lines("--help")[0] == 0
    assert lines("--all")[0] == 2
