"""The training loss within epochs, from what windows reported: a run of few epochs has a curve, too.

A window is short and its loss noisy: neighbouring ones are told together, ten means per epoch, fewer in long runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

__all__ = ["LossPoint", "Losses"]

PER_EPOCH = 10
MOST = 200


class LossPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The mean loss of neighbouring windows at the end of the last one. epoch: how many were done (1.5: half of the
    second one). seconds: of training since the run's first window. loss: null where it was not finite."""

    epoch: float
    seconds: float
    loss: float | None


class _Window(msgspec.Struct):
    """What ranks reported of one averaging, or of several without a word between. end: samples of the run by then."""

    end: int
    seconds: float = 0.0
    samples: int = 0
    loss_sum: float | None = 0.0


class Losses:
    """A journal's, so far. epoch_samples: what an epoch of the run has; 0 as long as nobody told."""

    def __init__(self) -> None:
        self.epoch_samples = 0
        self._windows: dict[int, _Window] = {}
        self._has_begun_anew = True

    def order(self, rounds: Sequence[tuple[int, ...]]) -> None:
        """A window was ordered: (number, batches, samples before, samples) of each of its rounds, of which the last one
        is reported. After a death the rest of a grant is ordered anew, for fewer ranks."""
        if not rounds or len(rounds[-1]) != 4:
            return  # of an older journal
        if not self._windows:
            self._has_begun_anew = rounds[0][2] == 0
        number, _, before, samples = rounds[-1]
        self._windows.setdefault(number, _Window(0)).end = before + samples

    def report(self, number: int, seconds: float, samples: int, loss_sum: float | None) -> None:
        """A rank's report of a window that ended with that round."""
        window = self._windows.get(number)
        if window is None or not samples:
            return
        window.seconds, window.samples = max(window.seconds, seconds), window.samples + samples
        if loss_sum is None or window.loss_sum is None:
            window.loss_sum = None
        else:
            window.loss_sum += loss_sum

    def told(self) -> tuple[LossPoint, ...]:
        """In order; none for a run that went on from another one, which has the earlier part."""
        told = [window for _, window in sorted(self._windows.items()) if window.samples]
        if not told or not self.epoch_samples or not self._has_begun_anew:
            return ()
        epochs = told[-1].end / self.epoch_samples
        per_epoch = min(PER_EPOCH, MOST / max(1.0, epochs))
        groups: dict[int, list[_Window]] = {}
        for window in told:
            groups.setdefault(math.ceil(window.end / self.epoch_samples * per_epoch - 1e-9), []).append(window)
        return tuple(self._point(group) for group in groups.values())

    def _point(self, group: list[_Window]) -> LossPoint:
        sums = [window.loss_sum for window in group if window.loss_sum is not None]
        samples = sum(window.samples for window in group)
        loss = sum(sums) / samples if len(sums) == len(group) else None
        return LossPoint(epoch=group[-1].end / self.epoch_samples, seconds=group[-1].seconds, loss=loss)
