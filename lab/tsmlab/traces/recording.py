"""Records a program's heap events into a trace, with the native tool `record`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tsmlab import paths, records
from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.measuring import ExitReport, NativeTool, require_schema
from tsmlab.wording import counted

SCHEMA = "tsmalloc-record/1"
_MANY_NAMES = 5


@dataclass(frozen=True)
class RecordedImage:
    """One program in one process; a process that execs has several, and a forked child has its own.

    end: "exited", "exec", "killed" or "unknown". missed_frees: addresses that were returned again
    without a free, which is then added. lost_events: events for which there was no room.
    """

    image: int
    program: str
    allocator: str
    end: str
    events: int
    objects: int
    threads: int
    missed_frees: int
    lost_events: int


@dataclass(frozen=True)
class Recording(ExitReport):
    """The result of `record`; docs/formats/trace.md describes the fields."""

    trace: Path
    wall_ns: int
    trace_bytes: int
    events: int
    write_error: str | None
    images: tuple[RecordedImage, ...]
    unrecorded: tuple[str, ...]
    images_without_place: int
    images_without_room: int
    raw: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @staticmethod
    def from_json(trace: Path, raw: dict[str, Any]) -> Recording:
        require_schema(raw, "record", SCHEMA)
        fields = {
            "trace": trace,
            "wall_ns": raw["wall_ns"] or 0,
            "unrecorded": [each["program"] for each in raw["unrecorded"]],
            "raw": raw,
        }
        return cast(Recording, records.restore(Recording, raw | fields))

    def warnings(self) -> list[str]:
        """The parts that the trace lacks, or has only approximately."""
        lines = [
            f"{program} was not recorded: it is static or setuid, or was started with a "
            "different environment. Details: tsmalloc doctor PROGRAM"
            for program in self.unrecorded
        ]
        if self.images_without_place:
            lines.append(
                f"not recorded: {counted(self.images_without_place, 'program')}; "
                "too many ran at once."
            )
        if self.images_without_room:
            lines.append(
                f"not recorded: {counted(self.images_without_room, 'program')}; a limit on address "
                "space (ulimit -v) leaves no room for the ring. To shrink it: --ring-mib 1"
            )
        lost = sum(image.lost_events for image in self.images)
        if lost:
            lines.append(
                f"{counted(lost, 'event')} lost: more threads ran than fit into the ring. To "
                "enlarge it: --ring-mib"
            )
        missed = sum(image.missed_frees for image in self.images)
        if missed:
            lines.append(
                f"{counted(missed, 'block')} handed out again without a recorded free; recorded "
                "as freed just before."
            )
        return lines


def record(
    trace: Path,
    command: Sequence[str],
    allocator: Allocator,
    force: bool,
    timeout_seconds: float | None,
    stdin: Path | None,
    ring_mib: int | None,
) -> Recording:
    """Runs the command once. A failing program is a result, not an error."""
    shim = paths.preloadable(paths.library("libtsmalloc-record.so"))
    arguments = ["-o", str(trace), "--shim", str(shim)]
    if force:
        arguments.append("-f")
    for key, value in allocator.env.items():
        arguments += ["--env", f"{key}={value}"]
    if allocator.path:
        arguments += ["--preload", str(allocator.path)]
    if stdin is not None:
        arguments += ["--stdin", str(stdin)]
    if timeout_seconds is not None:
        arguments += ["--timeout", f"{timeout_seconds:.9f}"]
    if ring_mib is not None:
        arguments += ["--ring-chunks", str(256 * ring_mib)]
    raw = NativeTool(paths.tool("record")).run([*arguments, "--", *command])
    recording = Recording.from_json(trace, raw)
    if recording.spawn_error:
        raise UserError(
            f"cannot start {command[0]}: {recording.spawn_error.message}.",
            "Check its name, and that it is executable.",
        )
    return recording


def summary(recording: Recording) -> str:
    each = recording.trace_bytes / recording.events if recording.events else 0.0
    size = f"{recording.trace_bytes:,} bytes ({each:.1f} each)"
    seconds = f"{recording.wall_ns / 1e9:.2f} s"
    lines = [f"{recording.trace}: {counted(recording.events, 'event')}, {size}, {seconds}"]
    largest = sorted(recording.images, key=lambda image: -image.events)
    for image in largest[:_MANY_NAMES]:
        threads = f", {image.threads} threads" if image.threads > 1 else ""
        lines.append(
            f"  image {image.image}  {image.program} on {image.allocator}: "
            f"{counted(image.events, 'event')}, {counted(image.objects, 'object')}{threads}, "
            f"{image.end}"
        )
    if len(largest) > _MANY_NAMES:
        lines.append(f"  and {counted(len(largest) - _MANY_NAMES, 'more image')} with fewer events")
    return "\n".join(lines)
