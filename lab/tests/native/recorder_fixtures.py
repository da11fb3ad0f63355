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
from typing import Any, NamedTuple

from tsmlab import paths
from tsmlab.traces import files

MAKES = ("malloc", "calloc", "aligned")


class Event(NamedTuple):
    time_ns: int
    thread: int
    kind: str
    slot: int  # of the object; for thread_begin the creator, for fork the child's image
    size: int
    alignment: int | None


@dataclass
class Image:
    """The events of one image, and what `record` reported about it."""

    said: dict[str, Any]
    events: list[Event]
    inherited: dict[int, int]  # slot: bytes
    live: dict[int, int] = field(default_factory=dict)
    forks: dict[int, dict[int, int]] = field(default_factory=dict)  # child: inherited objects

    def __post_init__(self):
        """Follows the events, each of which must be possible."""
        self.live = dict(self.inherited)
        threads = {0}
        born = 1
        for event in self.events:
            if event.kind == "thread_begin":
                assert event.thread == born > event.slot
                born += 1
                threads.add(event.thread)
            assert event.thread in threads, event
            if event.kind == "thread_end":
                threads.remove(event.thread)
            if event.kind in MAKES:
                assert event.slot not in self.live
            if event.kind in (*MAKES, "realloc"):
                assert event.kind != "realloc" or event.slot in self.live
                self.live[event.slot] = event.size
            elif event.kind == "free":
                del self.live[event.slot]
            elif event.kind == "fork":
                self.forks[event.slot] = dict(self.live)
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
        return Counter(event.size for event in self.events if event.kind in kinds)

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
    for kind, image, first, events in files.chunks(trace):
        if kind != files.EVENTS:
            continue
        own = found.setdefault(image, [])
        assert first == len(own)
        for time_ns, size, site, slot, _, thread, number, log2, reserved in events.tolist():
            name = files.KINDS[number]
            assert site == reserved == 0
            assert log2 == 0 or name == "aligned"
            alignment = 1 << log2 if name == "aligned" else None
            own.append(Event(time_ns, thread, name, slot, size, alignment))
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
