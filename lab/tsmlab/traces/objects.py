"""Objects in slots: for the events of a chunk, which object was in the slot before, and since when.

The state of a process is an array over its slots; each chunk of events is processed at once, sorted
by slot.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tsmlab.traces.distributions import Ints
from tsmlab.traces.files import ALIGNED, FREE, REALLOC, Events

Bools = npt.NDArray[np.bool_]

INHERITED = -1  # the thread of an object that was alive when the process was forked

# For each slot: the object in it, as allocated, with its current size and number of resizes.
FIELDS = {"size": np.int64, "first_size": np.int64, "event": np.int64, "ns": np.int64,
          "clock": np.int64, "serial": np.int64, "thread": np.int32, "resizes": np.uint32,
          "generation": np.uint32, "lives": np.bool_}  # fmt: skip
Rows = dict[str, Any]  # an array for each field


class Damaged(Exception):
    """Events that contradict each other."""


@dataclass(frozen=True)
class ChunkObjects:
    """The events of a chunk that concern objects, by slot and in each slot by time.

    place: in the chunk. before: the object's size before the event, 0 if there was none. birth: of
    the object that the event is about, with the resizes so far.
    allocated_at: the place of that allocation in the chunk, -1 if it was earlier.
    """

    place: Ints
    allocated_at: Ints
    before: Ints
    birth: Rows
    is_new: Bools
    is_resize: Bools
    is_free: Bools


class Slots:
    """The live objects in the slots of a process."""

    def __init__(self, rows: Rows | None = None) -> None:
        self.rows = rows or {name: np.zeros(0, kind) for name, kind in FIELDS.items()}

    def forked(self) -> "Slots":
        """A copy for a child: all live objects are inherited."""
        child = Slots({name: values.copy() for name, values in self.rows.items()})
        child.rows["thread"][:] = INHERITED
        child.rows["resizes"][:] = 0
        return child

    @property
    def live(self) -> Rows:
        lives = self.rows["lives"]
        return {name: values[lives] for name, values in self.rows.items()}

    def live_after(self, objects: ChunkObjects, events: Events, last: int) -> Rows:
        """The objects that are alive after the event at this place of the chunk."""
        copy = Slots({name: values.copy() for name, values in self.rows.items()})
        copy.apply(objects, events, last)
        return copy.live

    def match_objects(self, events: Events, first: int, serials: Ints) -> ChunkObjects:
        """first: the number of the first event. serials: for each event, how many allocations its
        thread has made, including this one."""
        place = np.flatnonzero(events["kind"] <= FREE)
        place = place[np.argsort(events["slot"][place], kind="stable")]
        own = events[place]
        slot, kind = own["slot"].astype(np.int64), own["kind"]
        self._grow(int(slot.max(initial=-1)) + 1)
        is_new, is_resize, is_free = kind <= ALIGNED, kind == REALLOC, kind == FREE
        starts = np.ones(len(place), bool)  # the slot's first event in the chunk
        starts[1:] = slot[1:] != slot[:-1]
        size = own["size"].astype(np.int64)

        def earlier(values: npt.NDArray[Any], state: str) -> npt.NDArray[Any]:
            """The value of the previous event in the same slot, or the state's."""
            found = np.empty_like(values)
            found[1:] = values[:-1]
            found[starts] = self.rows[state][slot[starts]]
            return found

        lived = earlier(~is_free, "lives")
        before = earlier(np.where(is_free, 0, size), "size")
        # Each free increments the generation: count all frees so far minus those before the slot's
        # first.
        freed = np.cumsum(is_free) - is_free
        old = self.rows["generation"][slot].astype(np.int64)
        generation = old + freed - freed[_group_starts(starts)]
        if np.any(lived == is_new) or np.any(generation != own["generation"]):
            raise Damaged
        head = _group_starts(starts | is_new)  # the first event of each object here
        is_allocated_here = is_new[head]
        first_places, older = head[is_allocated_here], slot[~is_allocated_here]
        birth: Rows = {"size": size}
        for name, values in (
            ("first_size", size), ("event", first + place), ("ns", own["time_ns"]),
            ("serial", serials[place]), ("thread", own["thread"]), ("clock", None),
        ):  # fmt: skip
            birth[name] = np.empty(len(own), FIELDS[name])
            birth[name][~is_allocated_here] = self.rows[name][older]
            if values is not None:
                birth[name][is_allocated_here] = values[first_places]
        resizes = np.cumsum(is_resize)
        birth["resizes"] = (resizes - (resizes - is_resize)[head]).astype(np.uint32)
        birth["resizes"][~is_allocated_here] += self.rows["resizes"][older]
        allocated_at = np.where(is_allocated_here, place[head], -1)
        return ChunkObjects(place, allocated_at, before * lived, birth, is_new, is_resize, is_free)

    def apply(self, objects: ChunkObjects, events: Events, last: int | None = None) -> None:
        """Applies the chunk's events, or those up to a place."""
        kept = np.arange(len(objects.place))
        if last is not None:
            kept = np.flatnonzero(objects.place <= last)
        own = events[objects.place[kept]]
        ends = np.ones(len(own), bool)  # the last event of each slot
        ends[:-1] = own["slot"][1:] != own["slot"][:-1]
        slot, at = own["slot"][ends], kept[ends]
        for name in ("first_size", "event", "ns", "clock", "serial", "thread", "resizes"):
            self.rows[name][slot] = objects.birth[name][at]
        is_free = objects.is_free[at]
        self.rows["lives"][slot] = ~is_free
        self.rows["size"][slot] = own["size"][ends]
        self.rows["generation"][slot] = own["generation"][ends] + is_free

    def _grow(self, count: int) -> None:
        have = len(self.rows["size"])
        if count <= have:
            return
        for name, values in self.rows.items():
            room = np.zeros(max(count, 2 * have), values.dtype)
            room[:have] = values
            self.rows[name] = room


def _group_starts(starts: Bools) -> Ints:
    """For each element, the place of the first one in its group."""
    return np.maximum.accumulate(np.where(starts, np.arange(len(starts)), 0))
