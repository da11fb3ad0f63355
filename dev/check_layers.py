#!/usr/bin/env python3
"""Checks the include rule of src/: a folder includes itself and those before it.

    base <- os <- classic <- override <- api      (right depends on left)
               <- engine  <-
               <- secure  <-

Only two places may have preprocessor conditions. It refuses to judge anything else about the code.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"

# What each folder may include beside itself and the system's headers.
MAY_INCLUDE = {
    "base": set(),
    "os": {"base"},
    "classic": {"base", "os"},
    "engine": {"base", "os"},
    "secure": {"base", "os"},
    "override": {"base", "os", "classic", "engine", "secure"},
    "api": {"base", "os", "classic", "override"},
}
# The public headers are for those that implement them.
MAY_INCLUDE_PUBLIC = {"api", "override/c_symbols.inc"}
MAY_BRANCH = {"base/platform.h", "os"}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
BRANCH = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b")


def allowed(relative: str, rules: set[str]) -> bool:
    return relative in rules or relative.split("/", 1)[0] in rules


def complaints(path: Path) -> list[str]:
    relative = path.relative_to(SOURCE).as_posix()
    folder = relative.split("/", 1)[0]
    if folder not in MAY_INCLUDE:
        return [
            (
                f"src/{relative}: folder {folder} has no place in the layers; "
                f"give it one in {Path(__file__).name}"
            )
        ]
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        where = f"src/{relative}:{number}"
        if match := INCLUDE.match(line):
            target = match.group(1)
            target_folder = target.split("/", 1)[0]
            if target_folder == "tsmalloc":
                if not allowed(relative, MAY_INCLUDE_PUBLIC):
                    found.append(f"{where}: the public header belongs to the outermost files only")
            elif "/" not in target:
                found.append(f'{where}: include "{folder}/{target}", with its folder')
            elif target_folder != folder and target_folder not in MAY_INCLUDE[folder]:
                found.append(f"{where}: {folder} must not include {target_folder}")
        elif BRANCH.match(line) and not allowed(relative, MAY_BRANCH):
            found.append(
                f"{where}: preprocessor conditions belong to base/platform.h and os/; "
                "use if constexpr"
            )
    return found


def main() -> int:
    files = sorted(p for p in SOURCE.rglob("*") if p.suffix in {".h", ".cpp", ".inc"})
    if not files:
        print("no sources found: is src/ where it should be?", file=sys.stderr)
        return 1
    found = [complaint for path in files for complaint in complaints(path)]
    for complaint in found:
        print(complaint, file=sys.stderr)
    print(f"{len(files)} files, {len(found)} violations of the layers")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
