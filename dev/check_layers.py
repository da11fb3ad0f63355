#!/usr/bin/env python3
"""Checks the includes of src/: no folder includes one to its right, and no files form a cycle.

    base <- os <- classic                       <- libc <- api    (right depends on left)
               <- secure                        <-
               <- unwind <- features <- engine  <-
               <- core   <-

The core includes no feature. No feature includes another, except the pairs in BETWEEN_FEATURES.

    check_layers.py [SOURCE]

Files of one name (foo.h, foo.cpp) are one unit; a cycle of units is reported with the lines that
include. Only two places may have preprocessor conditions, and no file more than 600 lines. The last
line of output names the longest file.
"""

from __future__ import annotations

import graphlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"

# What each folder may include besides itself and the system's headers.
MAY_INCLUDE = {
    "base": set(),
    "os": {"base"},
    "unwind": {"base", "os"},
    "classic": {"base", "os"},
    "secure": {"base", "os"},
    "core": {"base", "os"},
    "features": {"base", "os", "unwind", "core"},
    "engine": {"base", "os", "core", "features"},
    "libc": {"base", "os", "classic", "core", "engine", "secure"},
    "api": {"base", "os", "classic", "libc"},
}
# Features that still use another one: code that both need should move to the core or to a third.
BETWEEN_FEATURES = {
    ("background", "arenas"),
    ("background", "limits"),
    ("background", "sparse"),
    ("limits", "hugepages"),
    ("limits", "profile"),
    ("sparse", "hugepages"),
}
# Only the files that implement the public headers include them.
MAY_INCLUDE_PUBLIC = {
    "api",
    "libc/c_symbols.inc",
    "libc/prefixed.inc",
    "libc/stats.cpp",
}
MAY_BRANCH = {"base/platform.h", "os", "unwind"}
MAX_LINES = 600

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
BRANCH = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b")


@dataclass(frozen=True)
class Source:
    """A file, by its path inside src/."""

    name: str
    lines: list[str]

    @property
    def folder(self) -> str:
        return self.name.split("/", 1)[0]

    def includes(self) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(self.lines, start=1):
            if match := INCLUDE.match(line):
                yield number, match.group(1)


# ---- layers ----


def allowed(source: Source, rules: set[str]) -> bool:
    return source.name in rules or source.folder in rules


def complaints(source: Source) -> list[str]:
    folder = source.folder
    if folder not in MAY_INCLUDE:
        return [f"src/{source.name}: the directory {folder} is in no layer of {__file__}"]
    found = []
    for number, target in source.includes():
        where = f"src/{source.name}:{number}"
        target_folder = target.split("/", 1)[0]
        if target_folder == "tsmalloc":
            if not allowed(source, MAY_INCLUDE_PUBLIC):
                found.append(f"{where}: the public header belongs to the outermost files only")
        elif "/" not in target:
            found.append(f'{where}: include "{folder}/{target}", with its directory')
        elif target_folder != folder and target_folder not in MAY_INCLUDE[folder]:
            found.append(f"{where}: {folder} must not include {target_folder}")
        elif folder == target_folder == "features":
            one, other = source.name.split("/")[1], target.split("/")[1]
            if one != other and (one, other) not in BETWEEN_FEATURES:
                found.append(f"{where}: the feature {one} must not include the feature {other}")
    for number, line in enumerate(source.lines, start=1):
        if BRANCH.match(line) and not allowed(source, MAY_BRANCH):
            found.append(
                f"src/{source.name}:{number}: preprocessor conditions belong to base/platform.h, "
                "os/ and unwind/; use if constexpr"
            )
    if len(source.lines) > MAX_LINES:
        found.append(
            f"src/{source.name}: {len(source.lines)} lines, more than {MAX_LINES}; split the file"
        )
    return found


# ---- cycles of units ----


def unit_of(name: str) -> str:
    """engine/bins for engine/bins.h."""
    return name.rsplit(".", 1)[0]


def cycle_complaints(sources: list[Source]) -> list[str]:
    """One cycle of includes between units, if there is any."""
    # The includes of a unit, each with its line: "src/engine/bins.cpp:5".
    graph: dict[str, dict[str, str]] = {unit_of(source.name): {} for source in sources}
    for source in sources:
        unit = unit_of(source.name)
        for number, target in source.includes():
            if unit_of(target) in graph and unit_of(target) != unit:
                graph[unit].setdefault(unit_of(target), f"src/{source.name}:{number}")
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1][::-1]  # each unit includes the next
        steps = [f"\n  {graph[one][other]} includes {other}" for one, other in pairwise(cycle)]
        return [f"src/: a cycle, {' -> '.join(cycle)}" + "".join(steps)]
    return []


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else SOURCE
    sources = [
        Source(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8").splitlines())
        for path in sorted(root.rglob("*"))
        if path.suffix in {".h", ".cpp", ".inc"}
    ]
    if not sources:
        print(f"no sources in {root}: is src/ where it should be?", file=sys.stderr)
        return 1
    found = [complaint for source in sources for complaint in complaints(source)]
    found += cycle_complaints(sources)
    for complaint in found:
        print(complaint, file=sys.stderr)
    print(f"{len(sources)} files, {len(found)} violations of the layers")
    file = max(sources, key=lambda source: len(source.lines))
    print(f"longest file: src/{file.name}, {len(file.lines)} lines")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
