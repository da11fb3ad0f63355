"""What pages of all kinds of results share: the machine, versions, settings, tables, warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from tsmlab.machine import Machine
from tsmlab.report.page import Code, DataTable, Section, Terms, Warned, table_of
from tsmlab.results import AllocatorInfo, Trouble
from tsmlab.tables import Cell
from tsmlab.wording import quantity_or


def machine_table(machine: Machine, created: str) -> DataTable:
    """The facts that the numbers may depend on; what is not known is left out."""
    limit = machine.cgroup_cpu_limit
    aslr = machine.address_randomisation
    facts: list[tuple[str, str | None]] = [
        ("measured", created),
        ("processor", machine.cpu),
        ("cores", f"{machine.usable_cores} usable of {machine.cores}"),
        ("architecture", machine.architecture),
        ("memory", quantity_or(machine.memory_bytes, "bytes")),
        ("swap", quantity_or(machine.swap_bytes, "bytes")),
        ("system", machine.system),
        ("kernel", machine.kernel),
        ("C library", machine.libc),
        ("transparent huge pages", machine.transparent_hugepages),
        ("frequency governor", machine.governor),
        ("address randomisation", None if aslr is None else str(aslr)),
        ("memory limit (cgroup)", quantity_or(machine.cgroup_memory_limit_bytes, "bytes")),
        ("processor limit (cgroup)", None if limit is None else f"{limit:g} cores' time"),
        ("load at the start", f"{machine.load_at_start:.2f}"),
        ("Python", machine.python),
    ]
    rows = [[name, value] for name, value in facts if value]
    return table_of("Machine", ["", ""], rows, left=2)


def versions_table(allocators: Sequence[AllocatorInfo]) -> DataTable:
    heads = ("allocator", "version", "package", "settings", "SHA-256", "library")
    rows: list[list[str | Cell]] = []
    for info in allocators:
        settings = " ".join(f"{key}={value}" for key, value in info.env.items())
        texts = (info.name, info.version, info.package or "", settings)
        sha256 = Cell((info.sha256 or "")[:16], hint=info.sha256 or "")
        rows.append([*texts, sha256, Cell(info.path or "(not preloaded)", "wrap")])
    return table_of("Allocators, versions and checksums", heads, rows, left=len(heads))


def settings_table(settings: Mapping[str, Any]) -> DataTable:
    rows = [[key.replace("_", " "), _setting(value)] for key, value in settings.items()]
    return table_of("Settings", ["", ""], rows, left=2)


def _setting(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def warned(troubles: Iterable[Trouble]) -> list[Warned]:
    return [
        Warned(f"{capital(each.symptom)}.", f"Likely: {each.cause}. Remedy: {each.remedy}.")
        for each in troubles
    ]


class Measured(Protocol):
    """Whatever was measured on a machine, some time, by some version."""

    @property
    def machine(self) -> Machine: ...
    @property
    def created(self) -> str: ...
    @property
    def tsmalloc_version(self) -> str: ...


def circumstances(
    results: Measured,
    allocators: Sequence[AllocatorInfo],
    settings: Mapping[str, Any],
    terms: str,
    command: str = "",
) -> list[Section]:
    """The end of every page of measurements."""
    machine = machine_table(results.machine, results.created)
    code = [Code(command, "The whole command")] if command else []
    return [
        Section("Environment", [machine, versions_table(allocators)], folded=True),
        Section("Settings", [*code, settings_table(settings)], folded=True),
        reading(terms),
    ]


def reading(terms: str) -> Section:
    """What the words of the page mean: `Word: meaning`, a line each; indented lines go on."""
    lines = terms.strip().replace("\n  ", " ").splitlines()
    words = [(word, meaning) for word, _, meaning in (line.partition(": ") for line in lines)]
    return Section("How to read this", [Terms(words)], folded=True, anchor="reading")


def footer(results: Measured) -> str:
    return (
        f"Measured {results.created}; written by tsmalloc {results.tsmalloc_version}. "
        "This file stands alone."
    )


def capital(text: str) -> str:
    """The first letter as a capital, the rest as it is."""
    return text[:1].upper() + text[1:]
