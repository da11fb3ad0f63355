"""dev/release on a small repository: which steps fail, and what a walk to the end leaves behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = "include/tsmalloc/tsmalloc.h"
CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2030-01-02\n\n- It is faster.\n"


def macros(*numbers: int) -> str:
    """A header with the version."""
    names = ("MAJOR", "MINOR", "PATCH")
    return "".join(
        f"#define TSMALLOC_VERSION_{name} {number}\n"
        for name, number in zip(names, numbers, strict=False)
    )


def run(checkout: Path, *command: str | Path, typed: str = "") -> tuple[int, str]:
    done = subprocess.run(
        command,
        cwd=checkout,
        input=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def release(checkout: Path, *arguments: str, typed: str = "") -> tuple[int, str]:
    return run(checkout, sys.executable, checkout / "dev/release", *arguments, typed=typed)


def commit(checkout: Path) -> None:
    run(checkout, "git", "add", "--all")
    name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    status, said = run(checkout, "git", *name, "commit", "--quiet", "--message", "a change")
    assert status == 0, said


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Ready for release 0.2.0; its `make` notes what it was told to do, and fails if asked to."""
    (tmp_path / "dev").mkdir()
    for name in ("release", "version.py"):
        shutil.copy(ROOT / "dev" / name, tmp_path / "dev")
    (tmp_path / "dev/generate").write_text("")
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    (tmp_path / HEADER).parent.mkdir(parents=True)
    (tmp_path / HEADER).write_text(macros(0, 2, 0))
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "Makefile").write_text("test-all coverage fuzz: ; @echo made $@; test ! -e no-$@\n")
    run(tmp_path, "git", "init", "--quiet")
    run(tmp_path, "git", "config", "user.name", "t")
    run(tmp_path, "git", "config", "user.email", "t@example.org")
    commit(tmp_path)
    return tmp_path


def test_a_dry_run_says_what_is_next_and_does_nothing(checkout: Path) -> None:
    status, said = release(checkout, "--check")
    assert status == 0, said
    assert "FAIL" not in said
    assert "next every test of every build passes: make test-all" in said
    assert "made" not in said
    assert run(checkout, "git", "tag") == (0, "")


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        (HEADER, macros(0, 3, 0), "no entries under `## 0.3.0"),
        ("CHANGELOG.md", CHANGELOG.replace("- It is faster.\n", ""), "no entries under `## 0.2.0"),
        ("CHANGELOG.md", CHANGELOG.replace("ased\n", "ased\n\n- And smaller.\n"), "`Unreleased`"),
        (HEADER, macros(0, 2), "`#define TSMALLOC_VERSION_PATCH NUMBER` is missing"),
        ("dev/generate", "import sys\nsys.exit('use.md is stale')\n", "use.md is stale"),
    ],
)
def test_a_quick_step_that_fails_is_named(checkout: Path, file: str, text: str, words: str) -> None:
    (checkout / file).write_text(text)
    commit(checkout)
    status, said = release(checkout, "--check")
    assert status == 1
    assert words in said


def test_neither_changed_files_nor_a_tag_twice(checkout: Path) -> None:
    (checkout / "new").write_text("")
    status, said = release(checkout)
    assert status == 1
    assert "?? new" in said
    assert "made" not in said
    commit(checkout)
    run(checkout, "git", "tag", "v0.2.0")
    status, said = release(checkout)
    assert status == 1
    assert "the tag v0.2.0 exists" in said


def test_a_walk_to_the_end_tags(checkout: Path) -> None:
    status, said = release(checkout, typed="y\n" * 4)
    assert status == 0, said
    assert [said.count(f"made {verb}\n") for verb in ("test-all", "coverage", "fuzz")] == [1, 1, 1]
    assert "It is faster." in run(checkout, "git", "tag", "--list", "-n9", "v0.2.0")[1]


@pytest.mark.parametrize("typed", ["", "n\n", "y\ny\nn\n", "y\ny\ny\nn\n"])
def test_without_every_yes_there_is_no_tag(checkout: Path, typed: str) -> None:
    assert release(checkout, typed=typed)[0] == 1
    assert run(checkout, "git", "tag") == (0, "")


def test_tests_that_fail_end_the_walk(checkout: Path) -> None:
    (checkout / "no-coverage").write_text("")
    commit(checkout)
    status, said = release(checkout, typed="y\n" * 4)
    assert status == 1
    assert "made coverage" in said
    assert "made fuzz" not in said
