"""A profile as text: tables in a terminal, with an error beside each sum.

The first question is "which line, how much, and is that so or chance?".
"""

import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from tsmlab.profile.changes import Changed, Changes
from tsmlab.profile.estimates import Estimate
from tsmlab.profile.model import BLOCKS_PER_PROXY, WORDS, Frame, Profile, Type
from tsmlab.profile.names import shortened
from tsmlab.profile.sites import By, Place, Sites
from tsmlab.tables import COMPACT, ROOMY, Cell, Column, Sheet, narrowed, stdout_width, table_width
from tsmlab.wording import counted, quantity, share

# So late, sampling begins with the process.
LATE_SECONDS = 1.0
# Sides that differ by more than this are told apart.
EVEN_SIDES = 1.25
PATH_FRAMES = 6
# Of what is live: less free room in slabs is not worth a line.
PINNED_SHOWN = 0.05
LEAST_NAME_WIDTH = 24
VERDICT_STYLES = {"grew": "red", "shrank": "green"}
KINDS = {
    "exit": "at its exit",
    "peak": "at its peak",
    "limit": "near its limit",
    "now": "while it ran",
}


def error(estimate: Estimate) -> str:
    """The 95 % interval, in hundredths of the sum."""
    low, high = estimate.interval()
    if not estimate.total:
        return ""
    down, up = 1.0 - low / estimate.total, high / estimate.total - 1.0
    if max(down, up) < 0.0005:
        return "exact"
    if max(down, up) <= EVEN_SIDES * min(down, up):
        return f"±{_percent(max(down, up))} %"
    return f"-{_percent(down)} +{_percent(up)} %"


def _percent(fraction: float) -> str:
    return f"{100.0 * fraction:.{1 if fraction < 0.0995 else 0}f}"


def _sum(estimate: Estimate) -> str:
    return f"{quantity(estimate.total, 'bytes')} {error(estimate)}".rstrip()


def signed(value: float) -> str:
    text = quantity(abs(value), "bytes")
    return text if not round(value) else f"{'+' if value > 0.0 else '-'}{text}"


def duration(seconds: float) -> str:
    """An age, in its two largest units."""
    whole = round(seconds)
    if whole < 10:
        return quantity(seconds, "seconds") if seconds else "0 s"
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    at = next(number for number, (size, _) in enumerate(units) if whole >= size)
    size, name = units[at]
    rest = whole % size // units[at + 1][0] if at + 1 < len(units) else 0
    return f"{whole // size} {name}" + (f" {rest} {units[at + 1][1]}" if rest else "")


def title(profile: Profile) -> list[str]:
    """The process of the profile, and its moment."""
    name = profile.comment("command") or profile.path.name
    pid = f" (pid {profile.pid})" if profile.pid is not None else ""
    kind = KINDS.get(profile.comment("kind") or "", "")
    when = ""
    if profile.time_nanos > 0:
        taken = datetime.fromtimestamp(profile.time_nanos / 1e9, UTC)
        when = f"{taken:%Y-%m-%d %H:%M:%S} UTC"
    return [part for part in (f"{name}{pid}", kind, when) if part]


def _title(profile: Profile) -> str:
    return ", ".join(title(profile))


def uncovered(profile: Profile) -> float:
    """Bytes in use that no sample stands for, since they are from before sampling began, or from a
    pause; 0 where chance may have made the difference."""
    if profile.in_use is None or not _is_partial(profile):
        return 0.0
    blocks = Estimate()
    for row in profile.rows:
        blocks.add(row.live, row.block, row.probability)
    return max(0.0, profile.in_use - blocks.total) if profile.in_use > blocks.interval()[1] else 0.0


def _is_partial(profile: Profile) -> bool:
    return max(profile.began_after, profile.paused) >= LATE_SECONDS


def coverage(profile: Profile) -> list[str]:
    """Since when it samples, and how much of the memory is from before, if it is not all of it."""
    if not _is_partial(profile):
        return []
    began = datetime.fromtimestamp((profile.time_nanos - profile.duration_nanos) / 1e9, UTC)
    since = f"samples since {began:%H:%M:%S} UTC, {duration(profile.began_after)} after the start"
    if profile.paused >= LATE_SECONDS:
        since += f", but for {duration(profile.paused)}"
    missing = uncovered(profile)
    if not missing or profile.in_use is None:
        return [f"{since}: what was allocated before is not in it"]
    sizes = (quantity(size, "bytes") for size in (missing, profile.in_use))
    return [f"{since}: about {' of '.join(sizes)} in use were allocated before, and are not in it"]


