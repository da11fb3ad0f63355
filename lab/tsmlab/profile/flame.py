"""A flame graph as a page like that of a report. Without scripts it has a table of lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template

from tsmlab.profile import text
from tsmlab.profile.estimates import Estimate
from tsmlab.profile.model import WORDS, Frame, Profile, Type
from tsmlab.profile.names import shortened
from tsmlab.profile.sites import Stacks, by_stack, gather
from tsmlab.report import html
from tsmlab.report.page import Page, Section, table_of
from tsmlab.tables import Cell, Column
from tsmlab.wording import quantity, share

# As a share of all bytes: anything smaller is merged into one box next to its larger siblings.
SMALLEST = 1 / 5000
OTHERS = Frame("(smaller ones)")
TABLE_ROWS = 25
# Names of C++ templates can have thousands of characters.
LONGEST_NAME = 160


@dataclass(slots=True)
class Node:
    frame: Frame
    parent: int
    bytes: Estimate = field(default_factory=Estimate)
    objects: Estimate = field(default_factory=Estimate)


def tree(profile: Profile, stacks: Stacks, of: Type) -> list[Node]:
    """All stacks, beginning with the outermost frame: parents come before their children."""
    nodes = [Node(Frame("all"), -1)]
    numbers: dict[tuple[int, str, str], int] = {}
    for totals in by_stack(profile, stacks, of):
        at = 0
        for frame in (None, *reversed(totals.frames)):
            if frame is not None:
                key = at, frame.function, frame.module
                at = numbers.setdefault(key, len(nodes))
                if at == len(nodes):
                    nodes.append(Node(frame, key[0]))
            nodes[at].bytes.include(totals.bytes)
            nodes[at].objects.include(totals.objects)
    return nodes


def without_small_ones(nodes: list[Node]) -> list[Node]:
    """Merges the small children of a node into one, which has no children."""
    threshold = SMALLEST * nodes[0].bytes.total
    kept: list[Node] = []
    places: dict[int, int] = {-1: -1}  # of the kept nodes
    others: dict[int, Node] = {}  # by the parent's place
    for number, node in enumerate(nodes):
        if (parent := places.get(node.parent)) is None:
            continue
        if number == 0 or node.bytes.total >= threshold:
            places[number] = len(kept)
            kept.append(Node(node.frame, parent, node.bytes, node.objects))
            continue
        if parent not in others:
            others[parent] = Node(OTHERS, parent)
            kept.append(others[parent])
        others[parent].bytes.include(node.bytes)
        others[parent].objects.include(node.objects)
    return kept


def _packed(nodes: Iterable[Node]) -> str:
    """The tree as JSON: lists of numbers, and each string once."""
    texts: dict[str, int] = {}
    rows = []
    for node in nodes:
        words = (shortened(node.frame, LONGEST_NAME), node.frame.place, node.frame.module)
        numbers = [texts.setdefault(word, len(texts)) for word in words]
        bounds = map(round, (node.bytes.total, *node.bytes.interval(), node.objects.total))
        rows.append([node.parent, *numbers, *bounds, node.bytes.samples])
    found = json.dumps({"nodes": rows, "texts": list(texts)}, separators=(",", ":"))
    return found.replace("<", "\\u003c")


def page(profile: Profile, stacks: Stacks, of: Type, notes: Sequence[str]) -> str:
    sites = gather(profile, stacks, "line", of)
    whole = sites.total.total or 1.0
    rows = [
        (
            quantity(site.flat.total, "bytes"),
            text.error(site.flat),
            share(site.flat.total / whole),
            Cell(f"{shortened(site.frame, LONGEST_NAME)} {text.short_place(site.frame)}", "wrap"),
        )
        for site in sites.sites[:TABLE_ROWS]
        if site.flat.samples
    ]
    table = table_of(
        "Lines that hold the most memory",
        ("bytes", "± 95%", "share", Column("site", left=True)),
        rows,
        left=0,
    )
    folder = Path(__file__).parent
    graph = Template((folder / "flame.html").read_text(encoding="utf-8")).substitute(
        data=_packed(without_small_ones(tree(profile, stacks, of)))
    )
    answer, *also = text.coverage(profile) + text.summary(profile, sites, of)
    table = replace(table, notes=text.sampling_notes(profile, notes))
    return html.render(
        Page(
            kind="heap profile",
            title=f"{text.title(profile)}: {WORDS[of]} bytes",
            answer=answer,
            also=also,
            sections=[Section("Flame graph", [graph, table])],
            script=(folder / "flame.js").read_text(encoding="utf-8"),
        )
    )
