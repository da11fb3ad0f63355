"""Why one allocator is slower or larger than another, from what was counted under both.

Why: a ratio without a reason teaches nothing, and a reason without a number is a guess. A cause is
named only if its counts differ clearly, in the direction that would explain the difference, and if
that many events could cost a part of it that matters.
Refuses to: give a reason that the counts do not show. If none does, it says so, with the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tsmlab.experiments.model import Metric
from tsmlab.experiments.phrases import and_list, measure, percent

Counts = Mapping[str, float]

# What an event may cost at the most, in seconds, on a slow machine: generous, since these figures
# only rule causes out. A thread put to sleep and woken: two switches of context and a wake-up.
SLEEP_SECONDS = 50e-6
SYSTEM_CALL_SECONDS = 10e-6
# First touch of a page in a virtual machine, the zeroing of 4 KiB included.
PAGE_FAULT_SECONDS = 5e-6
PAGE_BYTES = 4096
# A miss of all caches.
CACHE_MISS_SECONDS = 0.3e-6

# What cannot cost even this share of the difference is not its reason.
SHARE_THAT_MATTERS = 0.05
# Below this share of the difference the causes named are said to be a part of it only.
SHARE_THAT_EXPLAINS = 0.5
# Counts that depend on who meets whom vary by as much as this from run to run.
BY_CHANCE = 2.0
# The others hardly vary; less than this is no difference in the allocator's behaviour.
STEADY = 1.1
# Shares that differ by less than two points do not explain anything.
SHARE_POINTS = 0.02
# Fewer sleeps than this, at some microseconds each, are lost in a run of tens of milliseconds.
FEW_WAITS = 100
# From this share of allocations on, growth is a part of what both allocators cost.
MUCH_GROWTH = 0.05
MOST_NAMED = 3


@dataclass(frozen=True)
class Cause:
    """amount: how much of it there was, None if that was not counted. each: what one may cost at
    the most, in the unit of the difference. clause: of one allocator, with its figures.

    part_of: a cause that says the same more exactly; where that is named, this one is not."""

    name: str
    title: str
    amount: Callable[[Counts], float | None]
    each: float
    factor: float
    clause: Callable[[str, Counts], str]
    brief: Callable[[Counts], str]
    part_of: str = ""


def _total(*names: str) -> Callable[[Counts], float | None]:
    def amount(counts: Counts) -> float | None:
        known = [counts[name] for name in names if name in counts]
        return sum(known) if known else None

    return amount


def _figure(counts: Counts, *names: str) -> str:
    return measure(_total(*names)(counts) or 0.0, "count")


def _beside(counts: Counts, name: str, form: Callable[[float], str]) -> str:
    """A second figure in parentheses, if it was counted and is not nothing."""
    value = counts.get(name, 0.0)
    return f" ({form(value)})" if value > 0 else ""


def _seconds(value_ns: float) -> str:
    return measure(value_ns * 1e-9, "seconds")


def _bytes(value: float) -> str:
    return measure(value, "bytes")


def _beyond(counts: Counts) -> str:
    return measure(counts.get("system_seconds", 0.0), "seconds")


# --- the causes -----------------------------------------------------------------------------------

WAITS = ("lock_waits", "page_heap_lock_waits")
MEMORY_CALLS = ("mmap_calls", "munmap_calls", "brk_calls", "mremap_calls", "madvise_calls")


def reuse_share(counts: Counts) -> float | None:
    """Of the bytes requested, how many were handed out at addresses handed out before."""
    requested = counts.get("requested_bytes", 0.0)
    reused = counts.get("reused_bytes")
    return reused / requested if reused is not None and requested > 0 else None


def _fresh_bytes(counts: Counts) -> float | None:
    """Bytes handed out where none were before."""
    share = reuse_share(counts)
    return None if share is None else (1.0 - share) * counts["requested_bytes"]


def _reuse_text(counts: Counts) -> str:
    return f"{percent(reuse_share(counts) or 0.0)} %"


def _waits_text(counts: Counts) -> str:
    together = _beside(counts, "lock_wait_ns", lambda ns: f"{_seconds(ns)} together")
    return f"{_figure(counts, *WAITS)} times{together}"


def _futex_text(counts: Counts) -> str:
    errors = _beside(counts, "futex_errors", lambda n: f"{measure(n, 'count')} in vain")
    return f"{_figure(counts, 'futex_calls')} futex calls{errors}"


TIME_CAUSES = (
    Cause(
        "lock_waits",
        "waits for a lock",
        _total(*WAITS),
        SLEEP_SECONDS,
        BY_CHANCE,
        lambda who, c: f"threads wait for a lock {_waits_text(c)} under {who}",
        lambda c: f"{_waits_text(c)} under",
    ),
    Cause(
        "futex",
        "futex calls",
        _total("futex_calls"),
        SLEEP_SECONDS,
        BY_CHANCE,
        lambda who, c: f"{who} makes {_futex_text(c)}",
        lambda c: _figure(c, "futex_calls"),
    ),
    Cause(
        "growth",
        "requests to the system for memory",
        _total("growth_calls"),
        SYSTEM_CALL_SECONDS,
        STEADY,
        lambda who, c: (
            f"{who} asks the system for memory {_figure(c, 'growth_calls')} times"
            f"{_beside(c, 'growth_bytes', _bytes)}"
        ),
        lambda c: f"{_figure(c, 'growth_calls')} times",
    ),
    Cause(
        "system_calls",
        "system calls for memory",
        _total(*MEMORY_CALLS),
        SYSTEM_CALL_SECONDS,
        STEADY,
        lambda who, c: f"{who} makes {_figure(c, *MEMORY_CALLS)} system calls for memory",
        lambda c: _figure(c, *MEMORY_CALLS),
        part_of="growth",
    ),
    Cause(
        "page_faults",
        "page faults",
        _total("page_faults"),
        PAGE_FAULT_SECONDS,
        STEADY,
        lambda who, c: f"{who} has {_figure(c, 'page_faults')} page faults",
        lambda c: _figure(c, "page_faults"),
    ),
    Cause(
        "reuse",
        "reuse of freed bytes",
        _fresh_bytes,
        PAGE_FAULT_SECONDS / PAGE_BYTES,
        STEADY,
        lambda who, c: f"of the bytes requested, {who} hands out {_reuse_text(c)} a second time",
        _reuse_text,
    ),
    Cause(
        "search",
        "free blocks searched",
        _total("blocks_searched"),
        CACHE_MISS_SECONDS,
        STEADY,
        lambda who, c: (
            f"{who} looks at {measure(c.get('blocks_searched', 0.0), 'count')} free blocks in "
            f"{measure(c.get('searches', 0.0), 'count')} searches"
        ),
        lambda c: (
            f"{measure(c.get('blocks_searched', 0.0), 'count')} free blocks in "
            f"{measure(c.get('searches', 0.0), 'count')} searches"
        ),
    ),
    Cause(
        "kernel",
        "time in the kernel",
        _total("system_seconds"),
        1.0,
        STEADY,
        lambda who, c: f"the kernel works {_beyond(c)} for {who}",
        lambda c: f"{_beyond(c)} for",
    ),
    Cause(
        "retries",
        "retries",
        _total("retries"),
        CACHE_MISS_SECONDS,
        BY_CHANCE,
        lambda who, c: f"{who} tries again {_figure(c, 'retries')} times after losing a race",
        lambda c: f"{_figure(c, 'retries')} times",
    ),
    Cause(
        "foreign_frees",
        "blocks freed by another thread",
        _total("foreign_frees"),
        CACHE_MISS_SECONDS,
        BY_CHANCE,
        lambda who, c: (
            f"under {who} {_figure(c, 'foreign_frees')} blocks are freed by another thread"
        ),
        lambda c: _figure(c, "foreign_frees"),
    ),
)

# Bytes that are mapped are no memory yet: some allocators reserve a terabyte of addresses.
MEMORY_CAUSES = (
    Cause(
        "reuse",
        "reuse of freed bytes",
        _fresh_bytes,
        1.0,
        STEADY,
        TIME_CAUSES[5].clause,
        _reuse_text,
    ),
    Cause(
        "growth",
        "bytes that the heap grew by",
        _total("growth_bytes"),
        1.0,
        STEADY,
        lambda who, c: f"{who} grows its heap by {_bytes(c.get('growth_bytes', 0.0))}",
        lambda c: _bytes(c.get("growth_bytes", 0.0)),
    ),
    Cause(
        "free",
        "free bytes held",
        _total("free_bytes_at_snapshot"),
        1.0,
        STEADY,
        lambda who, c: f"{who} holds {_bytes(c.get('free_bytes_at_snapshot', 0.0))} of free blocks",
        lambda c: _bytes(c.get("free_bytes_at_snapshot", 0.0)),
    ),
)


# --- which of them differ -------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One allocator (or one point) with its counts; `name` is how the sentences call it."""

    name: str
    counts: Counts


