"""Learning-rate schedules: pure functions of a run's progress.

schedule(progress) -> factor of the base learning rate. progress = samples dealt so far / samples of the whole run,
0..1 (values outside are clamped), so a schedule is the same for every world size and every split of the work.
Anything callable that way may stand in the config; these are the shipped ones. A warm-up is a part of the run, or a
number of samples: `over` turns the second into the first once the length of the run is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from flodl.errors import ConfigError, Problem

__all__ = ["Constant", "Cosine", "Linear", "OneCycle", "Step"]

WARMUP_START = 0.1  # factor at progress 0 where there is a warm-up: at 0 the first batches would teach nothing


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The base rate, after a linear warm-up over the first `warmup` of the run, or over `warmup_samples` of it."""

    warmup: float = 0.0
    warmup_samples: int | None = None

    def __post_init__(self) -> None:
        _refuse(self.problems())

    def problems(self) -> list[Problem]:
        """Values that are no part of a run."""
        found = _outside("warmup", self.warmup, below_one=True)
        if self.warmup_samples is not None and not _is_count(self.warmup_samples):
            found.append(_no("warmup_samples", self.warmup_samples, "is a number of samples: whole, 0 or more"))
        return found

    def over(self, total_samples: int) -> Self:
        """The schedule for a run of that many samples. Raises ConfigError where the warm-up does not fit in."""
        samples = self.warmup_samples
        if samples is None:
            return self
        if samples >= total_samples:
            _refuse([_no("warmup_samples", samples, f"the whole run has {total_samples} samples")])
        return replace(self, warmup=samples / total_samples, warmup_samples=None)

    def __call__(self, progress: float) -> float:
        return self._warm(progress)

    def _warm(self, progress: float) -> float:
        """Linear from WARMUP_START at progress 0 to 1 at `warmup`."""
        begun = max(0.0, progress)
        return 1.0 if begun >= self.warmup else WARMUP_START + (1.0 - WARMUP_START) * begun / self.warmup

    def _done(self, progress: float) -> float:
        """Progress after the warm-up, 0..1."""
        return min(1.0, max(0.0, progress - self.warmup) / (1.0 - self.warmup))


@dataclass(frozen=True, kw_only=True)
class _Falling(Constant):
    """From 1 to `floor` after a warm-up, in a shape of its own."""

    floor: float = 0.0

    def problems(self) -> list[Problem]:
        """Values that are no part of a run."""
        return [*super().problems(), *_outside("floor", self.floor)]

    def __call__(self, progress: float) -> float:
        if progress < self.warmup:
            return self._warm(progress)
        return self._fall(self._done(progress))

    def _fall(self, done: float) -> float:
        """The factor at `done` (0..1) of what follows the warm-up: a line."""
        return 1.0 + (self.floor - 1.0) * done


@dataclass(frozen=True, kw_only=True)
class Cosine(_Falling):
    """Half a cosine from 1 to `floor`, after a warm-up (SGDR, 1608.03983)."""

    def _fall(self, done: float) -> float:
        return _between(1.0, self.floor, done)


@dataclass(frozen=True, kw_only=True)
class Linear(_Falling):
    """A line from 1 to `floor`, after a warm-up."""


@dataclass(frozen=True, kw_only=True)
class Step(Constant):
    """Multiplied by `gamma` at each of the milestones `at` (progress, ascending), after a warm-up."""

    at: Sequence[float] = (0.5, 0.75)
    gamma: float = 0.1

    def problems(self) -> list[Problem]:
        """Values that are no part of a run."""
        found = [*super().problems(), *_outside("gamma", self.gamma)]
        for milestone in self.at:
            found += _outside("at", milestone)
        if list(self.at) != sorted(self.at):
            found.append(Problem(key="scheduler.at", value=str(list(self.at)), constraint="milestones must ascend"))
        return found

    def __call__(self, progress: float) -> float:
        passed = sum(1 for milestone in self.at if progress >= milestone)
        return self._warm(progress) * self.gamma**passed


@dataclass(frozen=True, kw_only=True)
class OneCycle:
    """Up from `start` to 1 over the first `rise` of the run and down to `floor`, both along a cosine (1708.07120)."""

    rise: float = 0.3
    start: float = 0.04
    floor: float = 0.0

    def __post_init__(self) -> None:
        found = [*_outside("rise", self.rise), *_outside("start", self.start), *_outside("floor", self.floor)]
        if self.rise in (0.0, 1.0):
            found.append(_no("rise", self.rise, "is a part of the run: above 0 and below 1"))
        _refuse(found)

    def __call__(self, progress: float) -> float:
        done = min(1.0, max(0.0, progress))
        if done < self.rise:
            return _between(self.start, 1.0, done / self.rise)
        return _between(1.0, self.floor, (done - self.rise) / (1.0 - self.rise))


def _between(first: float, last: float, done: float) -> float:
    """Along half a cosine."""
    return last + (first - last) * 0.5 * (1.0 + math.cos(math.pi * done))


def _outside(name: str, value: float, *, below_one: bool = False) -> list[Problem]:
    """A problem where `value` is not within 0..1 (1 itself excluded with `below_one`)."""
    if 0.0 <= value < 1.0 or (value == 1.0 and not below_one):
        return []
    limits = "0 <= value < 1" if below_one else "0 <= value <= 1"
    return [_no(name, value, f"is a fraction: {limits}")]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _no(name: str, value: object, constraint: str) -> Problem:
    return Problem(key=f"scheduler.{name}", value=str(value), constraint=constraint)


def _refuse(problems: Iterable[Problem]) -> None:
    found = tuple(problems)
    if found:
        raise ConfigError(found)
