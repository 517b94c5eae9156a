"""A round of gradients on its way: all of it is queued on a GPU, and nothing has been waited for.

What the host wants to know of it (totals, whether this rank's values were finite) is copied into pinned memory behind
the sum, and read when the round has ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flodl.engine.averaging.contribution import Contribution
from flodl.engine.averaging.flat import Flat
from flodl.engine.averaging.rule import Outcome, RoundOrder

__all__ = ["Mark", "UnderWay", "largest", "on_host"]


class Mark:
    """A moment: of a GPU's stream, or of this thread where there is none."""

    def __init__(self, device: torch.device) -> None:
        self._event: torch.cuda.Event | None = None
        self._seconds = 0.0
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)
            self._event.record()
        else:
            self._seconds = time.perf_counter()

    def wait(self) -> None:
        """Until the stream has come here."""
        if self._event is not None:
            self._event.synchronize()

    def ms_until(self, later: Mark) -> float:
        """Both must have been reached."""
        if self._event is not None and later._event is not None:
            return self._event.elapsed_time(later._event)
        return (later._seconds - self._seconds) * 1000


@dataclass
class UnderWay:
    """What is needed to tell what has come of a round. began, ready, summed, told: at its beginning, before and after
    the sum, and when the host has what it wants. adopted: after the step, where that was taken ahead of the others'
    word."""

    order: RoundOrder
    contribution: Contribution
    end: Callable[[], None]
    tail: Tensor
    largest: Tensor | None
    nonfinite: str
    began: Mark
    ready: Mark
    summed: Mark
    told: Mark
    adopted: Mark | None = field(default=None)

    def outcome(self) -> Outcome:
        """Wait for the end of the round, on an averaging thread. Raises AbandonedError, RuntimeError."""
        self.end()
        self.told.wait()
        sums = self.contribution.read(self.tail)
        nonfinite = self.nonfinite or (
            _culprit(self.contribution.flat, self.largest) if self.largest is not None else ""
        )
        duration_ms = self.began.ms_until(self.summed)
        return Outcome(self.order, sums.moved > 0, 0.0, nonfinite, sums.waited_ms, duration_ms, time.perf_counter())

    def spent_ms(self) -> float:
        """From its beginning until its step was taken."""
        if self.adopted is None:
            return 0.0
        self.adopted.wait()
        return self.began.ms_until(self.adopted)


def largest(flat: Flat) -> Tensor:
    """The greatest absolute value of each slot, parameters first; NaN or infinite where the slot holds such."""
    views: Sequence[Tensor] = [view for view in (*flat.parameter_views, *flat.buffer_views) if view.numel()]
    if not views:
        return flat.vectors[-1].new_zeros(0)
    norms = torch._foreach_norm(list(views), float("inf"))  # pyright: ignore[reportPrivateImportUsage]
    return torch.stack([norm.to(flat.vectors[-1].dtype) for norm in norms])


def on_host(tensor: Tensor) -> Tensor:
    """A copy in pinned memory that is there when the stream has come to it; on a CPU now."""
    if not tensor.is_cuda:
        return tensor.clone()
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


def _culprit(flat: Flat, found: Tensor) -> str:
    """The first slot with something in it that is not finite; "" where there is none."""
    layout = flat.layout
    slots = (*layout.parameter_slots, *layout.buffer_slots)
    named = [slot.name for slot in slots if slot.numel]
    return next((name for name, value in zip(named, found.tolist(), strict=True) if not math.isfinite(value)), "")
