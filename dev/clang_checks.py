#!/usr/bin/env python3
"""The checks that clang's tools do on the C and C++ sources.

    clang_checks.py format [--fix]   clang-format, on all of them
    clang_checks.py threads          the thread safety analysis (TS_REQUIRES and its like), of src/
    clang_checks.py tidy [--quick]   clang-tidy (.clang-tidy), of the drop-in libraries' sources;
                                     --quick leaves out the analyzer, and src/libc

Versions of the tools disagree, so only one is allowed. A source without findings is not checked
again by clang-tidy until it, a header or .clang-tidy changes (build/clang-checks).
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

VERSION = "16"
# The tool of each check; the names of Debian's package and of its executable are the tool's plus
# the version.
TOOLS = {"format": "clang-format", "threads": "clang++", "tidy": "clang-tidy"}
PACKAGES = {"clang++": "clang"}

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "clang-checks"
SUFFIXES = (".h", ".hpp", ".c", ".cpp", ".cc")
FLAGS = ("-std=c++20", "-Isrc", "-Iinclude")
CLASHING_FOLDERS = ("src/libc", "src/api")  # files with common names
ENGINE_FOLDERS = ("src/core", "src/features", "src/engine")
TIDY_FOLDERS = ("src/os", "src/unwind", *ENGINE_FOLDERS, "src/secure", "src/libc")


def tool(name: str) -> str | None:
    """The executable of the required version; None if it is not installed."""
    if path := shutil.which(f"{name}-{VERSION}"):
        return path
    path = shutil.which(name)
    return (
        path if path is not None and f"version {VERSION}." in output([path, "--version"]) else None
    )


def missing(check: str) -> str | None:
    """What to install for a check; None if nothing is missing."""
    name = TOOLS[check]
    return None if tool(name) else f"{PACKAGES.get(name, name)}-{VERSION}"


def output(command: Sequence[str | Path]) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def sources() -> list[str]:
    """All sources in C and C++ that git does not ignore."""
    listed = output(["git", "ls-files", "--cached", "--others", "--exclude-standard"]).splitlines()
    return sorted(n for n in listed if n.endswith(SUFFIXES) and (ROOT / n).is_file())


def units(folders: Iterable[str]) -> list[str]:
    return [n for n in sources() if n.endswith(".cpp") and n.startswith(tuple(folders))]


def passes(command: Sequence[str | Path]) -> bool:
    """Runs a command and prints its output if it fails."""
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        print(done.stdout, end="", flush=True)
    return done.returncode == 0


def format_sources(fix: bool) -> bool:
    how = ["-i"] if fix else ["--dry-run", "--Werror"]
    return passes([str(tool("clang-format")), *how, *sources()])


def together(folder: str) -> Path:
    """All sources of a folder as one, so that headers, which take most of the time, are read
    once."""
    unit = CACHE / f"{folder.replace('/', '-')}.cpp"
    CACHE.mkdir(parents=True, exist_ok=True)
    unit.write_text("".join(f'#include "{ROOT / source}"\n' for source in units([f"{folder}/"])))
    return unit


def analyse_threads(folder: str) -> bool:
    """Includes the code that debug levels and instrumented libraries add."""
    warnings = ("-Wall", "-Wextra", "-Wthread-safety", "-Wthread-safety-beta", "-Werror")
    levels = ("-DTS_DEBUG=3", "-DTS_COUNTING=1")
    command = (str(tool("clang++")), "-fsyntax-only", *FLAGS, *levels, *warnings)
    if folder in CLASHING_FOLDERS:
        return all(passes([*command, source]) for source in units([f"{folder}/"]))
    return passes([*command, together(folder)])


def tidy_quickly(folder: str) -> bool:
    # The last two complain about sources combined in one unit.
    but = ("clang-analyzer-*", "bugprone-suspicious-include", "readability-redundant-declaration")
    checks = f"--checks={','.join(f'-{check}' for check in but)}"
    config = f"--config-file={ROOT / '.clang-tidy'}"
    command = (str(tool("clang-tidy")), "--quiet", config, checks, together(folder))
    return passes([*command, "--", *FLAGS, "-DTS_DEBUG=0"])


def tidy(source: str) -> bool:
    flags = (*FLAGS, "-DTS_DEBUG=0")
    compiler = tool("clang++")
    known = None
    if compiler is not None:
        # Includes line markers and comments, because comments may disable a check.
        text = output([compiler, "-E", "-C", *flags, source])
        config = (ROOT / ".clang-tidy").read_text()
        known = CACHE / hashlib.sha256(f"{VERSION}\n{config}\n{text}".encode()).hexdigest()
        if known.exists():
            known.touch()
            return True
    if not passes([str(tool("clang-tidy")), "--quiet", source, "--", *flags]):
        return False
    if known is not None:
        CACHE.mkdir(parents=True, exist_ok=True)
        known.touch()
    return True


def in_parallel(check: Callable[[str], bool], of: Sequence[str], kind: str) -> bool:
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(check, of))
    print(f"{results.count(True)} of {len(results)} {kind} are clean")
    return bool(results) and all(results)


def runs(check: str, option: str) -> bool:
    if check == "format":
        return format_sources(fix=option == "--fix")
    if check == "threads":
        folders = sorted({str(Path(source).parent) for source in units(["src/"])})
        return in_parallel(analyse_threads, folders, "folders")
    if option == "--quick":
        quick = [folder for folder in TIDY_FOLDERS if folder not in CLASHING_FOLDERS]
        return in_parallel(tidy_quickly, quick, "folders")
    return in_parallel(tidy, units(TIDY_FOLDERS), "sources")


def main(arguments: Sequence[str]) -> int:
    check, option = (*arguments, "", "")[:2]
    options = {"format": "--fix", "tidy": "--quick"}
    if check not in TOOLS or arguments[2:] or option not in {"", options.get(check, "")}:
        print(__doc__, file=sys.stderr)
        return 1
    if package := missing(check):
        print(f"{check} needs {package}: sudo apt install {package}", file=sys.stderr)
        return 1
    return 0 if runs(check, option) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
