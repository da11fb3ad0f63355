"""Where memory was asked for: the rows of a profile, put together by function, line or stack.

Why: a site's bytes are spread over rows of many stacks and sizes; their sum has one error.
Refuses to: put anything into words; text.py does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tsmlab.profile.estimates import Estimate
from tsmlab.profile.model import Frame, Profile, Row, Type
from tsmlab.profile.symbols import Symbols

By = Literal["function", "line", "stack"]
Key = tuple[Any, ...]
CUT = Frame("[the stack is cut here]")
NOWHERE = Frame("[no stack]")


class Stacks:
    """The frames of each row's stack, innermost first, without those that only hand on."""

    def __init__(self, profile: Profile, symbols: Symbols) -> None:
        self._profile = profile
        self._symbols = symbols
        self._known: dict[tuple[tuple[int, ...], bool], tuple[Frame, ...]] = {}
        self._dropped: dict[str, bool] = {}

    def of(self, row: Row) -> tuple[Frame, ...]:
        key = row.stack, row.cut
        if key not in self._known:
            self._known[key] = self._frames(row)
        return self._known[key]

    def _frames(self, row: Row) -> tuple[Frame, ...]:
        frames = [frame for each in row.stack for frame in self._symbols.frames[each]]
        # As pprof prunes: all that is inside of the outermost frame that matches goes with it.
        last = max((at for at, frame in enumerate(frames) if self._drops(frame)), default=-1)
        kept = frames[last + 1 :] or frames
        if row.cut:
            kept.append(CUT)
        return tuple(kept) or (NOWHERE,)

    def _drops(self, frame: Frame) -> bool:
        name = frame.function
        if name not in self._dropped:
            self._dropped[name] = self._profile.drops.fullmatch(name) is not None
        return self._dropped[name]


def key_of(frame: Frame, by: By) -> Key:
    if by == "line":
        return frame.function, frame.file, frame.line, frame.module
    return frame.function, frame.module


@dataclass
class Site:
    """A function, a line or a stack. `frame` is the innermost one where most of its bytes are;
    `path` the whole stack."""

    frame: Frame
    path: tuple[Frame, ...] = ()
    flat: Estimate = field(default_factory=Estimate)
    cumulative: Estimate = field(default_factory=Estimate)
    objects: Estimate = field(default_factory=Estimate)
    age_weight: float = 0.0
    age_sum: float = 0.0
    by_place: dict[Frame, float] = field(default_factory=dict)

    @property
    def age(self) -> float | None:
        """The mean age of the live blocks, in seconds."""
        return self.age_sum / self.age_weight if self.age_weight else None

    def to_json(self) -> dict[str, Any]:
        return {
            "function": self.frame.function,
            "file": self.frame.file,
            "line": self.frame.line,
            "module": self.frame.module,
            **({"stack": [frame.label for frame in self.path]} if self.path else {}),
            "flat": self.flat.to_json(),
            "cumulative": self.cumulative.to_json(),
            "objects": round(self.objects.total),
            "age_seconds": self.age,
        }


@dataclass
class Sites:
    """All sites of a profile, the largest first."""

    total: Estimate
    objects: Estimate
    blocks: float  # bytes of the blocks, with what rounding adds
    sites: list[Site]


def gather(profile: Profile, stacks: Stacks, by: By, of: Type) -> Sites:
    """Flat: of calls right there. Cumulative: of calls there or in what it calls, once a stack."""
    found = Sites(Estimate(), Estimate(), 0.0, [])
    sites: dict[Key, Site] = {}
    for row in profile.rows:
        samples = row.samples(of)
        if not samples:
            continue
        p = row.probability
        found.total.add(samples, row.bytes, p)
        found.objects.add(samples, 1.0, p)
        found.blocks += samples * row.block / p
        frames = stacks.of(row)
        weight = samples * row.bytes / p
        for at, key, frame in _once(frames, by):
            site = sites.get(key)
            if site is None:
                site = sites[key] = Site(frame, frames if by == "stack" else ())
            site.cumulative.add(samples, row.bytes, p)
            site.by_place[frame] = site.by_place.get(frame, 0.0) + weight
            if at == 0:
                site.flat.add(samples, row.bytes, p)
                site.objects.add(samples, 1.0, p)
                if row.age is not None and of == "inuse":
                    site.age_weight += samples / p
                    site.age_sum += row.age * samples / p
    for site in sites.values():
        site.frame = max(site.by_place, key=lambda frame: site.by_place[frame])
    found.sites = sorted(
        sites.values(), key=lambda s: (-s.flat.total, -s.cumulative.total, s.frame.label)
    )
    return found


def _once(frames: Sequence[Frame], by: By) -> Iterator[tuple[int, Key, Frame]]:
    """Each site of a stack once, recursive ones where they are innermost."""
    if by == "stack":
        yield 0, (frames,), frames[0]
        return
    seen = set()
    for at, frame in enumerate(frames):
        key = key_of(frame, by)
        if key not in seen:
            seen.add(key)
            yield at, key, frame
