"""What a rank counts and measures between two reports."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from flodl.decide.messages import CallbackResult, WindowDone
from flodl.engine.micro import Gradients
from flodl.engine.scalars import Recorder

__all__ = ["Tally", "finite", "peak_memory_bytes"]


def finite(value: float) -> float:
    """The value, or 0 where it is NaN or infinite: no event holds either. (What is not finite is told by name.)"""
    return value if math.isfinite(value) else 0.0


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory this rank ever held: of the GPU's allocator, else resident."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Tally:
    """Sums since the last report. The loss stays on its device until then: no sync per batch."""

    def __init__(self) -> None:
        self.reports = 0
        self._has_skipped = False
        self.scalars = Recorder()
        self.clear()

    def clear(self) -> None:
        """Begin anew; what was measured belongs to the report just made."""
        self.batches = 0
        self.samples = 0
        self.learned = 0  # samples of batches that were stepped on: all but those that float16 skips
        self.skipped_batches = 0
        self.notes: list[str] = []
        self.loss: Tensor | None = None
        self.spans: dict[str, float] = {}
        self.callbacks: list[CallbackResult] = []
        self.divergence = 0.0
        self.nonfinite = ""
        self.learning_rate = 0.0
        self.scalars.clear()

    def void(self) -> None:
        """What was trained does not count; what was evaluated, and is to be said, goes into the next report."""
        callbacks, notes = self.callbacks, self.notes
        self.clear()
        self.callbacks, self.notes = callbacks, notes

    def add(self, gradients: Gradients, samples: int) -> None:
        """One more batch, with its mean loss and what its step recorded. (Of a batch that is redone: the last try.)"""
        self.scalars.add(gradients.recorded)
        loss = gradients.loss
        if not gradients.is_usable:  # of a batch that float16 skips, an overflown loss tells nothing of the model
            loss = loss.nan_to_num(0.0, 0.0, 0.0)
        if self.loss is None:
            self.loss = torch.zeros_like(loss, dtype=torch.float64)
        self.loss.add_(loss, alpha=samples)
        self.batches += 1
        self.samples += samples
        if gradients.is_usable:
            self.learned += samples
            return
        self.skipped_batches += 1
        if not self._has_skipped:
            self._has_skipped = True
            self.note("gradients overflowed in float16: such a batch is skipped and weighs nothing, and the scale is "
                      "halved; the first ones are expected")  # fmt: skip

    def note(self, text: str) -> None:
        """Something that a person should know; told with the next report."""
        self.notes.append(text)

    def _loss_sum(self) -> float | None:
        total = 0.0 if self.loss is None else float(self.loss)
        return total if math.isfinite(total) else None

    def spend(self, what: str, ms: float) -> None:
        """Add time. what: data_wait, idle, callback, exposed or compute (beyond the steps' own)."""
        self.spans[what] = self.spans.get(what, 0.0) + ms

    @contextmanager
    def timing(self, what: str, unless: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Add the time spent inside. unless: asked at its end: whether nothing was held up by it."""
        began = time.perf_counter()
        try:
            yield
        finally:
            if not unless():
                self.spend(what, (time.perf_counter() - began) * 1000)

    def report(self, window: tuple[int, int, int], steps_ms: list[float], device: torch.device) -> WindowDone:
        """window: rank, generation, round. The figures as an event; a first window's first batch is no reading."""
        rank, generation, round_number = window
        timed = steps_ms[1:] if self.reports == 0 and len(steps_ms) > 1 else steps_ms
        self.reports += 1
        return WindowDone(
            at=0.0,
            rank=rank,
            generation=generation,
            round=round_number,
            batches=self.batches,
            samples=self.samples,
            skipped_batches=self.skipped_batches,
            skipped_samples=self.samples - self.learned,
            timed_batches=len(timed),
            timed_ms=sum(timed),
            compute_ms=sum(steps_ms) + self.spans.get("compute", 0.0),
            data_wait_ms=self.spans.get("data_wait", 0.0),
            idle_ms=self.spans.get("idle", 0.0),
            callback_ms=self.spans.get("callback", 0.0),
            exposed_ms=self.spans.get("exposed", 0.0),
            loss_sum=self._loss_sum(),
            scalars=dict(self.scalars.scalars()),
            divergence=finite(self.divergence),
            nonfinite=self.nonfinite,
            learning_rate=finite(self.learning_rate),
            peak_memory_bytes=peak_memory_bytes(device),
            callbacks=tuple(self.callbacks),
            notes=tuple(self.notes),
        )