def sampling_notes(profile: Profile, notes: Sequence[str]) -> list[str]:
    """How it was sampled, what was lost, and what could not be named."""
    lines = []
    if profile.period:
        lines.append(f"one sample in {quantity(profile.period, 'bytes')} on average")
    if profile.dropped:
        dropped = counted(profile.dropped, "sample")
        lines.append(f"dropped for want of room: {dropped}; all sums are too small")
    cut = sum(row.allocs for row in profile.rows if row.cut)
    if cut:
        whole = sum(row.allocs for row in profile.rows)
        lines.append(f"{share(cut / whole)} of all samples have a stack that is not whole")
    return lines + list(notes)


def shown(
    profile: Profile,
    sites: Sites,
    by: By,
    of: Type,
    top: int,
    notes: Sequence[str],
    with_ages: bool = False,
) -> str:
    """The report of `show`; with ages, that of `leaks` of one look."""
    lines = [_title(profile), *coverage(profile)]
    if not sites.total.samples:
        lines += [f"Nothing that is {WORDS[of]} was sampled.", "", *sampling_notes(profile, notes)]
        return _printed(lines)
    lines.append(_of_all(sites, of))
    if of == "inuse":
        lines += _pinned(profile)
    rows, whole = sites.sites[:top], sites.total.total or 1.0
    columns = [
        Column("bytes" if by == "stack" else "flat", [_bytes(site.flat) for site in rows]),
        Column("± 95 %", [Cell(error(site.flat), "dim") for site in rows]),
        Column("share", [Cell(share(site.flat.total / whole)) for site in rows]),
    ]
    if by == "stack":
        objects = [Cell(quantity(site.objects.total, "count")) for site in rows]
        columns.append(Column("objects", objects, expendable=int(with_ages)))
    else:
        errors = [Cell(error(site.cumulative), "dim") for site in rows]
        columns.append(Column("cumulative", [_bytes(site.cumulative) for site in rows]))
        columns.append(Column("± 95 %", errors, expendable=1))
    after = _more(len(sites.sites), top)
    if with_ages:
        columns.append(Column("mean age", [_age(site.ages.mean) for site in rows]))
        after.append("live is not lost: a second look, some time later, tells what grows")
    if of == "pinned":
        most = quantity(profile.period / BLOCKS_PER_PROXY, "bytes")
        after.append(f"known of blocks up to {most}; of larger ones, few share a slab")
    return _printed(lines, columns, rows, [*after, *sampling_notes(profile, notes)])


def _of_all(sites: Sites, of: Type) -> str:
    objects = f"{quantity(sites.objects.total, 'count')} objects"
    blocks = quantity(sites.blocks, "bytes")
    if of == "pinned":
        return f"{_sum(sites.total)} free in slabs, pinned by {objects} of {blocks}"
    more = sites.blocks / sites.total.total - 1.0 if sites.total.total else 0.0
    rounding = f"; blocks take {share(more)} more" if more >= 0.0005 else ""
    samples = counted(sites.total.samples, "sample")
    total = quantity(sites.total.total, "bytes")
    return f"{total} {WORDS[of]} {error(sites.total)}, {objects}, {samples}{rounding}"


def _pinned(profile: Profile) -> list[str]:
    """How much of slabs is free beside what is live, if it is much."""
    pinned = Estimate()
    for row in profile.rows:
        pinned.add(row.pinning, row.size("pinned"), row.probability)
    live = sum(row.live_space for row in profile.rows)
    if pinned.total < PINNED_SHOWN * live:
        return []
    return [f"{_sum(pinned)} more are free beside them, in slabs: --type pinned lists the sites"]


def difference(
    before: Profile, after: Profile, changes: Changes, top: int, notes: Sequence[str]
) -> str:
    """The report of `diff`."""
    total = changes.total
    lines = [
        f"before  {_title(before)}: {_sum(total.before)}",
        *(f"        {line}" for line in coverage(before)),
        f"after   {_title(after)}: {_sum(total.after)}",
        *(f"        {line}" for line in coverage(after)),
        f"change  {_change(total)}, {total.verdict or 'may be chance'}",
    ]
    rows = changes.sites[:top]
    verdicts = [Cell(site.verdict, VERDICT_STYLES.get(site.verdict, "")) for site in rows]
    columns = [
        Column("change [95 % CI]", [Cell(_change(site)) for site in rows]),
        Column("verdict", verdicts, left=True),
        Column("before", [_bytes(site.before) for site in rows], expendable=1),
        Column("after", [_bytes(site.after) for site in rows], expendable=2),
    ]
    apart = [] if changes.shares_samples else ["no sample is in both: their errors add up"]
    more = _more(len(changes.sites), top)
    return _printed(lines, columns, rows, [*more, *apart, *_dropped(before, after), *notes])


