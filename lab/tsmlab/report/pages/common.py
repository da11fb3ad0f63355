"""Shared by the pages of all kinds of results: a report's parts, its environment, its raw data.

Why: machine, versions and data are shown the same way whatever was measured.
"""

from __future__ import annotations

import base64
import copy
import json
import lzma
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tsmlab import records
from tsmlab.machine import Machine
from tsmlab.report.figures.canvas import Figure
from tsmlab.report.tables import Cell, Column, DataTable, of_texts
from tsmlab.results import AllocatorInfo
from tsmlab.tables import Column as TextColumn
from tsmlab.wording import quantity

Amount = Literal["all", "runs", "none"]


# How much of the raw data a page holds: less where it would be too large for its limit.
AMOUNTS: tuple[Amount, ...] = ("all", "runs", "none")


@dataclass(frozen=True)
class Tile:
    """A number in large type, with what it is above and what qualifies it below."""

    label: str
    number: str
    note: str
    mark: str = ""


@dataclass(frozen=True)
class Report:
    """One result's report: a page's template and contents, and the files beside it.

    page: the template's variables. data: the results as plain values, to be embedded. thin: drops
    all but the runs from a copy of them."""

    name: str
    title: str
    summary: str
    template: str
    page: Mapping[str, Any]
    figures: Sequence[Figure]
    markdown: str
    csv: str
    data: dict[str, Any]
    thin: Callable[[dict[str, Any]], None]

    def raw(self, amount: Amount) -> RawData:
        if amount == "none":
            note = (
                "The results are too large to be embedded here: they are in the file of results "
                "that this report was made from; every run is in runs.csv beside this page."
            )
            return RawData(note, "", "", "")
        data, note = self.data, "Every run with all that was measured, as JSON, compressed by xz."
        if amount == "runs":
            data = copy.deepcopy(data)
            self.thin(data)
            note = (
                "Every run, as JSON compressed by xz, without what is too large for this page: "
                "curves of memory over time. The file that it was made from has them."
            )
        # Whatever repeats lies far apart, where gzip does not see it.
        packed = lzma.compress(
            json.dumps(records.with_checksum(data), separators=(",", ":")).encode(),
            preset=9 | lzma.PRESET_EXTREME,
        )
        href = f"data:application/x-xz;base64,{base64.b64encode(packed).decode()}"
        return RawData(note, href, f"{self.name}.json.xz", f"{quantity(len(packed), 'bytes')}iB")


@dataclass(frozen=True)
class RawData:
    """A link that holds the data itself."""

    note: str
    href: str
    file: str
    size: str


def machine_table(machine: Machine, created: str) -> DataTable:
    """The facts that the numbers may depend on; what is not known is left out."""
    limit = machine.cgroup_cpu_limit
    aslr = machine.address_randomisation
    facts: list[tuple[str, str | None]] = [
        ("measured", created),
        ("processor", machine.cpu),
        ("cores", f"{machine.usable_cores} usable of {machine.cores}"),
        ("architecture", machine.architecture),
        ("memory", _bytes(machine.memory_bytes)),
        ("swap", _bytes(machine.swap_bytes)),
        ("system", machine.system),
        ("kernel", machine.kernel),
        ("C library", machine.libc),
        ("transparent huge pages", machine.transparent_hugepages),
        ("frequency governor", machine.governor),
        ("address randomisation", None if aslr is None else str(aslr)),
        ("memory limit (cgroup)", _bytes(machine.cgroup_memory_limit_bytes)),
        ("processor limit (cgroup)", None if limit is None else f"{limit:g} cores' time"),
        ("load at the start", f"{machine.load_at_start:.2f}"),
        ("Python", machine.python),
    ]
    rows = [[name, value] for name, value in facts if value is not None]
    return of_texts("Machine", ["", ""], rows, left=2)


def versions_table(allocators: Sequence[AllocatorInfo]) -> DataTable:
    """Each library, so that it can be found again."""
    columns = [
        Column(name, left=True)
        for name in ("allocator", "version", "package", "settings", "SHA-256", "library")
    ]
    rows = []
    for info in allocators:
        settings = " ".join(f"{key}={value}" for key, value in info.env.items())
        rows.append(
            [
                Cell(info.name),
                Cell(info.version),
                Cell(info.package or ""),
                Cell(settings),
                Cell((info.sha256 or "")[:16], hint=info.sha256 or ""),
                Cell(info.path or "(not preloaded)", "pre"),
            ]
        )
    return DataTable("Allocators, versions and checksums", columns, rows)


def settings_table(settings: Mapping[str, Any]) -> DataTable:
    """The options in effect, by their names in the file of results."""
    rows = [[key.replace("_", " "), _setting(value)] for key, value in settings.items()]
    return of_texts("Settings", ["", ""], rows, left=2)


def _setting(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


# The terminal's colours, as a page's marks.
MARKS = {"green": "better", "red": "worse", "yellow": "open"}


def data_table(
    caption: str, columns: Sequence[TextColumn], headed: bool = True, marks: Sequence[str] = ()
) -> DataTable:
    """A terminal's table on the page."""
    rows = zip(*(column.cells for column in columns), strict=True)
    return DataTable(
        caption,
        [Column(column.header, column.left) for column in columns],
        [[_cell(cell.text, cell.style) for cell in row] for row in rows],
        headed=headed,
        marks=marks,
    )


def _cell(text: str, style: str) -> Cell:
    return Cell(text, MARKS.get(style, "muted" if text == "reference" else ""))


LAST_CONTENTS = (
    ("environment", "Environment"),
    ("settings", "Settings"),
    ("reading", "How to read this"),
    ("raw", "Raw data"),
)


class Measured(Protocol):
    """Whatever was measured on a machine, some time, by some version."""

    @property
    def machine(self) -> Machine: ...
    @property
    def created(self) -> str: ...
    @property
    def tsmalloc_version(self) -> str: ...


def circumstances(
    results: Measured, allocators: Sequence[AllocatorInfo], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The end of every page of measurements."""
    return {
        "machine": machine_table(results.machine, results.created),
        "versions": versions_table(allocators),
        "command": "",
        "settings": settings_table(settings),
        "footer": f"Measured {results.created}; written by tsmalloc {results.tsmalloc_version}. "
        "This file stands alone: it loads nothing, and needs no script.",
    }


def capital(text: str) -> str:
    """The first letter as a capital, the rest as it is."""
    return text[:1].upper() + text[1:]


def _bytes(value: int | None) -> str | None:
    return None if value is None else quantity(value, "bytes")
