"""A profile as text: tables for a terminal, with an error next to each sum."""

import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tsmlab.profile.changes import Changes, SiteChange
from tsmlab.profile.estimates import Estimate
from tsmlab.profile.model import WORDS, Frame, Profile, Type
from tsmlab.profile.names import shortened
from tsmlab.profile.sites import GroupBy, Place, Sites
from tsmlab.tables import GAP, NARROW_GAP, Cell, Column, Sheet, narrowed, stdout_width, table_width
from tsmlab.wording import counted, quantity, share

# From this delay on, sampling is not considered to have begun with the process.
LATE_SECONDS = 1.0
# If the sides of an interval differ by more, they are printed separately.
SYMMETRIC_WITHIN = 1.25
PATH_FRAMES = 6
# As a share of the live bytes: less free room in slabs is not worth a line.
PINNED_SHOWN = 0.05
# Pinned bytes are known for blocks up to this part of the interval (profile/stranded_bytes.h).
PINNING_BLOCKS = 256
MIN_NAME_WIDTH = 24
VERDICT_STYLES = {"grew": "red", "shrank": "green"}
KINDS = {
    "exit": "at its exit",
    "peak": "at its peak",
    "limit": "near its limit",
    "now": "while it ran",
}


def error(estimate: Estimate) -> str:
    """The 95% interval, in percent of the sum."""
    low, high = estimate.interval()
    if not estimate.total:
        return ""
    down, up = 1.0 - low / estimate.total, high / estimate.total - 1.0
    if max(down, up) < 0.0005:
        return "exact"
    if max(down, up) <= SYMMETRIC_WITHIN * min(down, up):
        return f"±{_percent(max(down, up))}%"
    return f"-{_percent(down)} +{_percent(up)}%"


def _percent(fraction: float) -> str:
    return f"{100.0 * fraction:.{1 if fraction < 0.0995 else 0}f}"


def _bytes(estimate: Estimate) -> str:
    return quantity(estimate.total, "bytes") if estimate.samples else "-"


def _sum(estimate: Estimate) -> str:
    return f"{quantity(estimate.total, 'bytes')} {error(estimate)}".rstrip()


def _signed(value: float) -> str:
    text = quantity(abs(value), "bytes")
    return text if not round(value) else f"{'+' if value > 0.0 else '-'}{text}"


def _change(site: SiteChange) -> str:
    low, high = site.change.interval()
    return f"{_signed(site.change.total)} [{_signed(low)}, {_signed(high)}]"


def duration(seconds: float | None) -> str:
    """An age, in its two largest units; empty if unknown."""
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 10:
        return quantity(seconds, "seconds") if seconds else "0 s"
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    at = next(number for number, (size, _) in enumerate(units) if whole >= size)
    size, name = units[at]
    rest = whole % size // units[at + 1][0] if at + 1 < len(units) else 0
    return f"{whole // size} {name}" + (f" {rest} {units[at + 1][1]}" if rest else "")


def title(profile: Profile) -> str:
    name = profile.comment("command") or profile.path.name
    pid = f" (pid {profile.pid})" if profile.pid is not None else ""
    kind = KINDS.get(profile.comment("kind") or "", "")
    when = ""
    if profile.time_nanos > 0:
        taken = datetime.fromtimestamp(profile.time_nanos / 1e9, UTC)
        when = f"{taken:%Y-%m-%d %H:%M:%S} UTC"
    return ", ".join(part for part in (f"{name}{pid}", kind, when) if part)


def uncovered(profile: Profile) -> float:
    """Bytes in use that no sample represents, because they are from before sampling began, or from
    a pause; 0 if chance may explain the difference."""
    if profile.in_use is None or max(profile.began_after, profile.paused) < LATE_SECONDS:
        return 0.0
    blocks = Estimate()
    for row in profile.rows:
        blocks.add(row.live, row.block, row.probability)
    return max(0.0, profile.in_use - blocks.total) if profile.in_use > blocks.interval()[1] else 0.0


def coverage(profile: Profile) -> list[str]:
    """When sampling began, and how much of the memory is from before, if not all of it is
    covered."""
    if max(profile.began_after, profile.paused) < LATE_SECONDS:
        return []
    began = datetime.fromtimestamp((profile.time_nanos - profile.duration_nanos) / 1e9, UTC)
    since = f"sampling since {began:%H:%M:%S} UTC, {duration(profile.began_after)} after the start"
    if profile.paused >= LATE_SECONDS:
        since += f", except for {duration(profile.paused)}"
    missing = uncovered(profile)
    if not missing or profile.in_use is None:
        return [f"{since}: earlier allocations are not included"]
    sizes = (quantity(size, "bytes") for size in (missing, profile.in_use))
    return [
        f"{since}: about {' of '.join(sizes)} in use were allocated earlier, and are not included"
    ]


