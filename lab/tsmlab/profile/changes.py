"""The changes between two profiles, with errors: of one process at two times, or of two processes.

A leak grows from one profile to the next, but some site always grows a bit by chance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tsmlab.profile.estimates import Change, Estimate, family_wise
from tsmlab.profile.model import Frame, Profile, Row, Type, printable
from tsmlab.profile.sites import GroupBy, Key, Place, Stacks, key_of

# Tolerance for adjustments of the clock.
SAME_START_NANOS = 2_000_000_000
# Addresses, size class, interval, and whether the stack is cut.
RowKey = tuple[tuple[int, ...], int, int, bool]


@dataclass(frozen=True)
class LoadedProfile:
    """notes: about names and lines that were not found."""

    profile: Profile
    stacks: Stacks
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RowChange:
    """The samples of a row before and after: how many disappeared and, at most, appeared in
    between."""

    frames: tuple[Frame, ...]
    row: Row
    before: int
    after: int
    disappeared: int
    appeared: int
    size: float
    objects: int  # of the later samples


@dataclass
class SiteChange(Place):
    before: Estimate = field(default_factory=Estimate)
    after: Estimate = field(default_factory=Estimate)
    disappeared: Estimate = field(default_factory=Estimate)
    appeared: Estimate = field(default_factory=Estimate)
    verdict: str = ""  # grew, shrank, or empty

    @property
    def change(self) -> Change:
        return Change(self.disappeared, self.appeared)

    def add(self, row_change: RowChange) -> None:
        p = row_change.row.probability
        for name in ("before", "after", "disappeared", "appeared"):
            getattr(self, name).add(getattr(row_change, name), row_change.size, p)
        self.objects.add(row_change.objects, 1.0, p)
        self.ages.add(row_change.row, row_change.objects)

    def judge(self, z: float) -> None:
        low, high = self.change.interval(z)
        self.verdict = "grew" if low > 0.0 else "shrank" if high < 0.0 else ""

    def to_json(self) -> dict[str, Any]:
        low, high = self.change.interval()
        return super().to_json() | {
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "change": {"bytes": round(self.change.total), "low": round(low), "high": round(high)},
            "verdict": self.verdict,
        }


@dataclass
class Changes:
    """All sites of two profiles, sorted by their change."""

    total: SiteChange
    sites: list[SiteChange]
    same_process: bool
    shares_samples: bool
    seconds: float | None  # between two profiles of one process

    @property
    def grown(self) -> list[SiteChange]:
        return [site for site in self.sites if site.verdict == "grew"]


def between(before: LoadedProfile, after: LoadedProfile, by: GroupBy, of: Type) -> Changes:
    earlier, later = before.profile, after.profile
    same = is_same_process(earlier, later)
    sites: dict[Key, SiteChange] = {}
    total = SiteChange(Frame("total"))
    shares = same and of != "pinned"  # pinned bytes change with every block of a slab
    for row_change in _shared(before, after, of) if shares else _apart(before, after, of):
        total.add(row_change)
        key = row_change.frames if by == "stack" else key_of(row_change.frames[0], by)
        path = row_change.frames if by == "stack" else ()
        (sites.get(key) or sites.setdefault(key, SiteChange(row_change.frames[0], path))).add(
            row_change
        )
    for site in sites.values():
        site.judge(family_wise(len(sites)))
    total.judge(family_wise(1))
    nanos = later.time_nanos - earlier.time_nanos
    return Changes(
        total=total,
        sites=sorted(sites.values(), key=lambda s: (-abs(s.change.total), s.frame.label)),
        same_process=same,
        shares_samples=shares,
        seconds=nanos / 1e9 if same and nanos > 0 else None,
    )


def is_same_process(earlier: Profile, later: Profile) -> bool:
    """Whether the profiles share samples: counts of allocations never fall in one process."""
    if earlier.pid is None or earlier.pid != later.pid:
        return False
    if earlier.comment("command") != later.comment("command"):
        return False
    # The first process of every container has the same ID.
    began, again = earlier.process_began_nanos, later.process_began_nanos
    if began is not None and again is not None and abs(again - began) > SAME_START_NANOS:
        return False
    counts = _by_key(later)
    return all(
        key in counts and row.allocs <= counts[key].allocs for key, row in _by_key(earlier).items()
    )


def other_builds(earlier: Profile, later: Profile) -> list[str]:
    """Notes about files that are, or may be, another build in the later profile."""
    before, after = _build_ids(earlier), _build_ids(later)
    notes = []
    for file in sorted(before.keys() & after.keys()):
        name = printable(file.rpartition("/")[2])
        if before[file] != after[file]:
            notes.append(
                f"{name} is a different build in the later profile: its lines may have moved"
            )
        elif not before[file] and not is_same_process(earlier, later):
            notes.append(
                f"{name} has no build id: it may be a different build in the later profile"
            )
    return notes


def _build_ids(profile: Profile) -> dict[str, str]:
    mappings = (each.mapping for each in profile.locations.values())
    return {m.file: m.build_id for m in mappings if m is not None and m.file.startswith("/")}


def _by_key(profile: Profile) -> dict[RowKey, Row]:
    """Rows by the key that stays the same in one process; rows with the same key are summed."""
    found: dict[RowKey, Row] = {}
    for row in profile.rows:
        addresses = tuple(profile.locations[each].address for each in row.stack)
        key = addresses, row.size_class, row.interval, row.cut
        other = found.get(key)
        added = ("allocs", "live", "space", "live_space") if other is not None else ()
        sums = {name: getattr(row, name) + getattr(other, name) for name in added}
        found[key] = replace(row, **sums)
    return found


def _apart(before: LoadedProfile, after: LoadedProfile, of: Type) -> Iterator[RowChange]:
    """For two processes: all samples disappeared and appeared."""
    for row in before.profile.rows:
        if n := row.samples(of):
            yield RowChange(before.stacks.of(row), row, n, 0, n, 0, row.size(of), 0)
    for row in after.profile.rows:
        if n := row.samples(of):
            yield RowChange(after.stacks.of(row), row, 0, n, 0, n, row.size(of), row.objects(of))


def _shared(before: LoadedProfile, after: LoadedProfile, of: Type) -> Iterator[RowChange]:
    """For one process: a block that lives on is the same sample in both, and adds no error. At most
    the samples taken since the first profile can have appeared."""
    earlier = _by_key(before.profile)
    for key, row in _by_key(after.profile).items():
        first = earlier.get(key)
        earlier_samples, later_samples = first.samples(of) if first else 0, row.samples(of)
        if earlier_samples or later_samples:
            appeared = min(row.allocs - (first.allocs if first else 0), later_samples)
            disappeared = max(0, earlier_samples - (later_samples - appeared))
            size = row.size(of) if later_samples or first is None else first.size(of)
            yield RowChange(
                after.stacks.of(row),
                row,
                earlier_samples,
                later_samples,
                disappeared,
                appeared,
                size,
                later_samples,
            )