@dataclass(frozen=True)
class Reasons:
    """named: clauses about the causes that explain the difference, strongest first. against: those
    that would explain the opposite. bound: the most that the named ones may cost, as a share of
    the difference, None if that is unknown. counted: whether anything was counted on both sides."""

    named: list[str]
    against: list[str]
    shown: list[str]
    names: list[str]
    bound: float | None
    counted: bool


def causes_of(metric: Metric) -> tuple[Cause, ...]:
    """What may explain a difference in it; counts are not explained by other counts."""
    if metric.unit == "seconds" or metric.higher_is_better:
        return TIME_CAUSES
    return MEMORY_CAUSES if metric.unit == "bytes" else ()


def reasons(
    causes: Sequence[Cause], more: Side, less: Side, gap: float | None, show: Sequence[str] = ()
) -> Reasons:
    """Why `more` needs more than `less`. gap: by how much, in seconds or bytes, if that is known.
    show: causes whose counts are told even if they are none of the reasons."""
    known = [c for c in causes if _both(c, more, less)]
    found = {c.name: _bound(c, more, less, gap) for c in known}
    opposite = {c.name: _bound(c, less, more, gap) for c in known}
    named = _strongest(known, found, show)
    against = _strongest(known, opposite, show)
    total = sum(found[c.name] or 0.0 for c in named)
    taken = {c.name for c in (*named, *against)}
    return Reasons(
        named=[_both_sides(c, more, less) for c in named],
        against=[_both_sides(c, less, more) for c in against],
        shown=[
            _both_sides(c, more, less)
            for c in known
            if c.name in show and c.name not in taken and c.part_of not in taken
        ],
        names=[c.name for c in named],
        bound=None if gap is None or gap <= 0.0 else total / gap,
        counted=bool(known),
    )


