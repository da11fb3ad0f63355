"""Allocation sites: the rows of a profile, summed by function, line or stack."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from tsmlab.profile.estimates import Estimate
from tsmlab.profile.model import Frame, Profile, Row, Type
from tsmlab.profile.symbols import Symbols

GroupBy = Literal["function", "line", "stack"]
Key = tuple[Any, ...]
CUT = Frame("[stack truncated here]")
NOWHERE = Frame("[no stack]")
# Names that many functions share.
_NAMELESS = re.compile(r"operator\(\)|\{\{?closure|<lambda|\{lambda")


class Stacks:
    """The frames of each row's stack, innermost first, without functions that only pass requests
    on.

    Unless stacks are `whole`, calls in the languages' libraries are left out, too: a vector's
    memory belongs to its caller. Of a stack in libraries only, the innermost frame remains.
    """

    def __init__(self, profile: Profile, symbols: Symbols, whole: bool = False) -> None:
        self._symbols = symbols
        self._whole = whole
        self._drops = cache(lambda name: profile.drops.fullmatch(name) is not None)
        self._frames = cache(self._frames_of)

    def of(self, row: Row) -> tuple[Frame, ...]:
        return self._frames(row.stack, row.cut)

    def _frames_of(self, stack: tuple[int, ...], cut: bool) -> tuple[Frame, ...]:
        frames = [frame for each in stack for frame in self._symbols.frames[each]]
        # Prunes as pprof does: the outermost frame that matches, with everything it calls.
        dropped = (at for at, frame in enumerate(frames) if self._drops(frame.function))
        kept = frames[max(dropped, default=-1) + 1 :] or frames
        if not self._whole:
            own = [frame for frame in kept if not frame.is_of_library]
            kept = list(map(_without_foreign_line, own)) or kept[:1]
        return (*kept, *([CUT] if cut else [])) or (NOWHERE,)


def _without_foreign_line(frame: Frame) -> Frame:
    """A function with the line of another one that was merged into it would be misleading."""
    return replace(frame, file="", line=0) if frame.is_in_library_file else frame


def key_of(frame: Frame, by: GroupBy) -> Key:
    if by == "line" or _NAMELESS.search(frame.function):
        return frame.function, frame.file, frame.line, frame.module
    return frame.function, frame.module


@dataclass
class Ages:
    """The mean age of live blocks."""

    blocks: float = 0.0
    sum: float = 0.0

    def add(self, row: Row, samples: int) -> None:
        if row.age is not None and samples:
            blocks = samples / row.probability
            self.blocks += blocks
            self.sum += row.age * blocks

    def include(self, other: Ages) -> None:
        self.blocks += other.blocks
        self.sum += other.sum

    @property
    def mean(self) -> float | None:
        """In seconds."""
        return self.sum / self.blocks if self.blocks else None


@dataclass
class Place:
    """A function, a line or a stack. `frame` comes from the stack that holds most; `path` is that
    of a stack."""

    frame: Frame
    path: tuple[Frame, ...] = ()
    objects: Estimate = field(default_factory=Estimate)
    ages: Ages = field(default_factory=Ages)

    def to_json(self) -> dict[str, Any]:
        return {
            "function": self.frame.function,
            "file": self.frame.file,
            "line": self.frame.line,
            "module": self.frame.module,
            **({"stack": [frame.label for frame in self.path]} if self.path else {}),
            "objects": round(self.objects.total),
            "age_seconds": self.ages.mean,
        }


@dataclass
class Site(Place):
    flat: Estimate = field(default_factory=Estimate)
    cumulative: Estimate = field(default_factory=Estimate)
    lines: dict[Frame, tuple[float, float]] = field(default_factory=dict)  # flat and cumulative

    def to_json(self) -> dict[str, Any]:
        sums = {"flat": self.flat.to_json(), "cumulative": self.cumulative.to_json()}
        return super().to_json() | sums


@dataclass
class Sites:
    total: Estimate
    objects: Estimate
    blocks: float  # bytes of the blocks, with rounding
    sites: list[Site]


@dataclass(slots=True)
class StackTotals:
    frames: tuple[Frame, ...]
    bytes: Estimate = field(default_factory=Estimate)
    objects: Estimate = field(default_factory=Estimate)
    blocks: float = 0.0
    ages: Ages = field(default_factory=Ages)


def by_stack(profile: Profile, stacks: Stacks, of: Type) -> list[StackTotals]:
    """The rows of each stack summed: a stack may have rows of many sizes."""
    found: dict[tuple[tuple[int, ...], bool], StackTotals] = {}
    for row in profile.rows:
        if samples := row.samples(of):
            key = row.stack, row.cut
            totals = found.get(key) or found.setdefault(key, StackTotals(stacks.of(row)))
            p, objects = row.probability, row.objects(of)
            totals.bytes.add(samples, row.size(of), p)
            totals.objects.add(objects, 1.0, p)
            totals.blocks += objects * row.block / p
            totals.ages.add(row, objects)
    return list(found.values())


def gather(profile: Profile, stacks: Stacks, by: GroupBy, of: Type) -> Sites:
    """Flat: of calls at the site. Cumulative: of calls there or in its callees, once per stack."""
    found = Sites(Estimate(), Estimate(), 0.0, [])
    sites: dict[Key, Site] = {}
    for totals in by_stack(profile, stacks, of):
        found.total.include(totals.bytes)
        found.objects.include(totals.objects)
        found.blocks += totals.blocks
        for at, key, frame in _once(totals.frames, by):
            path = totals.frames if by == "stack" else ()
            site = sites.get(key) or sites.setdefault(key, Site(frame, path))
            site.cumulative.include(totals.bytes)
            flat, cumulative = site.lines.get(frame, (0.0, 0.0))
            bytes_ = totals.bytes.total
            site.lines[frame] = flat + bytes_ * (at == 0), cumulative + bytes_
            if at == 0:
                site.flat.include(totals.bytes)
                site.objects.include(totals.objects)
                if of != "alloc":
                    site.ages.include(totals.ages)
    for site in sites.values():
        # The line that itself asks for most represents a function.
        site.frame = max(site.lines, key=lambda line: site.lines[line])
    found.sites = sorted(
        sites.values(), key=lambda s: (-s.flat.total, -s.cumulative.total, s.frame.label)
    )
    return found


def _once(frames: Sequence[Frame], by: GroupBy) -> Iterator[tuple[int, Key, Frame]]:
    """Each site of a stack once, recursive ones at their innermost frame."""
    if by == "stack":
        yield 0, (frames,), frames[0]
        return
    seen = set()
    for at, frame in enumerate(frames):
        key = key_of(frame, by)
        if key not in seen:
            seen.add(key)
            yield at, key, frame


def folded(profile: Profile, stacks: Stacks, of: Type) -> dict[str, Estimate]:
    """Stacks of functions, outermost first with `;` between them, and their bytes."""
    found: dict[str, Estimate] = defaultdict(Estimate)
    for totals in by_stack(profile, stacks, of):
        names = (frame.function for frame in reversed(totals.frames))
        line = ";".join(name.replace(";", ",").replace("\n", " ") for name in names)
        found[line].include(totals.bytes)
    return dict(sorted(found.items()))
