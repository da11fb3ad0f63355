"""The analysis of one process of a trace, chunk by chunk; docs/formats/trace.md defines its terms.

Its memory holds the slots and one chunk, however long the trace is.
"""

from pathlib import Path
from typing import Any

import numpy as np

from tsmlab.errors import UserError
from tsmlab.traces import files
from tsmlab.traces.distributions import (
    EIGHTHS,
    Histogram,
    Ints,
    SizeTable,
    bucket,
    sums,
    upper,
)
from tsmlab.traces.files import ALIGNED, KINDS, Events, Trace
from tsmlab.traces.objects import INHERITED, ChunkObjects, Damaged, Rows, Slots

SCHEMA = "tsmalloc-analysis/3"
MAX_POINTS = 1000
MAX_SIZES = 100
MAX_THREADS = 64
MAX_IMAGES = 1000

THREAD_SUMS = ("events", "allocations", "allocated_bytes", "frees", "freed_bytes",
               "foreign_frees", "foreign_bytes", "given_away", "given_bytes",
               "temporaries")  # fmt: skip


def analyse(trace: Path, image: int | None) -> dict[str, Any]:
    """The line of `tsmalloc analyze --json`; raises UserError."""
    contents = files.read_whole_trace(trace)
    if image is not None and image >= len(contents.images):
        last = len(contents.images) - 1
        raise UserError(f"{trace} has no image {image}.", f"The last image is {last}.")
    chosen = contents.busiest if image is None else contents.images[image]
    analyst = Analyst(contents, chosen.number)
    _read(trace, _ancestors(contents, chosen.number), analyst)
    return analyst.answer()


def _ancestors(contents: Trace, image: int) -> list[int]:
    """The image, the image that it was forked from, and so on."""
    found = [image]
    while contents.images[found[-1]].birth == "fork":
        parent = contents.images[found[-1]].parent
        assert parent is not None
        found.append(parent)
    return found


def _read(trace: Path, family: list[int], analyst: "Analyst") -> None:
    """Passes the image's events to the analyst, after those that it inherits."""
    states: dict[int, Slots] = {}
    for kind, image, first, events in files.chunks(trace):
        if image not in family:
            continue
        try:
            if kind == files.IMAGE:
                parent = family[family.index(image) + 1 :][:1]
                states[image] = states[parent[0]].forked() if parent else Slots()
                if image == family[0]:
                    analyst.begin(states[image])
            elif kind == files.EVENTS and image == family[0]:
                analyst.add(first, events)
            elif kind == files.EVENTS:
                slots, no_serials = states[image], np.zeros(len(events), np.int64)
                slots.apply(slots.match_objects(events, first, no_serials), events)
        except Damaged:
            raise UserError(
                f"{trace} is damaged: from event {first:,} of image {image} on, it frees objects "
                "that are not live, or reuses live ones.",
                "Record it again with tsmalloc record.",
            ) from None


