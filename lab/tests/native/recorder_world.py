"""What the tests of the recorder share: a recording as its events, and what follows from them.

Why: a trace is checked against what a program knows of itself, so its events are looked at one by
one, and by a reader that was not written for the recorder (`trace print`).
Refuses to: forgive. A trace whose events contradict each other does not get past `Recorded`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prompt import ran

from tsmlab import paths

MAKES = ("malloc", "calloc", "aligned")


@dataclass(frozen=True)
class Event:
    time_ns: int
    thread: int
    kind: str
    object: int | None
    size: int | None
    alignment: int | None


@dataclass
class Image:
    """The events of one image, and what `record` said about it."""

    said: dict[str, Any]
    events: list[Event]
    inherited: dict[int, int]  # object: bytes
    live: dict[int, int] = field(default_factory=dict)
    peak_live_bytes: int = 0
    forks: dict[int, dict[int, int]] = field(default_factory=dict)  # child: what it inherits

    def __post_init__(self) -> None:
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
                assert event.size is not None
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
                assert event.object is not None
                self.forks[event.object] = dict(self.live)
            self.peak_live_bytes = max(self.peak_live_bytes, live_bytes)
        assert len(self.events) == self.said["events"]
        assert born == self.said["threads"]

    def __getitem__(self, name: str) -> Any:
        return self.said[name]

    @property
    def live_bytes(self) -> int:
        return sum(self.live.values())

    def counts(self) -> Counter[str]:
        return Counter(event.kind for event in self.events)

    def sizes(self, *kinds: str) -> Counter[int]:
        return Counter(
            event.size for event in self.events if event.kind in kinds and event.size is not None
        )

    def requested(self) -> int:
        """Bytes of all that was granted."""
        return sum(size * n for size, n in self.sizes(*MAKES, "realloc").items())

    def by_thread(self, kind: str) -> Counter[int]:
        return Counter(event.thread for event in self.events if event.kind == kind)


@dataclass
class Recorded:
    """One run of `record`."""

    status: int
    stderr: str
    answer: dict[str, Any]
    images: list[Image]

    @property
    def only(self) -> Image:
        [image] = self.images
        return image

    def of(self, program: Path | str) -> list[Image]:
        return [image for image in self.images if image["program"] == Path(program).name[:127]]


def read_images(trace: Path, said: Sequence[dict[str, Any]]) -> list[Image]:
    """The events of a whole trace, by image. said: what `record` says of them."""
    run = ran(paths.tool("trace"), "print", trace, status=0)
    events: dict[int, list[Event]] = {}

    def number(text: str) -> int | None:
        return None if text == "-" else int(text)

    for line in run.stdout.splitlines():
        image, _, time_ns, thread, kind, *rest = line.split()
        event = Event(int(time_ns), int(thread), kind, *map(number, rest))
        events.setdefault(int(image), []).append(event)
    images: list[Image] = []
    for each in said:
        inherited: dict[int, int] = {}
        if each["birth"] == "fork" and each["parent"] is not None:
            inherited = next(i for i in images if i["image"] == each["parent"]).forks[each["image"]]
        images.append(Image(each, events.get(each["image"], []), inherited))
    return images


def start_record(
    trace: Path,
    command: Sequence[str | Path],
    *options: str | Path,
    environment: Mapping[str, str] | None = None,
    stdout: Path = Path(os.devnull),
    answer: Path | None = None,
) -> subprocess.Popen[str]:
    """`record`, which is to write its line into `answer`, or else beside the trace."""
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


def finish_record(process: subprocess.Popen[str], trace: Path) -> Recorded:
    _, stderr = process.communicate(timeout=120)
    line = json.loads(trace.with_suffix(".json").read_text()) if process.returncode == 0 else {}
    images = read_images(trace, line["images"]) if line.get("images") else []
    return Recorded(process.returncode, stderr, line, images)


def kill_record(process: subprocess.Popen[str]) -> None:
    """What it has started may live on, and hold its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        assert pipe
        pipe.close()
