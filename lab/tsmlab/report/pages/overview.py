"""The page that leads to the reports of several results.

Why: one folder may hold many reports, and somebody who opens it must find them.
Refuses to: compare them: they may come from different machines and programs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tsmlab import __version__
from tsmlab.report.html import from_template


@dataclass(frozen=True)
class Entry:
    """A report: where it is, and what it says in short."""

    href: str
    kind: str
    title: str
    summary: str


def places(names: Sequence[str]) -> list[str]:
    """A folder's name for each, all different."""
    taken: set[str] = set()
    found = []
    for name in names:
        number, place = 1, name
        while place in taken:
            number += 1
            place = f"{name}-{number}"
        taken.add(place)
        found.append(place)
    return found


def page(entries: Sequence[Entry]) -> str:
    variables = {
        "title": f"{len(entries)} reports",
        "kind": "reports",
        "entries": entries,
        "contents": [],
        "footer": f"Written by tsmalloc {__version__}. Each report is a file that stands alone.",
    }
    return from_template("overview.html", page=variables)
