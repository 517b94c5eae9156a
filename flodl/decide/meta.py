"""The meta-controller: nudges the anchor down when the learning rate drops or divergence is sustained.

It observes once per cycle, after the guard and before the guard's verdict is applied, and works on trends: an anchor
that has been growing is cut harder than one that is coming down already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from flodl.decide.margins import above
from flodl.decide.phase import Phase
from flodl.decide.verdict import Nudge, Stable, Verdict
from flodl.spec.job import MetaConfig

__all__ = ["MetaController", "effective"]

NUM_RATES = 4
NUM_ANCHORS = 5
NUM_VERDICTS = 5
NUM_DIVERGENCES = 5  # the design names no window for the metric: the anchor's
SHARP_DROP = 0.3
SHARPER_THAN_BEFORE = 3
DROP_BASE = 0.5
LOWEST, HIGHEST = 0.1, 0.95
SETTLED = 0.10

# phase -> (how many verdicts in a row that are not Stable, base factor)
_SUSTAINED = {Phase.WARMUP: (5, 0.3), Phase.STABLE: (3, 0.5), Phase.MATURE: (3, 0.7)}


class _State(msgspec.Struct):
    """The windows, newest last. spans: how far each rate's cycle went. verdicts: True for Stable. dropped: a
    learning-rate drop fired in the last cycle."""

    rates: list[float] = []
    spans: list[float] = []
    anchors: list[int] = []
    verdicts: list[bool] = []
    divergences: list[float] = []
    dropped: bool = False


class MetaController:
    """One per run; disabled it still records (and knows when the run is settled), but never nudges."""

    def __init__(self, config: MetaConfig) -> None:
        self._is_enabled = config.enabled
        self._state = _State()

    def observe(
        self, anchor: int, learning_rate: float, verdict: Verdict, phase: Phase, divergence: float, *, span: float = 1.0
    ) -> Nudge | None:
        """Record the cycle; a nudge where one is due.

        anchor: before the commit. learning_rate, divergence: of the round; one that is not finite is left out.
        phase: ElChe's `cycle_phase`; Probe records only. span: batches of the cycle, all ranks together.
        """
        state = self._state
        state.anchors = [*state.anchors, anchor][-NUM_ANCHORS:]
        state.verdicts = [*state.verdicts, isinstance(verdict, Stable)][-NUM_VERDICTS:]
        if math.isfinite(divergence):
            state.divergences = [*state.divergences, divergence][-NUM_DIVERGENCES:]
        is_sharp = self._take_rate(learning_rate, max(span, 1.0))
        may_fire = self._is_enabled and phase is not Phase.PROBE
        state.dropped = is_sharp and may_fire
        if not may_fire:
            return None
        causes = [cause for cause in (self._drop(is_sharp), self._sustained(phase)) if cause]
        if not causes:
            return None
        factor = math.prod(factor for factor, _ in causes)
        return Nudge(min(max(factor, LOWEST), HIGHEST), " and ".join(why for _, why in causes))

    def is_settled(self, phase: Phase) -> bool:
        """True when anchor and divergence have stopped moving: all windows full, phase Stable or later."""
        state = self._state
        sizes = (len(state.rates), len(state.anchors), len(state.verdicts), len(state.divergences))
        if phase < Phase.STABLE or sizes != (NUM_RATES, NUM_ANCHORS, NUM_VERDICTS, NUM_DIVERGENCES):
            return False
        first, last = state.divergences[0], state.divergences[-1]
        moved = abs(last - first)
        return abs(_trend(state.anchors)) < SETTLED and (moved == 0 or moved < SETTLED * abs(first))

    def snapshot(self) -> dict[str, Any]:
        """Plain, JSON-able state."""
        plain: dict[str, Any] = msgspec.to_builtins(self._state)
        return plain

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take a snapshot over."""
        self._state = msgspec.convert(dict(snapshot), _State)

    def _take_rate(self, learning_rate: float, span: float) -> bool:
        """Record a learning rate; True where it fell sharply: by more than 0.3 of itself, and 3 x as steeply as before.

        Steepness is the fall per batch (0 where there is no cycle before): cycles are not equally long, and where
        short final windows alternate with long ones the middle of a cosine would look like a sharp drop. This second
        condition keeps a cosine and a line to 0 silent. Over two cycles only when each falls, and not when the first
        of the two has fired already.
        """
        state = self._state
        if not math.isfinite(learning_rate):
            return False
        state.rates = rates = [*state.rates, learning_rate][-NUM_RATES:]
        state.spans = spans = [*state.spans, span][-NUM_RATES:]
        falls = [max(0.0, before - after) for before, after in pairwise(rates)]
        slopes = [fall / batches for fall, batches in zip(falls, spans[1:], strict=True)]
        if falls and _is_sharp(falls[-1], rates[-2], spans[-1], slopes[-2:-1]):
            return True
        if state.dropped or len(falls) < 2 or min(falls[-2:]) <= 0:
            return False
        return _is_sharp(sum(falls[-2:]), rates[-3], sum(spans[-2:]) / 2, slopes[-3:-2])

    def _drop(self, is_sharp: bool) -> tuple[float, str] | None:
        if not is_sharp:
            return None
        return effective(DROP_BASE, self._state.anchors), f"the learning rate fell to {self._state.rates[-1]:.3g}"

    def _sustained(self, phase: Phase) -> tuple[float, str] | None:
        """After firing the verdicts start anew, so that one episode nudges once per K cycles, not every cycle."""
        num, base = _SUSTAINED[phase]
        last = self._state.verdicts[-num:]
        if len(last) < num or any(last):
            return None
        self._state.verdicts = []
        return effective(base, self._state.anchors), f"{num} verdicts in a row were not stable"


def effective(base: float, anchors: Sequence[int]) -> float:
    """The factor for an anchor window, newest last: base less (1 - base) x trend, within 0.1 and 0.95."""
    return min(max(base - (1 - base) * _trend(anchors), LOWEST), HIGHEST)


def _trend(anchors: Sequence[int]) -> float:
    mean = math.fsum(anchors) / len(anchors)
    return (anchors[-1] - mean) / mean


def _is_sharp(fall: float, start: float, span: float, slope_before: Sequence[float]) -> bool:
    return above(fall, SHARP_DROP * start) and above(fall, SHARPER_THAN_BEFORE * span * sum(slope_before))
