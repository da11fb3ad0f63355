"""Replays for the tests of `tsmalloc replay`: lines as bin/replay writes them, and fake traces.

The results of a replay are compared with known numbers. The command-line tests replay real traces.
"""

import json
from pathlib import Path

from conftest import Behaviour, SimulatedExecutor, World

from tsmlab.journal import NullJournal
from tsmlab.progress import SilentReporter
from tsmlab.traces.files import Image, Trace
from tsmlab.traces.replaying import Options, replay

MIB = 1 << 20
PROGRAM = Path("/nowhere/bin/replay")
CALLS = {"malloc": 100, "calloc": 10, "aligned": 0, "realloc": 5, "free": 110, "refused": 0}
# Samples at three events: half of the peak, the peak, the end.
LIVE = ((0, 1 * MIB), (100, 2 * MIB), (225, 1 * MIB))


def line(overhead=1.5, **changes):
    """The output of replay for one process; memory is always `overhead` times the requested
    bytes."""
    samples = [[event, live, int(live * overhead), 0] for event, live in LIVE]
    done = {"calls": CALLS, "bytes": dict.fromkeys(CALLS, 1000), "peak_live_bytes": 2 * MIB}
    whole = {
        **dict.fromkeys(("latency", "ticks", "shares")),
        "schema": "tsmalloc-replay/1",
        "allocator": "liballocator.so",
        "schedule": "asap",
        "image": 0,
        **done,
        "planned": {
            **done,
            "live_bytes": MIB,
            "live_objects": 0,
            "peak_event": 100,
            "events": 225,
            "threads": 3,
            "left_out": 0,
        },
        "matches": True,
        "wall_ns": 50_000_000,
        "checksum": "00000000deadbeef",
        "samples": samples,
        "peak_resident_bytes": int(2 * MIB * overhead),
        "start_resident_bytes": 100_000,
        "end_resident_bytes": int(MIB * overhead),
        "freed_resident_bytes": 300_000,
        "settled_resident_bytes": 200_000,
        "own_bytes": 4096,
        "peak_rss_bytes": 9 * MIB,
        "children": [],
    }
    return whole | changes


def latency(*buckets):
    """For one kind of call."""
    calls = sum(number for _, number in buckets)
    longest = max(upper for upper, _ in buckets)
    return {"calls": calls, "max_ns": longest, "buckets": [list(b) for b in buckets]}


def stride(overhead=1.5, **changes):
    """With the schedule stride, tickets 3:2:1 and six ticks; the third thread missed two."""
    shares = [[0, 3, 4, 0, 3.4], [1, 2, 2, 0, 2.266667], [2, 1, 0, 2, 0.333333]]
    told = {"schedule": "stride", "ticks": 6, "shares": shares}
    return line(overhead, **(told | changes))


def behaviour(printed, **changes):
    """A run of replay that prints this. The process takes longer and needs more than the calls."""
    defaults = {"seconds": 0.2, "peak_bytes": 90 * MIB}
    return Behaviour(stdout=json.dumps(printed) + "\n", **(defaults | changes))


def looker(*others):
    """Replaces `trace info`: the one image of a trace, and the numbers and events of programs that
    are not replayed."""
    events = dict(others)
    busiest = next(number for number in range(len(events) + 1) if number not in events)
    images = [
        Image(n, "exec" if n else "root", None, 0, program, "libc.so.6", count, 1, 0, "exited")
        for n in range(max([busiest, *events]) + 1)
        for program, count in [("perl", 225) if n == busiest else ("sh", events.get(n, 0))]
    ]
    return lambda path: Trace(path, 7, True, tuple(images), ())


def options(traces, names, **changes):
    allocators = {name: World.allocator(name) for name in names}
    given = {
        "traces": tuple(traces),
        "allocators": tuple(allocators.values()),
        "reference": allocators["glibc"],
        "schedules": ("asap",),
        "seed": 7,
        "rounds": 3,
    }
    return Options(**(given | changes))


def replayed(trace, behaviours, executor=None, look=None, **changes):
    traces = [trace] if isinstance(trace, Path) else list(trace)
    for each in traces:
        if not each.exists():
            each.write_bytes(b"a trace")
    executor = executor or SimulatedExecutor(behaviours)
    asked = options(traces, list(behaviours), **changes)
    memo = NullJournal(executor.clock)
    return replay(asked, executor, SilentReporter(), PROGRAM, memo, look or looker())


def side_by_side(folder):
    """Two traces under three schedules, with latencies: everything that a page can have."""
    timed = {
        "malloc": latency((32, 900), (64, 90), (1024, 9), (20_000, 1)),
        "free": latency((16, 995), (4096, 5)),
    }
    overheads = {"glibc": 1.5, "tsmalloc": 1.25, "lock-best": 1.1, "lock-worst": 9.0}
    behaviours = {
        name: behaviour(stride(overhead, latency=timed)) for name, overhead in overheads.items()
    }
    traces = [folder / "one.tstrace", folder / ("a-long-name-" * 12 + ".tstrace")]
    names = ("round-robin", "lottery", "stride")
    return replayed(traces, behaviours, rounds=None, schedules=names, latency=True).results
