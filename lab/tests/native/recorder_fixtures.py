"""Shared by the recorder's tests: a recording's events, and what follows from them.

A trace is compared with the program's own counts, so every event is examined. `Recorded` rejects a
trace with contradictory events.
"""

import json
import os
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tsmlab import paths
from tsmlab.traces import files

MAKES = ("malloc", "calloc", "aligned")


@dataclass(frozen=True)
class Event:
    time_ns: int
    thread: int
    kind: str
    object: int | None  # its number; for thread_begin the creator, for fork the child's image
    size: int | None
    alignment: int | None


@dataclass
class Numbers:
    """Objects by slot and generation, numbered in the order of their allocations."""

    living: dict[int, tuple[int, int]] = field(default_factory=dict)  # slot: generation, number
    next: int = 0

    def of(self, kind, slot, generation):
        if kind in MAKES:
            assert slot not in self.living
            self.living[slot] = (generation, self.next)
            self.next += 1
        found, number = self.living[slot]
        assert found == generation
        if kind == "free":
            del self.living[slot]
        return number


@dataclass
class Image:
    """The events of one image, and what `record` reported about it."""

    said: dict[str, Any]
    events: list[Event]
    inherited: dict[int, int]  # object: bytes
    live: dict[int, int] = field(default_factory=dict)
    peak_live_bytes: int = 0
    forks: dict[int, dict[int, int]] = field(default_factory=dict)  # child: inherited objects

    def __post_init__(self):
        """Follows the events, each of which must be possible."""
        self.live = dict(self.inherited)
        next_object: int | None = None
        live_bytes = sum(self.live.values())
        threads = {0}
        born = 1
        for event in self.events:
            if event.kind == "thread_begin":
                assert event.thread == born
                assert event.object < born
                born += 1
                threads.add(event.thread)
            assert event.thread in threads, event
            if event.kind == "thread_end":
                threads.remove(event.thread)
            if event.kind in MAKES:
                assert next_object in (None, event.object)
                next_object = event.object + 1
                self.live[event.object] = event.size
                live_bytes += event.size
            elif event.kind == "realloc":
                live_bytes += event.size - self.live[event.object]
                self.live[event.object] = event.size
            elif event.kind == "free":
                live_bytes -= self.live.pop(event.object)
            elif event.kind == "fork":
                self.forks[event.object] = dict(self.live)
            self.peak_live_bytes = max(self.peak_live_bytes, live_bytes)
        assert len(self.events) == self.said["events"]
        assert born == self.said["threads"]

    def __getitem__(self, name):
        return self.said[name]

    @property
    def live_bytes(self):
        return sum(self.live.values())

    def counts(self):
        return Counter(event.kind for event in self.events)

    def sizes(self, *kinds):
        return Counter(
            event.size for event in self.events if event.kind in kinds and event.size is not None
        )

    def requested(self):
        """Bytes of all successful requests."""
        return sum(size * n for size, n in self.sizes(*MAKES, "realloc").items())

    def by_thread(self, kind):
        return Counter(event.thread for event in self.events if event.kind == kind)


@dataclass
class Recorded:
    """One run of `record`."""

    status: int
    stderr: str
    answer: dict[str, Any]
    images: list[Image]

    @property
    def only(self):
        [image] = self.images
        return image

    @property
    def unrecorded(self):
        return [each["program"] for each in self.answer["unrecorded"]]

    def of(self, program):
        return [image for image in self.images if image["program"] == Path(program).name[:127]]


def read_events(trace):
    """The events of a whole trace, by image."""
    found: dict[int, list[Event]] = {}
    numbers: dict[int, Numbers] = {}
    parents = {image.number: image.parent for image in files.read_whole_trace(trace).images
               if image.birth == "fork"}  # fmt: skip
    for kind, image, first, events in files.chunks(trace):
        if kind == files.IMAGE:
            numbers[image] = Numbers()
            if (parent := parents.get(image)) is not None:
                numbers[image] = Numbers(dict(numbers[parent].living), numbers[parent].next)
        if kind != files.EVENTS:
            continue
        own = found.setdefault(image, [])
        assert first == len(own)
        for row in events.tolist():
            time_ns, size, site, slot, generation, thread, number, log2, reserved = row
            assert site == reserved == 0
            assert log2 == 0 or files.KINDS[number] == "aligned"
            name = files.KINDS[number]
            has_object = number <= files.FREE
            which = numbers[image].of(name, slot, generation) if has_object else slot
            is_sized = number <= files.REALLOC or number == files.REFUSED
            own.append(
                Event(
                    time_ns, thread, name,
                    which if has_object or name in ("thread_begin", "fork") else None,
                    size if is_sized else None,
                    1 << log2 if name == "aligned" else None,
                )
            )  # fmt: skip
    return found


def read_images(trace, said):
    """The images of a whole trace. said: what `record` reported about them."""
    events = read_events(trace) if any(each["events"] for each in said) else {}
    images: list[Image] = []
    for each in said:
        inherited: dict[int, int] = {}
        if each["birth"] == "fork" and each["parent"] is not None:
            parent = next(i for i in images if i["image"] == each["parent"])
            inherited = parent.forks.get(each["image"], {})
        images.append(Image(each, events.get(each["image"], []), inherited))
    return images


def start_record(trace, command, *options, environment=None, stdout=Path(os.devnull), answer=None):
    """Starts `record`, which writes its line to `answer`, or else next to the trace."""
    output = ["--output", answer or trace.with_suffix(".json")]
    arguments = [paths.tool("record"), "-o", trace, *output, "--stdout", stdout, *options]
    return subprocess.Popen(
        [*map(str, arguments), "--", *map(str, command)],
        env=dict(os.environ) | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish_record(process, trace):
    _, stderr = process.communicate(timeout=120)
    line = json.loads(trace.with_suffix(".json").read_text()) if process.returncode == 0 else {}
    images = read_images(trace, line["images"]) if line.get("images") else []
    return Recorded(process.returncode, stderr, line, images)


def kill_record(process):
    """The processes that it started may survive, and hold its pipes open."""
    process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        assert pipe
        pipe.close()
