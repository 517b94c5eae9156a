"""Learning-rate schedules: pure functions of a run's progress.

schedule(progress) -> factor of the base learning rate. progress = samples dealt so far / samples of the whole run,
0..1 (values outside are clamped), so a schedule is the same for every world size and every split of the work.
Anything callable that way may stand in the config; these are the shipped ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flodl.errors import ConfigError, Problem

__all__ = ["Constant", "Cosine", "Step"]

WARMUP_START = 0.1  # factor at progress 0 where there is a warm-up: at 0 the first batches would teach nothing


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The base rate, after a linear warm-up over the first `warmup` of the run."""

    warmup: float = 0.0

    def __post_init__(self) -> None:
        _refuse(_outside("warmup", self.warmup, below_one=True))

    def __call__(self, progress: float) -> float:
        return _warm(progress, self.warmup)


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Half a cosine from 1 to `floor`, after a linear warm-up over the first `warmup` of the run (SGDR, 1608.03983)."""

    warmup: float = 0.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        _refuse([*_outside("warmup", self.warmup, below_one=True), *_outside("floor", self.floor)])

    def __call__(self, progress: float) -> float:
        if progress < self.warmup:
            return _warm(progress, self.warmup)
        done = min(1.0, (max(0.0, progress) - self.warmup) / (1.0 - self.warmup))
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * done))


@dataclass(frozen=True, kw_only=True)
class Step:
    """Multiplied by `gamma` at each of the milestones `at` (progress, ascending), after a linear warm-up."""

    at: Sequence[float] = (0.5, 0.75)
    gamma: float = 0.1
    warmup: float = 0.0

    def __post_init__(self) -> None:
        found = [*_outside("warmup", self.warmup, below_one=True), *_outside("gamma", self.gamma)]
        for milestone in self.at:
            found += _outside("at", milestone)
        if list(self.at) != sorted(self.at):
            found.append(Problem(key="scheduler.at", value=str(list(self.at)), constraint="milestones must ascend"))
        _refuse(found)

    def __call__(self, progress: float) -> float:
        passed = sum(1 for milestone in self.at if progress >= milestone)
        return _warm(progress, self.warmup) * self.gamma**passed


def _warm(progress: float, warmup: float) -> float:
    """Linear from WARMUP_START at progress 0 to 1 at `warmup`."""
    begun = max(0.0, progress)
    return 1.0 if begun >= warmup else WARMUP_START + (1.0 - WARMUP_START) * begun / warmup


def _outside(name: str, value: float, *, below_one: bool = False) -> list[Problem]:
    """A problem where `value` is not within 0..1 (1 itself excluded with `below_one`)."""
    if 0.0 <= value < 1.0 or (value == 1.0 and not below_one):
        return []
    limits = "0 <= value < 1" if below_one else "0 <= value <= 1"
    return [Problem(key=f"scheduler.{name}", value=str(value), constraint=f"is a fraction: {limits}")]


def _refuse(problems: Iterable[Problem]) -> None:
    found = tuple(problems)
    if found:
        raise ConfigError(found)
