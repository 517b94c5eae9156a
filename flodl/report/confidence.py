"""Is one of two groups of figures the better one? Student's t-test, paired over seeds that both have; else Welch's.

With one seed nothing is said, and nothing where the pairs say the opposite of the means. Both tests take the spread of
a handful of runs for what it is: few seeds, little confidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, stdev, variance

import msgspec

__all__ = ["Evidence", "compared", "confidence_words", "two_sided"]

SURE = 0.05


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """kind: paired t-test | Welch's t-test | none. seeds: that were looked at, of either group. p: two-sided, of a
    difference as large as this one between groups that are alike; null where no test can be made, and why says so."""

    kind: str
    seeds: int
    p: float | None = None
    why: str = ""

    @property
    def is_sure(self) -> bool:
        """Whether chance alone would seldom do it."""
        return self.p is not None and self.p < SURE


def compared(best: Mapping[int, float], other: Mapping[int, float], *, less: bool) -> Evidence:
    """Seed -> value of each group. best: the one with the better mean. less: a smaller value is better."""
    shared = sorted(best.keys() & other.keys())
    if len(shared) >= 2:
        return _paired([best[seed] - other[seed] for seed in shared], less=less)
    if len(best) >= 2 and len(other) >= 2:
        return _welch(list(best.values()), list(other.values()))
    few = min(len(best), len(other))
    return Evidence(kind="none", seeds=few, why="one seed says nothing of chance" if few == 1 else "no seeds")


def two_sided(t: float, freedom: int) -> float:
    """P(|T| >= |t|) of Student's t with whole degrees of freedom: the finite sums of Abramowitz & Stegun 26.7.3-4."""
    angle = math.atan2(abs(t), math.sqrt(freedom))
    cos, sin = math.cos(angle), math.sin(angle)
    if freedom % 2:
        term, total = cos, 0.0
        for i in range(3, freedom + 1, 2):
            total += term
            term *= cos * cos * (i - 1) / i
        inside = 2.0 / math.pi * (angle + sin * total)
    else:
        term, total = 1.0, 0.0
        for i in range(2, freedom + 1, 2):
            total += term
            term *= cos * cos * (i - 1) / i
        inside = sin * total
    return min(1.0, max(0.0, 1.0 - inside))


def confidence_words(p: float) -> str:
    """1 - p, rounded down: never more than there is, and never all of it."""
    return f"{math.floor(1000.0 * (1.0 - p)) / 10.0:.1f}%" if p >= 0.001 else "over 99.9%"


def _paired(differences: list[float], *, less: bool) -> Evidence:
    kind, seeds = "paired t-test", len(differences)
    mean, spread = fmean(differences), stdev(differences)
    if mean > 0.0 if less else mean < 0.0:
        return Evidence(kind="none", seeds=seeds, why="over the seeds that both have, the other one is better")
    if spread <= 1e-12 * max(map(abs, differences), default=0.0):
        return Evidence(kind="none", seeds=seeds, why="the seeds do not differ: nothing to test with")
    return Evidence(kind=kind, seeds=seeds, p=two_sided(mean / (spread / math.sqrt(seeds)), seeds - 1))


def _welch(one: list[float], other: list[float]) -> Evidence:
    """Degrees of freedom rounded down: if anything, too little confidence."""
    seeds = min(len(one), len(other))
    parts = [variance(group) / len(group) for group in (one, other)]
    error = sum(parts)
    if error <= 0.0:
        return Evidence(kind="none", seeds=seeds, why="the seeds do not differ: nothing to test with")
    freedom = error**2 / sum(p**2 / (len(group) - 1) for p, group in zip(parts, (one, other), strict=True))
    t = (fmean(one) - fmean(other)) / math.sqrt(error)
    return Evidence(kind="Welch's t-test", seeds=seeds, p=two_sided(t, max(1, math.floor(freedom))))
