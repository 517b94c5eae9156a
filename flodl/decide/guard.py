"""Guards: from a round's divergence to a verdict on growth. Small policies: one method, one sentence each.

A guard sees finite values only: a round leaves a rank with NaN weights out before its divergence counts. Should one
come all the same it is not remembered, and growth is suppressed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from flodl.decide.verdict import NudgeDown, Stable, SuppressGrowth, Verdict
from flodl.spec.elche import ElCheConfig
from flodl.spec.guard import GuardConfig, MsfGuardConfig, NoGuardConfig

__all__ = ["Guard", "MsfGuard", "NoGuard", "TrendGuard", "make_guard"]

RING = 5
THRESHOLD = 0.05
ELASTIC_THRESHOLD = 0.3  # elastic blending keeps a standing spread near 0.1, which would arm the guard for ever
NEGLIGIBLE = 1e-8


class Guard(Protocol):
    """Observes one accepted round, answers with a verdict. is_stored: its state belongs into a checkpoint bundle."""

    is_stored: bool

    def observe(self, divergence: float, steps_sum: int, k_max: int) -> Verdict:
        """divergence: the round's value (max over ranks). steps_sum, k_max: batches of all ranks, of the busiest."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Plain, JSON-able state."""
        ...

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take a snapshot of the same kind of guard over; an empty one is a fresh start."""
        ...


class NoGuard:
    """Always Stable."""

    is_stored = False

    def observe(self, divergence: float, steps_sum: int, k_max: int) -> Verdict:
        """Stable, whatever was seen."""
        return Stable("no guard")

    def snapshot(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Nothing to take over."""


class TrendGuard:
    """Objects when divergence rose twice in a row and lies above the threshold; never nudges.

    Its ring is stored in checkpoints: without it the guard was blind for three cycles after every resume.
    """

    is_stored = True

    def __init__(self, threshold: float = THRESHOLD) -> None:
        self._threshold = threshold
        self._ring: list[float] = []

    def observe(self, divergence: float, steps_sum: int, k_max: int) -> Verdict:
        """SuppressGrowth iff d[-1] > d[-2] > d[-3] and d[-1] > threshold."""
        if not math.isfinite(divergence):
            return SuppressGrowth("divergence is not finite")
        self._ring = [*self._ring, divergence][-RING:]
        last = self._ring[-3:]
        if len(last) == 3 and last[2] > last[1] > last[0] and last[2] > self._threshold:
            shown = " < ".join(f"{value:.3g}" for value in last)
            return SuppressGrowth(f"divergence rises: {shown}, above {self._threshold:g}")
        return Stable(f"divergence {divergence:.3g} shows no rise above {self._threshold:g}")

    def snapshot(self) -> dict[str, Any]:
        """The ring."""
        return {"ring": list(self._ring)}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """The ring, its newest five."""
        self._ring = [float(value) for value in snapshot.get("ring", ())][-RING:]


class _MsfState(msgspec.Struct):
    """previous: the last divergence, None where it was negligible. average: the uncorrected EMA of `count` rates."""

    previous: float | None = None
    average: float = 0.0
    count: int = 0
    nudges: int = 0
    suppressions: int = 0


class MsfGuard:
    """Follows lambda, the divergence's growth rate per step, smoothed; nudges or objects when it stays high.

    A stated limit: lambda is per step, so at quotas of some hundreds this guard can hardly fire. Not stored in
    checkpoints: a rate from before an interruption says little about the steps after it.
    """

    is_stored = False

    def __init__(self, config: MsfGuardConfig) -> None:
        self._config = config
        self._state = _MsfState()

    @property
    def smoothed_rate(self) -> float | None:
        """The bias-corrected EMA of lambda, per step; None before the first."""
        state = self._state
        return state.average / (1 - self._config.ema_alpha**state.count) if state.count else None

    def observe(self, divergence: float, steps_sum: int, k_max: int) -> Verdict:
        """NudgeDown when the nudge streak is full, else SuppressGrowth when the other one is, else Stable."""
        if not math.isfinite(divergence):
            return SuppressGrowth("divergence is not finite")
        rate = self._rate(divergence, k_max)
        if rate is None:
            return Stable("no growth rate of divergence in this round")
        return self._judge(rate)

    def snapshot(self) -> dict[str, Any]:
        """Everything, for a mind that goes on in the same process; see `is_stored`."""
        plain: dict[str, Any] = msgspec.to_builtins(self._state)
        return plain

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Everything."""
        self._state = msgspec.convert(dict(snapshot), _MsfState)

    def _rate(self, divergence: float, k_max: int) -> float | None:
        """Take one divergence in; the smoothed rate, None where this round gives no lambda."""
        state = self._state
        before, state.previous = state.previous, divergence if divergence > NEGLIGIBLE else None
        if before is None or state.previous is None or k_max <= 0:
            return None
        alpha = self._config.ema_alpha
        state.average = alpha * state.average + (1 - alpha) * math.log(divergence / before) / k_max
        state.count += 1
        return self.smoothed_rate

    def _judge(self, rate: float) -> Verdict:
        config, state = self._config, self._state
        state.nudges = state.nudges + 1 if rate > config.nudge_threshold else 0
        state.suppressions = state.suppressions + 1 if rate > config.suppress_threshold else 0
        shown = f"divergence grows by a rate of {rate:.3g} per step"
        if state.nudges >= config.nudge_sustain:
            state.nudges = 0
            return NudgeDown(config.nudge_factor, f"{shown}, {config.nudge_sustain} times above the nudge threshold")
        if state.suppressions >= config.suppress_sustain:
            state.suppressions = 0
            return SuppressGrowth(f"{shown}, {config.suppress_sustain} times above the suppress threshold")
        return Stable(shown)


def make_guard(config: GuardConfig, elche: ElCheConfig) -> Guard:
    """The guard that the configuration names, with its mode-dependent defaults.

    easgd_alpha raises TrendGuard's default threshold only in cpu_async: it has no effect elsewhere.
    """
    if isinstance(config, NoGuardConfig):
        return NoGuard()
    if isinstance(config, MsfGuardConfig):
        return MsfGuard(config)
    is_elastic = elche.is_async and elche.easgd_alpha is not None
    return TrendGuard(config.threshold or (ELASTIC_THRESHOLD if is_elastic else THRESHOLD))