def _both(cause: Cause, one: Side, other: Side) -> bool:
    return all(cause.amount(side.counts) is not None for side in (one, other))


def _bound(cause: Cause, more: Side, less: Side, gap: float | None) -> float | None:
    """What the additional events may cost at the most; None if the difference is not clear, or too
    small to be a reason."""
    large, small = (cause.amount(side.counts) or 0.0 for side in (more, less))
    if large < cause.factor * small or large <= small:
        return None
    if cause.name == "reuse":
        shares = [reuse_share(side.counts) or 0.0 for side in (more, less)]
        if shares[1] - shares[0] < SHARE_POINTS:
            return None
    cost = _measured_wait(cause, more, less)
    bound = (large - small) * cause.each if cost is None else cost
    return None if gap is not None and bound < SHARE_THAT_MATTERS * gap else bound


def _measured_wait(cause: Cause, more: Side, less: Side) -> float | None:
    """Waiting is timed by some heaps, and then needs no guess."""
    if cause.name != "lock_waits" or not all("lock_wait_ns" in s.counts for s in (more, less)):
        return None
    return (more.counts["lock_wait_ns"] - less.counts["lock_wait_ns"]) * 1e-9


def _strongest(
    causes: Sequence[Cause], bounds: Mapping[str, float | None], show: Sequence[str]
) -> list[Cause]:
    """The few that may cost most, and all that are asked for: none of these is said to be no
    reason because others are stronger."""
    able = [c for c in causes if bounds[c.name] is not None]
    names = {c.name for c in able}
    able = [c for c in able if c.part_of not in names]
    ranked = sorted(able, key=lambda c: -(bounds[c.name] or 0.0))
    return [c for place, c in enumerate(ranked) if place < MOST_NAMED or c.name in show]


def _both_sides(cause: Cause, first: Side, second: Side) -> str:
    return f"{cause.clause(first.name, first.counts)}, {_short(cause, second)}"


def _short(cause: Cause, side: Side) -> str:
    """The other side, without its verb."""
    text = cause.brief(side.counts)
    return f"{text} {side.name}" if text.endswith((" under", " for")) else f"{side.name} {text}"


# --- sentences ------------------------------------------------------------------------------------


def why(found: Reasons, more: Side, less: Side, where: str = "") -> list[str]:
    """The reasons in sentences; if there are none, that. where: " at 4 threads", if it matters."""
    if not found.counted:
        return [
            f"Why cannot be told{where}: no count is known of both {more.name} and {less.name}."
        ]
    shown = "; ".join(found.shown)
    against = "; ".join(found.against)
    if not found.named:
        sentences = [f"The counts do not show why{where}{f': {shown}' if shown else ''}."]
        if against:
            sentences.append(f"What differs speaks against it: {against}.")
        return sentences
    head = "The reason that the counts show" if len(found.named) == 1 else "The counts show why"
    sentences = [f"{head}{where}: {'; '.join(found.named)}."]
    if found.bound is not None and found.bound < SHARE_THAT_EXPLAINS:
        sentences.append("That can be a part of the difference only; the rest was not counted.")
    if against:
        sentences.append(f"What else differs speaks against it: {against}.")
    if shown:
        sentences.append(f"No reason is seen in this: {shown}.")
    return sentences


def common_ground(first: Side, second: Side, where: str = "") -> list[str]:
    """What costs both the same, and so keeps them close to each other. where: at which point."""
    sentences = []
    shares = [growth_share(side.counts) for side in (first, second)]
    known = [share for share in shares if share is not None and share >= MUCH_GROWTH]
    if len(known) == len(shares) and max(known) < STEADY * min(known):
        texts = [f"{percent(share)} %" for share in known]
        sentences.append(
            f"At {and_list(list(dict.fromkeys(texts)))} of the allocations{where} {first.name} and "
            f"{second.name} find no free block and ask the system for memory: over that part "
            f"neither can win."
        )
    waits = [_total(*WAITS)(side.counts) for side in (first, second)]
    if all(count is not None and count < FEW_WAITS for count in waits):
        texts = [measure(count or 0.0, "count") for count in waits]
        sentences.append(
            f"Hardly a thread waits for a lock under either{where} ({and_list(texts)} times), so "
            f"there is little to be saved by sharing less."
        )
    return sentences


def growth_share(counts: Counts) -> float | None:
    """Of the allocations, how many made the heap grow."""
    allocations = counts.get("allocations", 0.0)
    calls = counts.get("growth_calls")
    return calls / allocations if calls is not None and allocations > 0 else None
