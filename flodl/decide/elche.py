"""ElChe: speeds -> quotas, and a proposed anchor. The slowest rank sets the pace, the faster ones do more.

One cycle of the coordinator, per accepted round (all in one event: nothing of a half cycle is stored)::

    report -> guard.observe -> meta.observe(anchor, ..., phase=cycle_phase) -> commit -> quotas

Only `commit` moves the anchor for a proposal, and it demands a verdict. The one other thing that moves it is the
window cap in `quotas`: an anchor that the epoch cannot hold would stay pinned when averaging becomes cheap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import msgspec

from flodl.decide.latch import GrowthLatch, Overshoot
from flodl.decide.margins import ceil_exact
from flodl.decide.phase import Phase, phase_after
from flodl.decide.proposal import Proposal, Situation, propose
from flodl.decide.quota import Quotas, capped, settle, targets, with_slack, within_lead
from flodl.decide.readings import MedianOfThree, Reading, TrustWindow
from flodl.decide.speeds import Speeds
from flodl.decide.verdict import NOT_TAKEN, NUDGED, Nudge, NudgeDown, Stable, SuppressGrowth, Verdict, named
from flodl.spec.elche import ElCheConfig

__all__ = ["ElChe"]

SMALLEST_NUDGE = 0.1


class _State(msgspec.Struct):
    """Everything that lasts from one cycle to the next, plain.

    base: the last quotas before lead, cap and slack (what the dead zone compares with), made at base_anchor.
    planned: after lead and cap, before slack (what a window's compute is scaled to). epoch_batches: the last cap.
    """

    speeds: Speeds
    anchor: int | None = None
    calibrations: int = 0
    latch: GrowthLatch = msgspec.field(default_factory=GrowthLatch)
    overshoot: Overshoot = msgspec.field(default_factory=Overshoot)
    sync: MedianOfThree = msgspec.field(default_factory=MedianOfThree)
    round: MedianOfThree = msgspec.field(default_factory=MedianOfThree)
    base: dict[int, int] = {}
    base_anchor: int = 0
    planned: dict[int, int] = {}
    epoch_batches: int | None = None
    cap_binding: bool = False


class ElChe:
    """The cadence of one run."""

    def __init__(self, config: ElCheConfig, ranks: tuple[int, ...]) -> None:
        """config: resolved (mode is not ``auto``). ranks: the living ones.

        A configured anchor_rank that is not among them has no effect; the roster refuses it where ranks are counted.
        """
        pinned = config.anchor_rank if config.anchor_rank in ranks else None
        speeds = Speeds({rank: TrustWindow() for rank in sorted(ranks)}, pinned)
        self._config = config
        self._anchor = config.initial_anchor
        self._state = _State(speeds)
        self._cycle_phase = Phase.PROBE
        self._pending: Proposal | None = None
        self._why: list[str] = []

    # ------------------------------------------------------------------------------------------------ the cycle

    def report(
        self,
        readings: Mapping[int, Reading],
        *,
        sync_ms: float | None,
        compute_ms: Mapping[int, float],
        round_ms: float = 0.0,
    ) -> Proposal | None:
        """Take an accepted round in; the pending proposal, if there is one now.

        readings: rank -> a living rank without one that counts has missed this report.
        sync_ms: exposed averaging time of the round, max over ranks. None: the window was too short to tell (what an
        epoch's rest cannot hide in cpu_async is no price of the anchor: it once threw it from 2 to 16).
        compute_ms: rank -> compute of its whole window, as measured (scaled to the planned quota in here: a short
        final window must not look expensive).
        round_ms: how long the round took altogether (cpu_async: a window does not become shorter than that).
        """
        self._pending, self._why = None, []
        self._cycle_phase = self.phase
        counted = self._state.speeds.take(readings)
        if sync_ms is not None:
            self._state.sync.add(sync_ms)
        self._state.round.add(round_ms)
        elected = self._state.speeds.elect(pinned=self._config.anchor_rank, may_swap=self.phase >= Phase.STABLE)
        self._why.append(elected)
        if self.anchor_rank in counted:
            self._pending = self._propose(counted, compute_ms)
            self._state.calibrations += 1
        if self.phase is not self._cycle_phase:
            self._why.append(f"phase {self.phase.label} after {self.calibrations} calibrations")
        return self._pending

    def commit(self, proposal: Proposal | None, verdict: Verdict, *, nudge: Nudge | None = None) -> str:
        """Apply the verdict, and a meta nudge, to what `report` proposed; returns the cycle's decisions in words.

        A proposal other than the pending one is stale and dropped: one committed after a nudge once made
        10 -> 5 -> 20.
        """
        if proposal is not None and proposal != self._pending:
            self._why.append("a stale proposal is dropped")
            proposal = None
        self._pending = None
        self._state.latch.observe(verdict)
        self._why.append(named(verdict))
        if isinstance(verdict, NudgeDown) or nudge is not None:
            self._nudge(proposal, verdict, nudge)
        else:
            self._apply(proposal, verdict)
        reasons, self._why = "; ".join(reason for reason in self._why if reason), []
        return reasons

    def quotas(self, epoch_batches: int, slack_ms: Mapping[int, float] | None = None) -> Quotas:
        """The next window's plan.

        epoch_batches: batches of one whole epoch, all ranks (the window cap). slack_ms: rank -> smoothed time of
        the callbacks due on it in this window.
        """
        state, ms = self._state, self._state.speeds.ms
        base = self._settled(ms)
        wanted = within_lead(base, self._config.max_batch_diff)
        state.planned = capped(wanted, epoch_batches)
        # Once the cap binds it does so until one batch more of anchor would fit; otherwise the anchor, lowered to
        # what fits, would be grown and lowered again in turns.
        binding = sum(wanted.values()) > epoch_batches or (
            state.cap_binding and sum(self._at(self._anchor + 1).values()) > epoch_batches
        )
        state.base, state.base_anchor = base, self._anchor
        state.epoch_batches, state.cap_binding = epoch_batches, binding
        reason = self._plan_reason()
        if sum(wanted.values()) > epoch_batches and not self._config.is_sync:
            # Before an anchor rank is known all quotas are equal, and the smallest has no part of the remainder.
            pace = self.anchor_rank
            self._anchor = min(state.planned.values()) if pace is None else state.planned[pace]
            reason += f", capped to the {epoch_batches} batches of an epoch"
        slackened = with_slack(state.planned, ms, slack_ms or {})
        for rank in (rank for rank, quota in slackened.items() if quota != state.planned[rank]):
            reason += f", rank {rank} {state.planned[rank] - slackened[rank]} less for its callbacks"
        return Quotas(slackened, binding, reason)

    # ------------------------------------------------------------------------------------------------ what is known

    @property
    def anchor(self) -> int:
        """Quota of the anchor rank, batches."""
        return self._anchor

    @property
    def phase(self) -> Phase:
        """The phase now; see `cycle_phase` for verdicts and meta."""
        return phase_after(self._state.calibrations)

    @property
    def cycle_phase(self) -> Phase:
        """The phase at the start of the last report: what the verdict and the meta-controller of a cycle use."""
        return self._cycle_phase

    @property
    def anchor_rank(self) -> int | None:
        """The rank whose quota is the anchor; None before any reading."""
        return self._state.speeds.anchor_rank

    @property
    def calibrations(self) -> int:
        """Reports so far in which the anchor rank had a usable reading."""
        return self._state.calibrations

    @property
    def growth_is_off(self) -> bool:
        """True from a verdict that was not Stable until the fifth Stable one in a row."""
        return self._state.latch.is_off

    @property
    def overshoot(self) -> int:
        """Batches that a rank may run past its planned point before it is held (0 unless cpu_async)."""
        if not self._config.is_async:
            return 0
        return self._state.overshoot.batches if self._config.max_overshoot == "auto" else self._config.max_overshoot

    @property
    def shortest_window(self) -> dict[int, int]:
        """Batches per rank below which what an epoch has left is better run with the window before it: in cpu_async
        those of a round beside training, within max_anchor and a guard's veto. Else (at max_anchor, under a lead limit,
        and in other modes) 1 each.
        """
        if not self._config.is_async or self._config.max_batch_diff is not None:
            return {}
        _, high = self._config.anchor_bounds
        anchor = min(self._floor, self._anchor, high - self._anchor)
        return self._at(anchor) if anchor > 0 else {}

    def smoothed_ms(self, rank: int) -> float | None:
        """Milliseconds per batch of a rank, None while unknown."""
        return self._state.speeds.ms.get(rank)

    def fastest(self) -> int | None:
        """The rank with the lowest smoothed ms (the lower of equals), None before the first calibration."""
        return self._state.speeds.fastest if self.calibrations else None

    # ------------------------------------------------------------------------------------------------ membership

    def remove(self, rank: int) -> None:
        """A rank is gone; if it was the anchor rank, the slowest known of the others takes its place at once.

        The anchor and the phase stay: what was learnt about averaging still holds.
        """
        self._state.speeds.remove(rank, pinned=self._config.anchor_rank)
        self._state.base.pop(rank, None)
        self._state.planned.pop(rank, None)
        self._pending = None  # made for another world

    def add(self, rank: int) -> None:
        """A rank joins, or joins again: nothing is known of it, and its quota is the anchor until it is."""
        self.remove(rank)
        self._state.speeds.add(rank)

    # ------------------------------------------------------------------------------------------------ memory

    def snapshot(self) -> dict[str, Any]:
        """Plain, JSON-able state between two cycles. A sync run has no anchor to hand on: its 1 is the mode's."""
        self._state.anchor = None if self._config.is_sync else self._anchor
        plain: dict[str, Any] = msgspec.to_builtins(self._state, str_keys=True)
        return plain

    @classmethod
    def restore(cls, config: ElCheConfig, snapshot: Mapping[str, Any]) -> Self:
        """A mind that answers as the one that was stored.

        Under another config: the anchor of a sync run is not taken over, nor any into a sync run, and max_anchor
        holds (an anchor below min_anchor may be a nudge's and stays).
        """
        state = msgspec.convert(dict(snapshot), _State, str_keys=True)
        mind = cls(config, tuple(state.speeds.windows))
        mind._state = state
        mind._cycle_phase = mind.phase
        if state.anchor is not None and not config.is_sync:
            mind._anchor = min(state.anchor, config.anchor_bounds[1])
        return mind

    # ------------------------------------------------------------------------------------------------ inside

    def _at(self, anchor: int) -> dict[int, int]:
        speeds = self._state.speeds
        return within_lead(targets(anchor, speeds.ms, speeds.slow_ms), self._config.max_batch_diff)

    def _settled(self, ms: Mapping[int, float | None]) -> dict[int, int]:
        state = self._state
        fresh = targets(self._anchor, ms, state.speeds.slow_ms)
        if state.base_anchor != self._anchor:
            return fresh
        settled = {rank: settle(state.base.get(rank), quota) for rank, quota in fresh.items()}
        if self.anchor_rank is not None:
            settled[self.anchor_rank] = self._anchor  # by definition, also right after the role has moved
        return settled

    def _plan_reason(self) -> str:
        slow_ms = self._state.speeds.slow_ms
        if slow_ms is None:
            return f"{self.phase.label}: equal quotas of {self._anchor}"
        return f"{self.phase.label}: {self._anchor} on rank {self.anchor_rank} at {slow_ms:.3g} ms per batch"

    def _propose(self, counted: Mapping[int, Reading], compute_ms: Mapping[int, float]) -> Proposal | None:
        if self._config.is_sync or self._cycle_phase < Phase.STABLE:
            return None
        state, config = self._state, self._config
        planned_ms = max(
            [
                compute_ms.get(rank, 0.0) * state.planned.get(rank, self._anchor) / reading.batches
                for rank, reading in counted.items()
            ]
        )
        overhead = state.sync.median / planned_ms if planned_ms > 0 else math.inf
        if not math.isfinite(planned_ms) or not math.isfinite(overhead):
            return None
        low, high = config.anchor_bounds
        situation = Situation(
            anchor=self._anchor,
            overhead=overhead,
            target=config.overhead_target,
            low=low,
            high=high,
            ms=state.speeds.ms,
            slow_ms=state.speeds.slow_ms,
            floor=self._floor,
            no_growth=self._no_growth(),
            no_shrink="relax_up is on" if config.relax_up else "",
            max_batch_diff=config.max_batch_diff,
            epoch_batches=state.epoch_batches,
        )
        proposal, why = propose(situation)
        self._why.append(why)
        return proposal

    @property
    def _floor(self) -> int:
        """The smallest anchor: in cpu_async a window does not become shorter than a round."""
        slow_ms = self._state.speeds.slow_ms
        if not self._config.is_async or slow_ms is None:
            return 1
        return max(1, ceil_exact(self._state.round.median / slow_ms))

    def _no_growth(self) -> str:
        if self.growth_is_off:
            return "growth is latched off"
        return "the window is a whole epoch already" if self._state.cap_binding else ""

    def _nudge(self, proposal: Proposal | None, verdict: Verdict, nudge: Nudge | None) -> None:
        """Guard and meta do not multiply: the smaller factor wins. A factor that is no number moves nothing."""
        self._state.overshoot.reset()
        if proposal is not None:
            self._why.append(f"{proposal.anchor}{NOT_TAKEN}a nudge drops the proposal")
        factors = [verdict.factor] if isinstance(verdict, NudgeDown) else []
        if nudge is not None:
            factors.append(nudge.factor)
            self._why.append(named(nudge))
        factors = [min(max(factor, SMALLEST_NUDGE), 1.0) for factor in factors if math.isfinite(factor)]
        if factors and not self._config.is_sync:
            anchor = max(1, min(self._anchor, ceil_exact(self._anchor * min(factors))))
            self._why.append(f"{NUDGED}{self._anchor} -> {anchor}")
            self._anchor = anchor

    def _apply(self, proposal: Proposal | None, verdict: Verdict) -> None:
        if isinstance(verdict, Stable):
            self._state.overshoot.widen()
        if proposal is None or (proposal.grows and isinstance(verdict, SuppressGrowth)):
            self._why += [f"{proposal.anchor}{NOT_TAKEN}growth is suppressed"] if proposal is not None else []
        else:
            self._anchor = proposal.anchor
        if isinstance(verdict, Stable) and not (proposal is not None and proposal.grows) and self._may_relax():
            self._anchor += 1
            self._why.append(f"relax up to {self._anchor}")

    def _may_relax(self) -> bool:
        config, speeds = self._config, self._state.speeds
        if not config.relax_up or config.is_sync or self._cycle_phase < Phase.STABLE or self._no_growth():
            return False
        lead = targets(self._anchor + 1, speeds.ms, speeds.slow_ms).values()
        bound = config.max_batch_diff
        fits = bound is None or max(lead) - min(lead) <= bound
        return fits and self._anchor < config.anchor_bounds[1]
