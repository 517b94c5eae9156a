"""ElChe: speeds -> quotas, and a proposed anchor. The slowest rank sets the pace, the faster ones do more.

One cycle of the coordinator, per accepted round (all in one event: nothing of a half cycle is stored):
``report`` -> guard.observe -> meta.observe(phase=elche.cycle_phase, anchor=elche.anchor) -> ``commit`` -> ``quotas``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from flodl.decide.phase import Phase
from flodl.decide.proposal import Proposal
from flodl.decide.quota import Quotas
from flodl.decide.readings import Reading
from flodl.decide.verdict import Nudge, Verdict
from flodl.spec.elche import ElCheConfig

__all__ = ["ElChe"]


class ElChe:
    """The cadence of one run."""

    def __init__(self, config: ElCheConfig, ranks: tuple[int, ...]) -> None:
        """config: resolved (mode is not ``auto``). ranks: the living ones."""
        ...

    def report(
        self,
        readings: Mapping[int, Reading],
        *,
        sync_ms: float,
        compute_ms: Mapping[int, float],
        round_ms: float = 0.0,
    ) -> Proposal | None:
        """Take an accepted round in. A living rank that is absent from `readings` has missed this report.

        readings: see `readings.usable`; batches really run. sync_ms: exposed averaging time of the round, max over
        ranks. compute_ms: rank -> compute of the whole window, as measured (scaled to the planned quota in here).
        round_ms: the averaging's own duration (cpu_async only: windows are not made shorter than a round).
        """
        ...

    def commit(self, proposal: Proposal | None, verdict: Verdict, *, nudge: Nudge | None = None) -> str:
        """Apply the verdict (and a meta nudge) to what `report` proposed; returns the cycle's decisions in words."""
        ...

    def quotas(self, epoch_batches: int, slack_ms: Mapping[int, float] | None = None) -> Quotas:
        """The next window's plan. epoch_batches: batches of one whole epoch, all ranks (the cap). slack_ms: rank ->
        smoothed time of the callbacks due on it in this window."""
        ...

    @property
    def anchor(self) -> int:
        """Quota of the anchor rank, batches."""
        ...

    @property
    def phase(self) -> Phase:
        """The phase now; see `cycle_phase` for verdicts and meta."""
        ...

    @property
    def cycle_phase(self) -> Phase:
        """The phase at the start of the last report: what the verdict and the meta-controller of a cycle use."""
        ...

    @property
    def anchor_rank(self) -> int | None:
        """The rank whose quota is the anchor; None before any reading."""
        ...

    @property
    def calibrations(self) -> int:
        """Reports so far in which the anchor rank had a usable reading."""
        ...

    @property
    def overshoot(self) -> int:
        """Batches that a rank may run past its planned point before it is held (0 unless cpu_async)."""
        ...

    def smoothed_ms(self, rank: int) -> float | None:
        """Milliseconds per batch of a rank, None while unknown."""
        ...

    def fastest(self) -> int | None:
        """The rank with the lowest smoothed ms (the lower of equals), None before the first calibration."""
        ...

    def remove(self, rank: int) -> None:
        """A rank is gone; if it was the anchor rank, the slowest of the others takes its place."""
        ...

    def add(self, rank: int) -> None:
        """A rank joins: quota = anchor until it is known."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Plain, JSON-able state between two cycles."""
        ...

    @classmethod
    def restore(cls, config: ElCheConfig, snapshot: Mapping[str, Any]) -> Self:
        """A mind that answers as the one that was stored. The anchor of another mode's sync run is not taken over."""
        ...
