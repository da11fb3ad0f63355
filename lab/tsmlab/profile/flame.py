"""A flame graph as a page that stands alone.

Why: where the bytes are is seen at once in a picture, and a page can be mailed.
Refuses to: load anything. Its one script draws, zooms and searches; without it there is the table.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tsmlab import __version__
from tsmlab.profile import text
from tsmlab.profile.estimates import Estimate
from tsmlab.profile.model import WORDS, Frame, Profile, Type
from tsmlab.profile.sites import Sites, Stacks, by_stack, gather
from tsmlab.wording import counted, quantity, share

SCRIPT = Path(__file__).with_name("flame.js")
# Larger ones are drawn; what is smaller goes into one box beside them.
MOST_NODES = 6_000
TABLE_ROWS = 25
OTHERS = "(smaller ones)"
# Names are cut beyond this: templates of C++ reach thousands of letters.
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
        names = (frame.function[:LONGEST_NAME], frame.place, frame.module)
        numbers = [texts.setdefault(text, len(texts)) for text in names]
        total, objects = round(node.estimate.total), round(node.objects.total)
        own = [parent, *numbers, total, *low_and_high, objects, node.estimate.samples]
        nodes.append(own)
        children = sorted(node.children, key=lambda child: child.estimate.total)
        pending += [(child, len(nodes) - 1) for child in children]
    return {"nodes": nodes, "texts": list(texts)}


def page(profile: Profile, stacks: Stacks, of: Type, notes: list[str]) -> str:
    """The page."""
    # Imported here: it takes a second to load, and no other verb needs it.
    from tsmlab.report import html  # noqa: PLC0415
    from tsmlab.report.pages.common import Tile  # noqa: PLC0415

    name, *circumstances = text.title(profile)
    root = tree(profile, stacks, of)
    prune(root)
    data = _packed(root)
    script = SCRIPT.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    sites = gather(profile, stacks, "line", of)
    kind = WORDS[of]
    total = sites.total
    low, high = total.interval()
    biggest = sites.sites[0] if sites.sites else None
    tiles = [
        Tile(
            f"bytes {kind}",
            quantity(total.total, "bytes"),
            f"{quantity(low, 'bytes')} to {quantity(high, 'bytes')}, 95 %",
        ),
        Tile(
            f"objects {kind}",
            quantity(sites.objects.total, "count"),
            f"{counted(total.samples, 'sample')} of them",
        ),
    ]
    if missing := text.uncovered(profile):
        tiles.append(
            Tile("not in it", quantity(missing, "bytes"), "in use, from before sampling began")
        )
    if biggest is not None and total.total:
        tiles.append(
            Tile(
                "the largest site",
                share(biggest.flat.total / total.total),
                text.fitted(biggest.frame, 60),
            )
        )
    return html.from_template(
        "flame.html",
        script=script,
        script_digest=digest,
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        page={
            "title": f"{name}: heap profile",
            "kind": "heap profile",
            "contents": [],
            "footer": f"Written by tsmalloc {__version__}. It stands alone and loads nothing.",
            "kicker": ", ".join((f"Heap profile, {kind} bytes", *circumstances)),
            "heading": name,
            "tiles": tiles,
            "table": _table(sites),
            "notes": [*text.coverage(profile), *text.sampling_notes(profile, notes)],
        },
    )


def _table(sites: Sites) -> Any:
    from tsmlab.report.tables import Cell, Column, DataTable  # noqa: PLC0415

    whole = sites.total.total or 1.0
    rows = [
        [
            Cell(quantity(site.flat.total, "bytes")),
            Cell(text.error(site.flat)),
            Cell(share(site.flat.total / whole)),
            Cell(f"{site.frame.function[:LONGEST_NAME]} {text.short_place(site.frame)}", "wrap"),
        ]
        for site in sites.sites[:TABLE_ROWS]
        if site.flat.samples
    ]
    columns = [Column("bytes"), Column("± 95 %"), Column("share"), Column("site", left=True)]
    return DataTable("The lines that hold most", columns, rows, headed=False)