def growth(
    before: Profile, after: Profile, changes: Changes, top: int, notes: Sequence[str]
) -> str:
    """The report of `leaks` of two looks."""
    total, seconds = changes.total, changes.seconds
    lines = [_title(after)]
    if not changes.same_process:
        lines.append(
            f"the first look is of another process, or of earlier sampling: {_title(before)}"
        )
    span = f"in {duration(seconds)}" if seconds else "since the first look"
    lines.append(
        f"{quantity(total.after.total, 'bytes')} live {error(total.after)}; "
        f"{span} {_change(total)}, {total.verdict or 'may be chance'}"
    )
    lost = [*_dropped(before, after), *notes]
    grown = sorted(changes.grown, key=lambda site: -site.change.total)
    if not grown:
        return _printed([*lines, "No site is shown to have grown."], after=lost)
    rows = grown[:top]
    columns = [
        Column("grown by [95 % CI]", [Cell(_change(site)) for site in rows]),
        Column("live", [_bytes(site.after) for site in rows]),
        Column("mean age", [_age(site.ages.mean) for site in rows], expendable=1),
    ]
    if seconds:
        hourly = [Cell(f"{signed(site.change.total * 3600.0 / seconds)}/h") for site in rows]
        columns.insert(1, Column("rate", hourly))
    more = _more(len(grown), top)
    if other := len(changes.sites) - len(grown):
        more.append(f"not shown to have grown: {counted(other, 'other site')}")
    return _printed(lines, columns, rows, [*more, *lost])


# --- parts of them --------------------------------------------------------------------------------


def _bytes(estimate: Estimate) -> Cell:
    return Cell(quantity(estimate.total, "bytes") if estimate.samples else "-")


def _age(seconds: float | None) -> Cell:
    return Cell("" if seconds is None else duration(seconds))


def _change(site: Changed) -> str:
    low, high = site.change.interval()
    return f"{signed(site.change.total)} [{signed(low)}, {signed(high)}]"


def _dropped(before: Profile, after: Profile) -> list[str]:
    if not before.dropped and not after.dropped:
        return []
    lost = f"{before.dropped:,} and {after.dropped:,}"
    return [f"{lost} samples were dropped for want of room: all sums are too small"]


def _more(count: int, top: int) -> list[str]:
    return [f"{count - top:,} more: --top N"] if count > top else []


# --- tables with names ----------------------------------------------------------------------------


def _printed(
    before: Sequence[str],
    columns: Sequence[Column] = (),
    places: Sequence[Place] = (),
    after: Sequence[str] = (),
) -> str:
    """Lines, a table with the places behind it, and under each the path that leads there; lines."""
    sheet = Sheet(stdout_width(), sys.stdout.isatty())
    sheet.say(*before)
    if columns:
        sheet.gap()
        _print_table(sheet, columns, places)
    if after:
        sheet.gap()
    sheet.say(*after, style="dim")
    return sheet.text


def _print_table(sheet: Sheet, columns: Sequence[Column], places: Sequence[Place]) -> None:
    layout = ROOMY if sheet.width >= 100 else COMPACT
    kept = narrowed(columns, layout, sheet.width - LEAST_NAME_WIDTH)
    left = table_width(kept, layout) + layout.gap
    room = max(LEAST_NAME_WIDTH, sheet.width - left)
    sites = Column("site", [Cell(fitted(place.frame, room)) for place in places], left=True)
    table = Sheet(left + room, sheet.colours)
    table.table([*kept, sites], layout)
    header, *rows = map(str.rstrip, table.text.splitlines())
    sheet.say(Text.from_ansi(header))
    for row, place in zip(rows, places, strict=True):
        sheet.say(Text.from_ansi(row))
        for line in path_lines(place.path, sheet.width - 8):
            sheet.say(f"        {line}", style="dim")


def path_lines(path: Sequence[Frame], width: int) -> list[str]:
    """The callers of the site, as one wrapped sentence."""
    callers = [fitted(frame, 60) for frame in path[1 : 1 + PATH_FRAMES]]
    if not callers:
        return []
    more = len(path) - 1 - len(callers)
    text = " < ".join(callers) + (f" < {more} more" if more else "")
    return textwrap.wrap(f"< {text}", max(40, width), break_long_words=False)


def fitted(frame: Frame, width: int) -> str:
    """The function and its place, in so many columns. A line's number is never cut."""
    place = short_place(frame)
    name = shortened(frame.function, max(8, width - len(place) - 1) if place else width)
    if place and len(name) + 1 + len(place) > width:
        place = f"…{place[len(name) + 2 - width :]}"
    return f"{name} {place}".strip()


def short_place(frame: Frame) -> str:
    """The file with its folder, and the line; the module where there is no file."""
    if not frame.file:
        known = frame.module and not frame.function.startswith(frame.module)
        return f"({frame.module})" if known else ""
    parts = Path(frame.file).parts[-2:]
    return "/".join(part.strip("/") for part in parts) + (f":{frame.line}" if frame.line else "")
