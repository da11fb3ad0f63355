#!/usr/bin/env python3
"""Checks that Markdown links within the repository lead to a file, and to a heading in it.

Documents move, and otherwise readers find dead links first. Also checks documents that sources,
tests and the lab name in plain text (docs/NAME.md), since users are sent there. Uses no network.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")
NAMED = re.compile(r"(?<![\w/.-])(?:docs|results)/(?!NAME|DATE|adr/NNNN)[\w./-]+\.(?:md|svg)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    found: set[str] = set()
    blocks = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    text = blocks.sub("", page.read_text(encoding="utf-8"))
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def complaints(name: str) -> list[str]:
    path = ROOT / name
    text = path.read_text(encoding="utf-8", errors="replace")
    found = [
        f"{name}: no such file: {named}"
        for named in NAMED.findall(text)
        if not (ROOT / named).exists()
    ]
    for link in LINK.findall(CODE.sub("", text)) if path.suffix == ".md" else ():
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        if not file.exists():
            found.append(f"{name}: no such file: {link}")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            found.append(f"{name}: no such heading: {link}")
    return found


def main() -> bool:
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    skipped = (".tstrace", ".svg", "CHANGELOG.md")
    names = [n for n in listed.splitlines() if not n.endswith(skipped) and (ROOT / n).is_file()]
    found = [complaint for name in names for complaint in complaints(name)]
    sys.stderr.writelines(f"{complaint}\n" for complaint in found)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
