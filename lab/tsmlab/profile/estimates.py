"""Sums of sampled blocks, and their errors: the formulae of docs/formats/profile.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95


def critical(confidence: float = CONFIDENCE) -> float:
    """The quantile of the standard normal for a two-sided interval."""
    return NormalDist().inv_cdf(0.5 + confidence / 2.0)


Z = critical()


@dataclass(slots=True)
class Estimate:
    """A sum over samples, each of which stands for 1/p blocks.

    `seen` is the sum of the sampled blocks themselves, `total` the estimate, `variance` its
    variance."""

    samples: int = 0
    seen: float = 0.0
    total: float = 0.0
    variance: float = 0.0

    def add(self, samples: int, size: float, probability: float) -> None:
        """Adds samples of blocks of one size, each sampled with this probability."""
        weight = size / probability
        self.samples += samples
        self.seen += samples * size
        self.total += samples * weight
        self.variance += samples * weight * weight * (1.0 - probability)

    def include(self, other: Estimate) -> None:
        self.samples += other.samples
        self.seen += other.seen
        self.total += other.total
        self.variance += other.variance

    @property
    def scale(self) -> float:
        """How much one more sample would add to the unseen part."""
        unseen = self.total - self.seen
        return self.variance / unseen if unseen > 0.0 else 0.0

    def interval(self, z: float = Z, scale: float = 0.0) -> tuple[float, float]:
        """The lowest and highest sum compatible with the samples.

        The unseen part has a gamma distribution with its mean and variance, plus half a sample
        (Jeffreys' prior). `scale` is used if there is no sample at all."""
        unseen = self.total - self.seen
        own = self.scale or (scale if not self.samples else 0.0)
        if own <= 0.0:
            return self.total, self.total
        share = unseen / self.total if self.total else 1.0
        low, high = _gamma_quantiles(unseen / own + 0.5 * share, z)
        half = 0.5 * (1.0 - share)
        return self.seen + own * max(0.0, low - half), self.seen + own * (high + half)

    def to_json(self) -> dict[str, float | int]:
        low, high = map(round, self.interval())
        own = {"variance": self.variance, "samples": self.samples}
        return {"bytes": round(self.total), "low": low, "high": high, **own}


def _gamma_quantiles(shape: float, z: float) -> tuple[float, float]:
    """Quantiles of a gamma distribution of scale 1, by Wilson and Hilferty's approximation."""
    middle, spread = 1.0 - 1.0 / (9.0 * shape), z / (3.0 * math.sqrt(shape))
    return (shape * max(0.0, middle - spread) ** 3, shape * max(0.0, middle + spread) ** 3)


@dataclass(frozen=True, slots=True)
class Change:
    """The growth of a sum: what appeared and what disappeared are independent sums."""

    disappeared: Estimate
    appeared: Estimate

    @property
    def total(self) -> float:
        return self.appeared.total - self.disappeared.total

    def interval(self, z: float = Z) -> tuple[float, float]:
        """Zou and Donner's interval: the distances of each sum to its own limits, added as squares,
        so that it is asymmetric if there are few samples."""
        scale = max(self.appeared.scale, self.disappeared.scale)
        appeared_low, appeared_high = self.appeared.interval(z, scale)
        disappeared_low, disappeared_high = self.disappeared.interval(z, scale)
        down = math.hypot(
            self.appeared.total - appeared_low, disappeared_high - self.disappeared.total
        )
        up = math.hypot(
            appeared_high - self.appeared.total, self.disappeared.total - disappeared_low
        )
        return self.total - down, self.total + up


def family_wise(comparisons: int) -> float:
    """The quantile at which all of this many comparisons are right with 95% probability
    (Bonferroni)."""
    return critical(1.0 - (1.0 - CONFIDENCE) / max(1, comparisons))
