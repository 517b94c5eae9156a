"""Scales of a figure: from values to its pixels, with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

__all__ = ["Scale", "scale_of"]

WIDE = 50.0  # largest over smallest value from which on a scale of magnitudes is the readable one


class Scale(msgspec.Struct, frozen=True):
    """low..high of values onto start..stop of pixels."""

    low: float
    high: float
    start: float
    stop: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high, here = (
            (_log(self.low), _log(self.high), _log(value)) if self.is_log else (self.low, self.high, value)
        )
        return self.start + (here - low) / (high - low) * (self.stop - self.start)

    @property
    def ticks(self) -> tuple[float, ...]:
        """Round values within."""
        if self.is_log:
            first, last = math.ceil(_log(self.low) - 1e-9), math.floor(_log(self.high) + 1e-9)
            step = max(1, -(-(last - first) // 5))
            return tuple(10.0**power for power in range(first, last + 1, step))
        step = _step(self.high - self.low)
        return tuple(number * step for number in range(_ceil(self.low / step), _floor(self.high / step) + 1))

    def label(self, tick: float) -> str:
        """A tick's text."""
        return f"{tick:g}".replace("e-0", "e-").replace("e+0", "e") if self.is_log else _plain(tick, self.ticks)


def scale_of(
    values: Iterable[float], start: float, stop: float, *, from_zero: bool = False, log: bool = False
) -> Scale:
    """A scale that holds all values. log: by magnitudes where they are all positive and far apart."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return Scale(0.0, 1.0, start, stop)
    low, high = min(known), max(known)
    if log and low > 0.0 and high / low > WIDE:
        return Scale(10.0 ** math.floor(_log(low)), 10.0 ** math.ceil(_log(high)), start, stop, is_log=True)
    low = 0.0 if from_zero and low > 0.0 else low
    if high == low:
        low, high = (low - abs(low) / 2, low + abs(low) / 2) if low else (0.0, 1.0)
    for _ in range(2):  # rounding outwards may ask for a coarser step
        step = _step(high - low)
        low, high = _floor(low / step) * step, _ceil(high / step) * step
    return Scale(low, high, start, stop)


def _plain(value: float, ticks: Sequence[float]) -> str:
    """A tick's label, with as many digits as its neighbours need."""
    if value == 0.0:
        return "0"
    if abs(value) >= 1000.0:
        return f"{value:,.0f}"
    gap = min((abs(b - a) for a, b in pairwise(ticks)), default=abs(value))
    if abs(value) < 1e-3 or gap < 1e-4:
        return (f"{value:.1g}" if gap >= abs(value) else f"{value:.3g}").replace("e-0", "e-")
    digits = max(0, -math.floor(math.log10(min(gap, abs(value))) + 1e-9))
    return f"{value:.{digits}f}"


def _step(span: float) -> float:
    """1, 2 or 5 times a power of ten: three to seven ticks in the span."""
    power = 10.0 ** math.floor(math.log10(span / 4.0))
    return next(size * power for size in (1.0, 2.0, 5.0, 10.0) if span / (size * power) <= 6.0)


def _floor(steps: float) -> int:
    return math.floor(steps + _rounding(steps))


def _ceil(steps: float) -> int:
    return math.ceil(steps - _rounding(steps))


def _rounding(steps: float) -> float:
    """What a quotient of two rounded numbers may be off: of values that are close together it is large."""
    return 1e-9 + 1e-15 * abs(steps)


def _log(value: float) -> float:
    return math.log10(value)
