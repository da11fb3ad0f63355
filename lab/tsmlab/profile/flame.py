"""A flame graph as one page of HTML that loads nothing. Without scripts it has a table of lines."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template

from tsmlab import __version__
from tsmlab.profile import text
from tsmlab.profile.estimates import Estimate
from tsmlab.profile.model import WORDS, Frame, Profile, Type
from tsmlab.profile.names import shortened
from tsmlab.profile.sites import Stacks, by_stack, gather
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
    script = Path(__file__).with_name("flame.js").read_text(encoding="utf-8")
    sites = gather(profile, stacks, "line", of)
    whole = sites.total.total or 1.0
    rows = (
        (
            quantity(site.flat.total, "bytes"),
            text.error(site.flat),
            share(site.flat.total / whole),
            f"{shortened(site.frame, LONGEST_NAME)} {text.short_place(site.frame)}",
        )
        for site in sites.sites[:TABLE_ROWS]
        if site.flat.samples
    )
    title = f"{text.title(profile)}: {WORDS[of]} bytes"
    return Template(Path(__file__).with_name("flame.html").read_text(encoding="utf-8")).substitute(
        title=_safe(title),
        summary=_paragraphs(text.coverage(profile) + text.summary(profile, sites, of), ""),
        data=_packed(without_small_ones(tree(profile, stacks, of))),
        rows="\n".join(f"<tr>{''.join(f'<td>{_safe(cell)}' for cell in row)}" for row in rows),
        notes=_paragraphs(text.sampling_notes(profile, notes), ' class="note"'),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
    )


def _safe(words: str) -> str:
    return escape(words).encode(errors="backslashreplace").decode()


def _paragraphs(lines: Iterable[str], attributes: str) -> str:
    return "\n".join(f"<p{attributes}>{_safe(line)}</p>" for line in lines)