class Analyst:
    def __init__(self, trace: Trace, image: int) -> None:
        self.trace = trace
        self.image = trace.images[image]
        self.slots = Slots()
        self.calls = np.zeros(len(KINDS), np.int64)
        self.sizes = SizeTable("allocations", "resizes", "at_peak", "own", "inherited")
        self.allocated_bytes = self.grown = 0
        self.lifetimes = {name: Histogram() for name in ("ns", "events", "bytes")}
        self.amounts = {
            name: np.zeros(2, np.int64)
            for name in ("frees", "inherited_frees", "cross_thread_frees", "temporaries")
        }
        self.steps = dict.fromkeys(("shrunk", "unchanged", "grown"), 0)
        self.step_growth, self.chain_lengths, self.chain_growth = (Histogram() for _ in range(3))
        self.threads = np.zeros((len(THREAD_SUMS), 0), np.int64)
        self.live = np.zeros(2, np.int64)  # objects, bytes
        self.events = self.latest_ns = 0
        self.peak_event: int | None = None
        self.peak_ns = 0
        self.curve: list[list[int]] = []
        self.stretch = max(1, -(-self.image.events // MAX_POINTS))

    def begin(self, slots: Slots) -> None:
        self.slots = slots
        self.peak = slots.live
        self.inherited = [len(self.peak["size"]), int(self.peak["size"].sum())]
        self.live += self.inherited
        self.highest = int(self.live[1])

    # --- a chunk ----------------------------------------------------------------------------------

    def add(self, first: int, events: Events) -> None:
        kind = events["kind"]
        is_new = kind <= ALIGNED
        size = events["size"].astype(np.int64)
        threads = self._note_threads(events, is_new, size)
        serials = self._serials(threads, is_new)
        objects = self.slots.match_objects(events, first, serials)
        place = objects.place
        grown = np.zeros(len(events), np.int64)  # bytes that each event allocated
        changed = np.zeros(len(events), np.int64)  # and the change in live bytes
        own_size = np.where(objects.is_free, 0, size[place])
        changed[place] = own_size - objects.before
        grown[place] = np.where(objects.is_free, 0, np.maximum(changed[place], 0))
        clocks = self.allocated_bytes + self.grown + np.cumsum(grown)
        here = objects.allocated_at >= 0
        objects.birth["clock"][here] = clocks[objects.allocated_at[here]]

        self.calls += np.bincount(kind, minlength=len(KINDS))
        self.allocated_bytes += int(size[is_new].sum())
        self.sizes.add("allocations", size[is_new])
        self._note_resizes(objects, own_size)
        self._note_frees(first, events, objects, clocks, serials)
        self._note_course(first, events, objects, changed)
        self.slots.apply(objects, events)
        freed = {name: values[objects.is_free] for name, values in objects.birth.items()}
        self._end_chains(freed, objects.before[objects.is_free])

    def _note_threads(self, events: Events, is_new: Any, size: Ints) -> Ints:
        threads = events["thread"].astype(np.int64)
        count = int(threads.max()) + 1
        if count > self.threads.shape[1]:
            room = np.zeros((len(THREAD_SUMS), count), np.int64)
            room[:, : self.threads.shape[1]] = self.threads
            self.threads = room
        self._count("events", None, threads, size)
        self._allocations_before = self._sum("allocations").copy()
        self._count("allocations", "allocated_bytes", threads[is_new], size[is_new])
        return threads

    def _sum(self, name: str) -> Ints:
        row: Ints = self.threads[THREAD_SUMS.index(name)]
        return row

    def _count(self, objects: str, bytes_: str | None, threads: Ints, sizes: Ints) -> None:
        count = self.threads.shape[1]
        self._sum(objects)[:] += np.bincount(threads, minlength=count)
        if bytes_ is not None:
            self._sum(bytes_)[:] += sums(threads, sizes, count)

    def _serials(self, threads: Ints, is_new: Any) -> Ints:
        """How many allocations each event's thread has made, including this one."""
        order = np.argsort(threads, kind="stable")
        made = np.cumsum(is_new[order])
        starts = np.searchsorted(threads[order], threads[order])  # of each thread's part
        before = np.concatenate([[0], made])[starts]
        serials = np.empty(len(threads), np.int64)
        serials[order] = made - before + self._allocations_before[threads[order]]
        return serials

    def _note_resizes(self, objects: ChunkObjects, size: Ints) -> None:
        after, before = size[objects.is_resize], objects.before[objects.is_resize]
        self.sizes.add("resizes", after)
        step = after - before
        self.grown += int(step[step > 0].sum())
        self.steps["shrunk"] += int((step < 0).sum())
        self.steps["unchanged"] += int((step == 0).sum())
        self.steps["grown"] += int((step > 0).sum())
        grows = (step > 0) & (before > 0)
        self.step_growth.add(_thousandths(after[grows], before[grows]))

    def _note_frees(
        self, first: int, events: Events, objects: ChunkObjects, clocks: Ints, serials: Ints
    ) -> None:
        freed = objects.is_free
        size, place = objects.before[freed], objects.place[freed]
        birth = {name: values[freed] for name, values in objects.birth.items()}
        thread = events["thread"][place].astype(np.int64)
        owner = birth["thread"].astype(np.int64)
        own = owner != INHERITED
        self._count("frees", "freed_bytes", thread, size)
        self._amount("inherited_frees", size[~own])
        self._amount("frees", size[own])
        foreign = own & (owner != thread)
        self._amount("cross_thread_frees", size[foreign])
        self._count("foreign_frees", "foreign_bytes", thread[foreign], size[foreign])
        self._count("given_away", "given_bytes", owner[foreign], size[foreign])
        temporary = own & ~foreign & (birth["serial"] == serials[place])
        self._amount("temporaries", size[temporary])
        self._count("temporaries", None, thread[temporary], size[temporary])
        now = events["time_ns"][place].astype(np.int64)
        for name, values in (
            ("ns", np.maximum(now - birth["ns"], 0)),
            ("events", first + place - birth["event"]),
            ("bytes", clocks[place] - birth["clock"]),
        ):
            self.lifetimes[name].add(values[own])

    def _amount(self, name: str, sizes: Ints) -> None:
        self.amounts[name] += [len(sizes), int(sizes.sum())]

    def _end_chains(self, births: Rows, sizes: Ints) -> None:
        """For objects that are not resized any more."""
        own = (births["thread"] != INHERITED) & (births["resizes"] > 0)
        last, first_size = sizes[own], births["first_size"][own]
        self.chain_lengths.add(births["resizes"][own].astype(np.int64))
        grown = first_size > 0
        self.chain_growth.add(_thousandths(last[grown], first_size[grown]))

    def _note_course(
        self, first: int, events: Events, objects: ChunkObjects, changed: Ints
    ) -> None:
        """Live bytes over the events: their peak and curve."""
        live_bytes = int(self.live[1]) + np.cumsum(changed)
        came = np.zeros(len(events), np.int64)
        came[objects.place] = objects.is_new.astype(np.int64) - objects.is_free
        live_objects = int(self.live[0]) + np.cumsum(came)
        latest_ns = np.maximum.accumulate(
            np.maximum(events["time_ns"].astype(np.int64), self.latest_ns)
        )
        if live_bytes.max() > self.highest:
            place = int(np.argmax(live_bytes))
            self.highest = int(live_bytes[place])
            self.peak_event = first + place
            self.peak_ns = int(events["time_ns"][place])
            self.peak = self.slots.live_after(objects, events, place)
        number = first + np.arange(len(events))
        starts = np.flatnonzero(np.diff(number // self.stretch, prepend=-1))
        before = np.concatenate([[int(self.live[1])], live_bytes[:-1]])[starts]
        highest = np.maximum(np.maximum.reduceat(live_bytes, starts), before)
        ends = np.append(starts[1:], len(events)) - 1
        rows = np.stack(
            [number[ends], latest_ns[ends], live_bytes[ends], highest, live_objects[ends]], axis=1
        ).tolist()
        if self.curve and self.curve[-1][0] // self.stretch == rows[0][0] // self.stretch:
            rows[0][3] = max(rows[0][3], self.curve.pop()[3])
        self.curve += rows
        self.live[:] = live_objects[-1], live_bytes[-1]
        self.latest_ns = int(latest_ns[-1])
        self.events += len(events)

    # --- the answer -------------------------------------------------------------------------------

    def answer(self) -> dict[str, Any]:
        left = self.slots.live
        self._end_chains(left, left["size"])
        own = left["thread"] != INHERITED
        self.sizes.add("at_peak", self.peak["size"])
        self.sizes.add("own", left["size"][own])
        self.sizes.add("inherited", left["size"][~own])
        sizes, counts = self.sizes.counts()
        all_left = counts["own"] + counts["inherited"]
        buckets, group = np.unique(bucket(sizes, EIGHTHS), return_inverse=True)
        at_peak = sizes * counts["at_peak"]
        raw = self.trace.raw_images
        allocations = int(self.calls[: ALIGNED + 1].sum())
        return {
            "schema": SCHEMA,
            "trace": self.trace.path.name,
            "bytes": self.trace.bytes,
            "finished": self.trace.is_finished,
            "images_seen": len(raw),
            "images": list(raw[:MAX_IMAGES]),
            "image": raw[self.image.number],
            "events": self.events,
            "duration_ns": self.latest_ns,
            "calls": dict(zip(KINDS, map(int, self.calls), strict=True)),
            "allocations": _amount(allocations, self.allocated_bytes),
            "grown_bytes": self.grown,
            "inherited": _amount(*self.inherited),
            **{name: _amount(*amount) for name, amount in self.amounts.items()},
            "sizes": {
                "exact": self.sizes.is_exact,
                "distinct": int(np.count_nonzero(counts["allocations"])),
                "top": _heaviest(
                    counts["allocations"],
                    sizes, counts["allocations"], counts["resizes"], counts["at_peak"], all_left,
                ),
                "histogram": np.stack([
                    [upper(int(each), EIGHTHS) for each in buckets],
                    *(
                        sums(group, each, len(buckets))
                        for each in (
                            counts["allocations"], sizes * counts["allocations"],
                            counts["resizes"],
                            counts["at_peak"], at_peak,
                            all_left, sizes * all_left,
                        )
                    ),
                ], axis=1).tolist(),
            },
            "lifetimes": {
                "objects": self.lifetimes["events"].count,
                **{name: each.quantiles() for name, each in self.lifetimes.items()},
            },
            "peak": {
                "event": self.peak_event,
                "time_ns": self.peak_ns,
                **_amount_of(self.peak["size"]),
                "inherited": _amount_of(self.peak["size"][self.peak["thread"] == INHERITED]),
                "by_size": _heaviest(at_peak, sizes, counts["at_peak"], at_peak),
            },
            "left": {
                "own": _amount_of(left["size"][own]),
                "inherited": _amount_of(left["size"][~own]),
                "by_size": _heaviest(
                    sizes * all_left, sizes, counts["own"], counts["inherited"], sizes * all_left
                ),
            },
            "chains": self._chains(),
            "curve": self.curve,
            **self._threads(),
        }  # fmt: skip

    def _chains(self) -> dict[str, Any]:
        def growth(histogram: Histogram) -> dict[str, int]:
            return {"objects": histogram.count, **histogram.quantiles()}

        return {
            "resizes": self.steps["shrunk"] + self.steps["unchanged"] + self.steps["grown"],
            **self.steps,
            "objects": self.chain_lengths.count,
            "longest": self.chain_lengths.highest,
            "step_growth_thousandths": growth(self.step_growth),
            "growth_thousandths": growth(self.chain_growth),
        }

    def _threads(self) -> dict[str, Any]:
        events = self._sum("events")
        seen = np.flatnonzero(events)
        busiest = seen[np.argsort(-events[seen], kind="stable")][:MAX_THREADS]
        rows = []
        for number in sorted(map(int, busiest)):
            row = dict(zip(THREAD_SUMS, map(int, self.threads[:, number]), strict=True))
            rows.append({
                "thread": number,
                "events": row["events"],
                "allocations": _amount(row["allocations"], row["allocated_bytes"]),
                "frees": _amount(row["frees"], row["freed_bytes"]),
                "foreign_frees": _amount(row["foreign_frees"], row["foreign_bytes"]),
                "given_away": _amount(row["given_away"], row["given_bytes"]),
                "temporaries": row["temporaries"],
            })  # fmt: skip
        return {"threads_seen": len(seen), "threads": rows}


def _thousandths(after: Ints, before: Ints) -> Ints:
    return np.floor(after / before * 1000 + 0.5).astype(np.int64)


def _amount(objects: int, bytes_: int) -> dict[str, int]:
    return {"objects": int(objects), "bytes": int(bytes_)}


def _amount_of(sizes: Ints) -> dict[str, int]:
    return _amount(len(sizes), int(sizes.sum()))


def _heaviest(weight: Ints, *columns: Ints) -> list[list[int]]:
    """Rows of these columns, sorted by descending weight; ties keep their order."""
    order = np.argsort(-weight, kind="stable")[:MAX_SIZES]
    rows: list[list[int]] = np.stack(columns, axis=1)[order[weight[order] > 0]].tolist()
    return rows
