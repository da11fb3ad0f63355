"""A misspelt option, or one with a bad value, is not ignored silently.

Runs programs under a library with TSMALLOC_* variables set, and checks the output; compares
docs/use.md with the output of TSMALLOC_SHOW=1; and looks for variables of the lab and the tools
that a library would mistake for misspelt options.

Usage: options.py LIBRARY.so LINKED_PROGRAM REPOSITORY
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import expect, finish, only, reports, run

# In code, an environment variable appears in quotes.
QUOTED = re.compile(r'"TSMALLOC_([A-Z_]+)=?"')
SHOWN = re.compile(r"tsmalloc: TSMALLOC_([A-Z_]+)=(\S+) \((default|environment); (\S+)\): (.+)")


def said(library: str, **options: str) -> list[str]:
    """The standard error of a program that does nothing, run with these options."""
    result = run(library, "/bin/true", **options)
    result.check_returncode()
    return result.stderr.splitlines()


def expect_named(line: str, *parts: str) -> None:
    """Checks that one of our lines contains all of these parts."""
    expect(line.startswith("tsmalloc: ") and all(part in line for part in parts), str(parts), line)


def expect_refused(library: str, name: str, value: str, allowed: str, default: str) -> None:
    """A bad value is reported with the allowed values and the value used instead."""
    line = only(said(library, **{name: value}))
    expect_named(line, f"TSMALLOC_{name}={value}", allowed, f", {default}")


def check_warnings(library: str) -> None:
    """Unknown names and bad values print one line each; everything else is silent."""
    expect(said(library) == [], "without options, nothing is said", said(library))
    expect(said(library, ON_MISUSE="abort") == [], "a good value is silent", None)
    expect(said(library, ON_MISUSE="") == [], "an empty value is none", None)
    for misspelt, nearest in (
        ("ON_MISSUSE", "ON_MISUSE"),
        ("SHOWS", "SHOW"),
        ("on_misuse", "ON_MISUSE"),
    ):
        line = only(said(library, **{misspelt: "abort"}))
        expect_named(line, f"TSMALLOC_{misspelt}: ", f"TSMALLOC_{nearest}?", "TSMALLOC_SHOW=1")
    for hostile, printed in (("ON\x1b[2JX", "ON?[2JX"), ("A\nB\xc2\x9b", "A?B????")):
        expect_named(only(said(library, **{hostile: "1"})), f"TSMALLOC_{printed}: ")
    expect_named(only(said(library, ON_MISUSE="\x1b[31mred\n")), "TSMALLOC_ON_MISUSE=?[31mred?: ")
    long_name = "X" * 3000
    expect(len(said(library, **{long_name: "1"})) == 1, "a long name is one line", None)
    expect_refused(library, "ON_MISUSE", "stop", "default|abort|continue|silent", "default")


def check_limits(library: str) -> None:
    """Sizes take a unit or a share of memory; the smaller of two soft limits applies."""
    for soft, hard in (
        ("512M", "1G"),
        ("1G", "1024M"),
        ("75%", "90%"),
        ("90%", "1M"),
        ("off", "1K"),
    ):
        lines = said(library, LIMIT=soft, HARD_LIMIT=hard)
        expect(lines == [], f"a limit of {soft}, and of {hard}, is silent", lines)
    refused = "0 0% 101% 1.5G -1 +1 1MB 1Mi M % 1%% 50M% 257T 1P 281474976710657 many Auto | 0x10"
    for bad in (*refused.split(), "auto|off", " 1", "1 ", "1M ", "99999999999999999999"):
        expect_refused(library, "LIMIT", bad, "auto|off|BYTES|N%", "auto")
    for soft, hard in (("2G", "1G"), ("80%", "79%")):
        line = only(said(library, LIMIT=soft, HARD_LIMIT=hard))
        expect_named(line, "TSMALLOC_LIMIT ", "TSMALLOC_HARD_LIMIT", ", auto")
    table = shown(library, LIMIT="1536M", HARD_LIMIT="2048m", THP="never")
    values = tuple(table[name][0] for name in ("LIMIT", "HARD_LIMIT", "THP"))
    expect(values == ("1536M", "2G", "never"), "sizes have the largest whole unit", values)


def check_delay(library: str) -> None:
    """Milliseconds or a word; one of the words equals a number."""
    for good in ("auto", "never", "-1", "0", "250", "86400000"):
        lines = said(library, PURGE_DELAY=good)
        expect(lines == [], f"a delay of {good} is silent", lines)
        value = shown(library, PURGE_DELAY=good)["PURGE_DELAY"][0]
        expect(value == good, f"a delay of {good} is shown as it is", value)
    for bad in ("86400001", "1K", "1s", "-2", "1.5", "10%", "99999999999999999999", "8auto"):
        expect_refused(library, "PURGE_DELAY", bad, "auto|never|-1|MILLISECONDS", "auto")


def shown(library: str, **options: str) -> dict[str, tuple[str, ...]]:
    """Options by name: value, source, range, help."""
    lines = said(library, SHOW="1", **options)
    matches = [SHOWN.fullmatch(line) for line in lines]
    expect(all(matches), "TSMALLOC_SHOW=1 prints options and nothing else", lines)
    return {m[1]: (m[2], m[3], m[4], m[5]) for m in matches if m}


def check_show(library: str) -> None:
    """Effective values, and the source of each."""
    table = shown(library, ON_MISUSE="silent")
    expect(table["ON_MISUSE"][:2] == ("silent", "environment"), "a set value", table)
    expect(table["SHOW"][:2] == ("1", "environment"), "the option itself", table)
    table = shown(library)
    expect(table["ON_MISUSE"][:2] == ("default", "default"), "a default", table)


def check_document(library: str, repository: Path) -> None:
    """docs/use.md contains exactly the library's table."""
    rows = {}
    for line in (repository / "docs/use.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[0].startswith("`TSMALLOC_"):
            values = cells[1].strip("`").replace("\\|", "|")
            rows[cells[0].strip("`").removeprefix("TSMALLOC_")] = (
                cells[2].strip("`"),
                values,
                cells[3],
            )
    table = {
        name: (value, values, text) for name, (value, _, values, text) in shown(library).items()
    }
    table["SHOW"] = ("0", *table["SHOW"][1:])  # it is not at its default right now
    expect(rows == table, f"docs/use.md says {table}", rows)


def others(repository: Path) -> list[str]:
    """The variables that, as docs/use.md says, other programs read."""
    text = (repository / "docs/use.md").read_text(encoding="utf-8")
    return re.findall(r"`TSMALLOC_([A-Z_]+)`", text.partition("| variable | read by |")[2])


def check_names(library: str, repository: Path) -> None:
    """Variables of the tools and the lab do not count as unknown options."""
    known = set(shown(library))
    known |= {name for name in others(repository) if said(library, **{name: "1"}) == []}
    for folder in ("tools", "lab/native", "lab/tsmlab", "dev", "src"):
        for path in (repository / folder).rglob("*"):
            if path.suffix in {".cpp", ".h", ".inc", ".py", ".c"}:
                unknown = set(QUOTED.findall(path.read_text(encoding="utf-8"))) - known
                expect(not unknown, f"src/os/options.cpp has what {path.name} names", unknown)


def check_more_rights(linked_program: str) -> None:
    """A process with more privileges than its user keeps the defaults, silently."""
    if os.geteuid() != 0:
        return  # only root can create one here
    nobody = 65534
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "set-user-id"
        shutil.copy(linked_program, program)
        Path(folder).chmod(0o755)
        program.chmod(0o4755)
        environment = {"TSMALLOC_SHOW": "1", "TSMALLOC_NONSENSE": "1"}
        for is_secure in (True, False):
            if not is_secure:
                program.chmod(0o755)
            result = subprocess.run(
                [str(program), "double free after nothing"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                user=nobody,
                check=False,
            )
            expect((reports(result) == []) == is_secure, f"secure: {is_secure}", result)


def main(arguments: list[str]) -> int:
    """Runs all checks; 1 if one failed."""
    library, linked_program, repository = arguments[0], arguments[1], Path(arguments[2])
    check_warnings(library)
    check_limits(library)
    check_delay(library)
    check_show(library)
    check_document(library, repository)
    check_names(library, repository)
    check_more_rights(linked_program)
    return finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
