"""dev/generate: documents that match the table of options, and tables that it cannot read."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from prompt import ran
from refusals import mentions

ROOT = Path(__file__).resolve().parents[2]
HEADER = "include/tsmalloc/tsmalloc.h"
MANUALS = ("docs/man/libtsmalloc.7", "docs/man/tsmalloc.1", "docs/man/libtsmalloc.3")
HEADERS = (HEADER, "include/tsmalloc/arena.h", "include/tsmalloc/prefixed.h")
FILES = ("src/os/options.cpp", *HEADERS, "docs/use.md", *MANUALS)


def generate(*arguments, status=0):
    done = ran(sys.executable, ROOT / "dev" / "generate", *arguments, status=status)
    return done.stdout + done.stderr


@pytest.fixture
def checkout(tmp_path):
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_documents_of_this_checkout_are_not_stale():
    generate("--check")


def test_a_new_option_is_missed_and_then_written(checkout):
    replace(
        checkout / "src/os/options.cpp",
        '    {"SHOW"',
        '    {"DEPTH", Kind::number, offsetof(Options, depth), false, 1\'000, "",\n'
        '     "how deep; "\n     "0: not at all"},\n    {"SHOW"',
    )
    said = generate("--check", checkout, status=1)
    mentions(said, "docs/use.md is out of date", "libtsmalloc.7 is out of date")
    generate(checkout)
    row = "| `TSMALLOC_DEPTH` | `0..1000` | `0` | how deep; 0: not at all |\n"
    assert row in (checkout / "docs/use.md").read_text()
    assert ".BR TSMALLOC_DEPTH = 0..1000\n" in (checkout / "docs/man/libtsmalloc.7").read_text()
    assert generate("--check", checkout) == ""


def test_the_manuals_have_the_version(checkout):
    replace(checkout / HEADER, "VERSION_MAJOR 0", "VERSION_MAJOR 9")
    said = generate("--check", checkout, status=1)
    assert all(f"{manual} is out of date" in said for manual in MANUALS)
    assert "use.md" not in said


def test_each_function_of_the_headers_is_in_the_manual(checkout):
    page = (checkout / "docs/man/libtsmalloc.3").read_text()
    exported = (ROOT / "src/libc/prefixed.txt").read_text().split()
    headings = "".join(line for line in page.splitlines(True) if line.startswith(".SS "))
    assert {*exported, "ts_available"} <= set(re.findall(r"\w+", headings))
    replace(checkout / HEADER, "encoded like TSMALLOC_VERSION.", "which is a -number.")
    generate(checkout)
    changed = "\nReturns the version of the library, which is a \\-number.\n"
    assert changed in (checkout / "docs/man/libtsmalloc.3").read_text()


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("src/os/options.cpp", "Kind::choice, off", "Kind::colour, off", "cannot parse this entry"),
        ("src/os/options.cpp", "constexpr Option table", "constexpr Option list", "not found"),
        (
            "docs/use.md",
            "options: end",
            "options: over",
            "docs/use.md: needs exactly one line with",
        ),
        (HEADER, "VERSION_MINOR 1", "VERSION_MINOR one", "TSMALLOC_VERSION_MINOR NUMBER"),
    ],
)
def test_what_it_cannot_read_is_named(checkout, name, old, new, words):
    replace(checkout / name, old, new)
    assert words in generate("--check", checkout, status=1)