def summary(profile: Profile, sites: Sites, of: Type) -> list[str]:
    if not sites.total.samples:
        earlier = "blocks from before sampling began are not sampled"
        remedy = "to cover all, start the program with TSMALLOC_PROFILE=on"
        return [f"No samples are {WORDS[of]}.", f"({earlier}: {remedy})"]
    objects = f"{quantity(sites.objects.total, 'count')} objects"
    if of == "pinned":
        blocks = quantity(sites.blocks, "bytes")
        return [f"{_sum(sites.total)} free in slabs, pinned by {objects} of {blocks}"]
    total = quantity(sites.total.total, "bytes")
    samples = counted(sites.total.samples, "sample")
    more = sites.blocks / sites.total.total - 1.0 if sites.total.total else 0.0
    rounding = f"; blocks take {share(more)} more" if more >= 0.0005 else ""
    lines = [f"{total} {WORDS[of]} {error(sites.total)}, {objects}, {samples}{rounding}"]
    pinned = Estimate()
    for row in profile.rows if of == "inuse" else ():
        pinned.add(row.pinning, row.size("pinned"), row.probability)
    if pinned.total and pinned.total >= PINNED_SHOWN * sites.total.total:
        lines.append(
            f"{_sum(pinned)} more are free beside them, in slabs: --type pinned lists the sites"
        )
    return lines


def sampling_notes(profile: Profile, notes: Sequence[str]) -> list[str]:
    """How it was sampled, what was lost, and what has no name."""
    lines = []
    if profile.period:
        lines.append(f"one sample in {quantity(profile.period, 'bytes')} on average")
    if profile.dropped:
        dropped = counted(profile.dropped, "sample")
        lines.append(f"{dropped} dropped, as the buffers were full; all sums are too small")
    cut = sum(row.allocs for row in profile.rows if row.cut)
    if cut:
        whole = sum(row.allocs for row in profile.rows)
        lines.append(f"{share(cut / whole)} of all samples have a truncated stack")
    return lines + list(notes)


def shown(
    profile: Profile,
    sites: Sites,
    by: GroupBy,
    of: Type,
    top: int,
    notes: Sequence[str],
    with_ages: bool = False,
) -> str:
    before = [title(profile), *coverage(profile), *summary(profile, sites, of)]
    after = sampling_notes(profile, notes)
    if not sites.total.samples:
        return _printed(before, after=after)
    rows, whole = sites.sites[:top], sites.total.total or 1.0
    columns = [
        _column("bytes" if by == "stack" else "flat", [_bytes(site.flat) for site in rows]),
        _column("± 95%", [error(site.flat) for site in rows], style="dim"),
        _column("share", [share(site.flat.total / whole) for site in rows]),
    ]
    if by == "stack":
        objects = [quantity(site.objects.total, "count") for site in rows]
        columns.append(_column("objects", objects, drop_priority=int(with_ages)))
    else:
        errors = [error(site.cumulative) for site in rows]
        columns.append(_column("cumulative", [_bytes(site.cumulative) for site in rows]))
        columns.append(_column("± 95%", errors, style="dim", drop_priority=1))
    remarks = _more(len(sites.sites), top)
    if with_ages:
        columns.append(_column("mean age", [duration(site.ages.mean) for site in rows]))
        remarks.append("live is not leaked: a second profile, some time later, shows what grows")
    if of == "pinned":
        largest = quantity(profile.period / PINNING_BLOCKS, "bytes")
        remarks.append(f"known for blocks of up to {largest}; few larger ones share a slab")
    return _printed(before, columns, rows, remarks + after)


def difference(
    before: Profile, after: Profile, changes: Changes, top: int, notes: Sequence[str]
) -> str:
    total = changes.total
    lines = [
        f"before  {title(before)}: {_sum(total.before)}",
        *(f"        {line}" for line in coverage(before)),
        f"after   {title(after)}: {_sum(total.after)}",
        *(f"        {line}" for line in coverage(after)),
        f"change  {_change(total)}, {total.verdict or 'may be chance'}",
    ]
    rows = changes.sites[:top]
    verdicts = [Cell(site.verdict, VERDICT_STYLES.get(site.verdict, "")) for site in rows]
    columns = [
        _column("change [95% CI]", [_change(site) for site in rows]),
        Column("verdict", verdicts, left=True),
        _column("before", [_bytes(site.before) for site in rows], drop_priority=1),
        _column("after", [_bytes(site.after) for site in rows], drop_priority=2),
    ]
    apart = [] if changes.shares_samples else ["they share no samples: their errors add up"]
    more = _more(len(changes.sites), top)
    return _printed(lines, columns, rows, [*more, *apart, *_dropped(before, after), *notes])


