"""A virtual rank's figures between two reports, in milliseconds."""

from __future__ import annotations

from flodl.decide.messages import CallbackResult, WindowDone
from flodl.decide.roster import Place

__all__ = ["Books"]


class Books:
    """What `WindowDone` tells. Emptied by every report."""

    def __init__(self, place: Place) -> None:
        self._rank = place.rank
        self._is_first = True
        self._batches_ever = 0
        self.callback_ms = 0.0
        self.exposed_ms = 0.0
        self.nonfinite = ""
        self._steps_ms: list[float] = []
        self._idle_ms = 0.0

    def step(self, ms: float) -> None:
        """A batch was run."""
        self._steps_ms.append(ms)

    def end_idle(self, since: float | None, now: float) -> None:
        """The rank had nothing to do since then (seconds)."""
        if since is not None:
            self._idle_ms += (now - since) * 1000.0

    def report(
        self,
        *,
        generation: int,
        number: int,
        batches: int,
        samples: int,
        callbacks: tuple[CallbackResult, ...],
        nonfinite: str,
    ) -> WindowDone:
        """The window's report; a first window's first batch is left out of the reading where there is another."""
        timed = self._steps_ms[1:] if self._is_first and len(self._steps_ms) > 1 else self._steps_ms
        self._batches_ever += batches
        done = WindowDone(
            at=0.0,
            rank=self._rank,
            generation=generation,
            round=number,
            batches=batches,
            samples=samples,
            timed_batches=len(timed),
            timed_ms=sum(timed),
            compute_ms=sum(self._steps_ms),
            idle_ms=max(0.0, self._idle_ms - self.exposed_ms),
            callback_ms=self.callback_ms,
            exposed_ms=self.exposed_ms,
            loss_sum=samples * 2.0 / (1.0 + self._batches_ever / 50.0),
            nonfinite=nonfinite,
            learning_rate=0.1,
            callbacks=callbacks,
        )
        self._is_first = self._is_first and not self._steps_ms
        self._steps_ms = []
        self._idle_ms = self.callback_ms = self.exposed_ms = 0.0
        self.nonfinite = ""
        return done
