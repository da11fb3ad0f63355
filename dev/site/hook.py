"""What MkDocs does for this repository beyond rendering docs/.

Pages link to files outside of docs/. Markdown files there (results, READMEs) become pages under
project/, and their pictures come along. Other files are linked on the forge that TSMALLOC_FORGE
names, such as https://github.com/OWNER/tsmalloc/blob/main; without it, only their names are shown.
project/api.md is the public headers, section by section.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
FORGE = os.environ.get("TSMALLOC_FORGE", "").rstrip("/")
OUTSIDE = "project/"  # where pages from outside of docs/ are
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:\[[^]]*\]|[^]])*)\]\((?P<to>[^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
HEADERS = ("tsmalloc.h", "arena.h", "memory_resource.hpp", "prefixed.h", "classic.h")


def tracked() -> set[str]:
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    return set(listed.split("\0"))


FILES = tracked()


def page_of(path: str) -> str | None:
    """Where the site has a file of the repository; None if it does not."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in FILES and path.endswith((".md", ".svg", ".png")):
        return OUTSIDE + path
    return None


def repository_path(page: str) -> str:
    return page.removeprefix(OUTSIDE) if page.startswith(OUTSIDE) else f"docs/{page}"


def api() -> str:
    """The public headers as one page: each declaration with its comment."""
    parts = [
        "# C API\n",
        "The public headers, as they are. [Examples, arenas and scopes](../embedding.md).\n",
    ]
    for name in HEADERS:
        text = (ROOT / "include" / "tsmalloc" / name).read_text(encoding="utf-8")
        parts.append(f"## tsmalloc/{name}\n\n```c\n{text.rstrip()}\n```\n")
    return "\n".join(parts)


def on_files(files: Files, config: Any) -> Files:
    for path in sorted(FILES):
        if path.startswith(("docs/", ".")) or (page := page_of(path)) is None:
            continue
        if path.startswith("results/") or not path.endswith((".svg", ".png")):
            files.append(File.generated(config, page, content=(ROOT / path).read_bytes()))
    files.append(File.generated(config, OUTSIDE + "api.md", content=api()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    here = page.file.src_uri
    folder = PurePosixPath(repository_path(here)).parent

    def relinked(link: re.Match[str]) -> str:
        target, hash_, anchor = link["to"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        path = posixpath.normpath(str(folder / target))
        goal = page_of(path)
        if goal is None and f"{path}/README.md" in FILES:
            goal = page_of(f"{path}/README.md")
        if goal is not None:
            to = posixpath.relpath(goal, posixpath.dirname(here) or ".")
            return f"{link['image']}[{link['text']}]({to}{hash_}{anchor})"
        if FORGE:
            return f"[{link['text']}]({FORGE}/{path})"
        return link["text"]

    pieces = FENCE.split(markdown)
    return "".join(p if p.startswith("```") else LINK.sub(relinked, p) for p in pieces)
