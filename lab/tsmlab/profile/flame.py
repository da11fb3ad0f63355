"""A flame graph as a page that stands alone: it loads nothing.

Its one script draws, zooms and searches; without it there is the table.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tsmlab.profile import text
from tsmlab.profile.estimates import Estimate
from tsmlab.profile.model import WORDS, Frame, Profile, Type
from tsmlab.profile.names import shortened
from tsmlab.profile.sites import Sites, Stacks, by_stack, gather
from tsmlab.wording import counted, quantity, share

SCRIPT = Path(__file__).with_name("flame.js")
# Larger ones are drawn; what is smaller goes into one box beside them.
MOST_NODES = 6_000
TABLE_ROWS = 25
OTHERS = "(smaller ones)"
# Names are shortened to this: templates of C++ reach thousands of letters.
LONGEST_NAME = 300


@dataclass(slots=True)
class Node:
    """A function called from its parent."""

    frame: Frame
    estimate: Estimate = field(default_factory=Estimate)
    objects: Estimate = field(default_factory=Estimate)
    children: list[Node] = field(default_factory=list)


def tree(profile: Profile, stacks: Stacks, of: Type) -> Node:
    """All stacks, from the outermost frame on."""
    root = Node(Frame("all"))
    nodes = [root]  # parents before their children
    parents = [-1]
    numbers: dict[tuple[int, str, str], int] = {}
    for held in by_stack(profile, stacks, of):
        at = 0
        for frame in reversed(held.frames):
            key = at, frame.function, frame.module
            child = numbers.get(key)
            if child is None:
                child = numbers[key] = len(nodes)
                nodes.append(Node(frame))
                parents.append(at)
                nodes[at].children.append(nodes[child])
            at = child
        nodes[at].estimate.include(held.bytes)
        nodes[at].objects.include(held.objects)
    for node, parent in zip(reversed(nodes), reversed(parents), strict=True):
        if parent >= 0:
            nodes[parent].estimate.include(node.estimate)
            nodes[parent].objects.include(node.objects)
    return root


def prune(root: Node, most: int = MOST_NODES) -> None:
    """Keeps the largest nodes; the others of each parent become one."""
    kept = {id(root)}
    heap: list[tuple[float, int, Node]] = []

    def offer(node: Node) -> None:
        for child in node.children:
            heapq.heappush(heap, (-child.estimate.total, id(child), child))

    offer(root)
    while heap and len(kept) < most:
        node = heapq.heappop(heap)[2]
        kept.add(id(node))
        offer(node)
    pending = [root]
    while pending:
        node = pending.pop()
        small = [child for child in node.children if id(child) not in kept]
        if small:
            rest = Node(Frame(OTHERS))
            for gone in small:
                rest.estimate.include(gone.estimate)
                rest.objects.include(gone.objects)
            node.children = [*(child for child in node.children if id(child) in kept), rest]
        pending += node.children


def _packed(root: Node) -> dict[str, Any]:
    """The tree as lists of numbers, with each text once. Each node: parent, name, place, module,
    bytes, low, high, objects, samples. Parents come before their children, and larger children
    first."""
    texts: dict[str, int] = {}
    nodes: list[list[int]] = []
    pending = [(root, -1)]
    while pending:
        node, parent = pending.pop()
        frame, low_and_high = node.frame, map(round, node.estimate.interval())
        names = (shortened(frame.function, LONGEST_NAME), frame.place, frame.module)
        numbers = [texts.setdefault(text, len(texts)) for text in names]
        total, objects = round(node.estimate.total), round(node.objects.total)
        own = [parent, *numbers, total, *low_and_high, objects, node.estimate.samples]
        nodes.append(own)
        children = sorted(node.children, key=lambda child: child.estimate.total)
        pending += [(child, len(nodes) - 1) for child in children]
    return {"nodes": nodes, "texts": list(texts)}


def page(profile: Profile, stacks: Stacks, of: Type, notes: list[str]) -> str:
    """The page."""
    # Imported here: no other verb of profile needs it.
    from tsmlab.report import Page, Section, Text, Widget, html  # noqa: PLC0415

    name, *circumstances = text.title(profile)
    root = tree(profile, stacks, of)
    prune(root)
    sites = gather(profile, stacks, "line", of)
    markup, style = (SCRIPT.with_suffix(end).read_text("utf-8") for end in (".html", ".css"))
    widget = Widget("data", markup, style, SCRIPT.read_text("utf-8"), _packed(root))
    lines = [
        Text(line, note=True)
        for line in (*text.coverage(profile), *text.sampling_notes(profile, notes))
    ]
    return html.render(
        Page(
            kind="heap profile",
            title=name,
            window_title=f"{name}: heap profile",
            question=", ".join((f"Heap profile, {WORDS[of]} bytes", *circumstances)),
            answer=_answer(sites, of),
            facts=list(_facts(profile, sites, of)),
            sections=[
                Section("Flame graph", [widget], anchor="flame", wide=True),
                Section("Lines", [_table(sites), *lines]),
            ],
        )
    )  # fmt: skip


def _answer(sites: Sites, of: Type) -> str:
    """Where most of it comes from."""
    total = sites.total.total
    if not sites.sites or not total:
        return f"No {WORDS[of]} bytes were sampled."
    first = sites.sites[0]
    held = share(first.flat.total / total)
    return f"{text.fitted(first.frame, 100)} holds most: {held} of {quantity(total, 'bytes')}."


def _facts(profile: Profile, sites: Sites, of: Type) -> Iterator[tuple[str, str]]:
    total = sites.total
    low, high = (quantity(each, "bytes") for each in total.interval())
    whole = quantity(total.total, "bytes")
    yield f"Bytes {WORDS[of]}", f"{whole} (95% interval: {low} to {high})"
    samples = counted(total.samples, "sample")
    objects = quantity(sites.objects.total, "count")
    yield f"Objects {WORDS[of]}", f"{objects}, from {samples}"
    if missing := text.uncovered(profile):
        yield "Not in it", f"{quantity(missing, 'bytes')} in use, from before sampling began"


def _table(sites: Sites) -> Any:
    from tsmlab.report.tables import Cell, Column, DataTable  # noqa: PLC0415

    whole = sites.total.total or 1.0
    rows = [
        [
            Cell(quantity(site.flat.total, "bytes")),
            Cell(text.error(site.flat)),
            Cell(share(site.flat.total / whole)),
            Cell(
                f"{shortened(site.frame.function, LONGEST_NAME)} {text.short_place(site.frame)}",
                "wrap",
            ),
        ]
        for site in sites.sites[:TABLE_ROWS]
        if site.flat.samples
    ]
    columns = [Column("bytes"), Column("± 95 %"), Column("share"), Column("site", left=True)]
    return DataTable("The lines that hold most", columns, rows, headed=False)
