"""Histograms of quantities that span many orders of magnitude, from arrays.

Buckets divide each octave (2^k, 2^(k+1)] into equal parts, and a bound belongs to the bucket below
it, as with size classes: 16 and 9 share an octave, 17 does not. All sums are exact.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

FINE_BITS = 5  # 32 buckets an octave: quantiles are at most 3.2% too high
EIGHTHS = 3
# Different sizes that are counted separately; beyond this number, sizes above 1 MiB count as the
# bound of their bucket.
MAX_SIZES = 1 << 20
MAX_EXACT_SIZE = 1 << 20


def bucket(values: Ints, bits: int) -> Ints:
    """The number of the bucket of each value; 0 and each value up to 2^bits have a bucket of their
    own."""
    below = np.maximum(values - 1, 0)
    octave = np.frexp(below.astype(np.float64))[1].astype(np.int64) - 1
    octave = np.maximum(octave, 0)
    octave -= (below >> octave) == 0  # beyond 2^53, the conversion may have rounded up
    shift = np.maximum(octave - bits, 0)
    part = (below >> shift) - (1 << bits)
    high = 1 + ((octave - bits + 1) << bits) + part
    return np.where(values == 0, 0, np.where(below < (1 << bits), below + 1, high))


def upper(index: int, bits: int) -> int:
    """The largest value in a bucket."""
    parts = 1 << bits
    if index <= parts:
        return index
    octave = (index >> bits) + bits - 1
    return (parts + (index & (parts - 1))) << (octave - bits)


def sums(groups: Ints, values: Ints, length: int) -> Ints:
    """The sum of the values of each group; without rounding, unlike bincount's."""
    low = np.bincount(groups, weights=values & 0xFFFFFF, minlength=length)
    middle = np.bincount(groups, weights=(values >> 24) & 0xFFFFFF, minlength=length)
    high = np.bincount(groups, weights=values >> 48, minlength=length)
    whole: Ints = low.astype(np.int64)
    whole += (middle.astype(np.int64) << 24) + (high.astype(np.int64) << 48)
    return whole


class Histogram:
    """Objects by a quantity, 32 buckets to an octave."""

    BUCKETS = ((64 - FINE_BITS + 1) << FINE_BITS) + 1

    def __init__(self) -> None:
        self.objects = np.zeros(self.BUCKETS, np.int64)
        self.highest = 0

    def add(self, values: Ints) -> None:
        if not len(values):
            return
        self.objects += np.bincount(bucket(values, FINE_BITS), minlength=self.BUCKETS)
        self.highest = max(self.highest, int(values.max()))

    @property
    def count(self) -> int:
        return int(self.objects.sum())

    def quantile(self, share: float) -> int:
        """The smallest bound that at least this share of the values does not exceed; never above
        the highest value."""
        if not self.count:
            return self.highest
        seen = np.cumsum(self.objects)
        place = int(np.argmax((seen > 0) & (seen >= share * self.count)))
        return min(upper(place, FINE_BITS), self.highest)

    def quantiles(self) -> dict[str, int]:
        shares = {"p01": 0.01, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9,
                  "p99": 0.99, "p999": 0.999}  # fmt: skip
        return {name: self.quantile(each) for name, each in shares.items()} | {"max": self.highest}


class SizeTable:
    """How often each size occurs, in several columns."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self.is_exact = True
        self._sizes = np.zeros(0, np.int64)
        self._counts = np.zeros((len(columns), 0), np.int64)
        self._pending: list[tuple[Ints, Ints]] = []

    def add(self, column: str, sizes: Ints) -> None:
        found, counts = np.unique(sizes, return_counts=True)
        fresh = np.zeros((len(self.columns), len(found)), np.int64)
        fresh[self.columns.index(column)] = counts
        self._pending.append((found, fresh))
        if sum(len(each) for each, _ in self._pending) > max(1 << 18, len(self._sizes)):
            self._merge()

    def _merge(self) -> None:
        parts = [(self._sizes, self._counts), *self._pending]
        self._pending = []
        self._sum_up(
            np.concatenate([sizes for sizes, _ in parts]),
            np.concatenate([counts for _, counts in parts], axis=1),
        )
        if len(self._sizes) > MAX_SIZES:
            self.is_exact = False
            bounds = np.array([upper(int(b), EIGHTHS) for b in bucket(self._sizes, EIGHTHS)])
            large = self._sizes > MAX_EXACT_SIZE
            self._sum_up(np.where(large, bounds, self._sizes), self._counts)

    def _sum_up(self, sizes: Ints, counts: Ints) -> None:
        self._sizes, places = np.unique(sizes, return_inverse=True)
        self._counts = np.stack([sums(places, row, len(self._sizes)) for row in counts])

    def counts(self) -> tuple[Ints, dict[str, Ints]]:
        """The sizes, and how often each occurs in each column."""
        self._merge()
        return self._sizes, dict(zip(self.columns, self._counts, strict=True))