def growth(
    before: Profile, after: Profile, changes: Changes, top: int, notes: Sequence[str]
) -> str:
    total, seconds = changes.total, changes.seconds
    lines = [title(after)]
    if not changes.same_process:
        lines.append(
            f"the first profile is of another process, or of an earlier sampling period: "
            f"{title(before)}"
        )
    span = f"in {duration(seconds)}" if seconds else "since the first profile"
    lines.append(
        f"{quantity(total.after.total, 'bytes')} live {error(total.after)}; "
        f"{span} {_change(total)}, {total.verdict or 'may be chance'}"
    )
    lost = [*_dropped(before, after), *notes]
    grown = sorted(changes.grown, key=lambda site: -site.change.total)
    if not grown:
        return _printed([*lines, "No site has reliably grown."], after=lost)
    rows = grown[:top]
    columns = [
        _column("grown by [95% CI]", [_change(site) for site in rows]),
        _column("live", [_bytes(site.after) for site in rows]),
        _column("mean age", [duration(site.ages.mean) for site in rows], drop_priority=1),
    ]
    if seconds:
        hourly = [f"{_signed(site.change.total * 3600.0 / seconds)}/h" for site in rows]
        columns.insert(1, _column("rate", hourly))
    more = _more(len(grown), top)
    if other := len(changes.sites) - len(grown):
        more.append(f"not reliably grown: {counted(other, 'other site')}")
    return _printed(lines, columns, rows, [*more, *lost])


def _dropped(before: Profile, after: Profile) -> list[str]:
    if not before.dropped and not after.dropped:
        return []
    lost = f"{before.dropped:,} and {after.dropped:,}"
    return [f"{lost} samples were dropped, as the buffers were full: all sums are too small"]


def _more(count: int, top: int) -> list[str]:
    return [f"{count - top:,} more; show them with --top N"] if count > top else []


def _column(header: str, texts: Sequence[str], style: str = "", drop_priority: int = 0) -> Column:
    return Column(header, [Cell(text, style) for text in texts], drop_priority=drop_priority)


def _printed(
    before: Sequence[str],
    columns: Sequence[Column] = (),
    places: Sequence[Place] = (),
    after: Sequence[str] = (),
) -> str:
    """Lines, a table whose last column has the sites, each with its callers, and more lines."""
    sheet = Sheet(stdout_width(), sys.stdout.isatty())
    sheet.write_lines(*before)
    if columns:
        sheet.gap()
        gap = GAP if sheet.width >= 100 else NARROW_GAP
        kept = narrowed(columns, gap, sheet.width - MIN_NAME_WIDTH)
        room = max(MIN_NAME_WIDTH, sheet.width - table_width(kept, gap) - gap)
        sites = [
            Cell("\n".join([fitted(p.frame, room), *path_lines(p.path, room)])) for p in places
        ]
        sheet.table([*kept, Column("site", sites, left=True)], gap)
    if after:
        sheet.gap()
    sheet.write_lines(*after, style="dim")
    return "".join(f"{line.rstrip()}\n" for line in sheet.text.splitlines())


def path_lines(path: Sequence[Frame], width: int) -> list[str]:
    """The callers of the site, as one wrapped sentence."""
    callers = [f"< {fitted(frame, width - 4)}" for frame in path[1 : 1 + PATH_FRAMES]]
    if more := len(path) - 1 - len(callers) if path else 0:
        callers.append(f"< {more} more")
    return textwrap.wrap(
        " ".join(callers),
        width,
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
    )


def fitted(frame: Frame, width: int) -> str:
    """The function and its place, in this many columns. A line number is never cut."""
    place = short_place(frame)
    name = shortened(frame, max(8, width - len(place) - 1) if place else width)
    if place and len(name) + 1 + len(place) > width:
        place = f"…{place[len(name) + 2 - width :]}"
    return f"{name} {place}".strip()


def short_place(frame: Frame) -> str:
    """The file with its folder, and the line; the module if there is no file."""
    if not frame.file:
        known = frame.module and not frame.function.startswith(frame.module)
        return f"({frame.module})" if known else ""
    parts = Path(frame.file).parts[-2:]
    return "/".join(part.strip("/") for part in parts) + (f":{frame.line}" if frame.line else "")
