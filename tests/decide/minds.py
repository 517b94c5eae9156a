"""Minds for the tests of ElChe: made, told of rounds, and asked for plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flodl.decide.elche import ElChe
from flodl.decide.phase import Phase
from flodl.decide.proposal import Proposal
from flodl.decide.readings import Reading
from flodl.decide.verdict import Stable, Verdict
from flodl.spec.elche import ElCheConfig, Mode

__all__ = ["CADENCE_MODES", "EPOCH", "SYNC_MODES", "at_work", "cycle", "elche", "plan", "report", "with_growth_to_20"]

EPOCH = 100_000
CADENCE_MODES: tuple[Mode, ...] = ("cpu_cadence", "nccl_cadence", "cpu_async")
SYNC_MODES: tuple[Mode, ...] = ("cpu_sync", "nccl_sync")


def elche(num_ranks: int = 2, **knobs: Any) -> ElChe:
    return ElChe(ElCheConfig(**{"mode": "cpu_cadence", **knobs}), tuple(range(num_ranks)))


def report(
    mind: ElChe, ms: Sequence[float | None], *, sync_ms: float | None = 0.0, batches: int = 10, round_ms: float = 0.0
) -> Proposal | None:
    """One accepted round in which rank r ran `batches` batches of ms[r] each (None: nothing usable)."""
    readings = {rank: Reading(batches, batches * value) for rank, value in enumerate(ms) if value is not None}
    compute = {rank: reading.wall_ms for rank, reading in readings.items()}
    return mind.report(readings, sync_ms=sync_ms, compute_ms=compute, round_ms=round_ms)


def cycle(mind: ElChe, ms: Sequence[float | None], verdict: Verdict | None = None, **told: Any) -> list[int]:
    """report, commit, quotas: the next window's plan."""
    proposal = report(mind, ms, **told)
    mind.commit(proposal, verdict or Stable())
    return plan(mind)


def plan(mind: ElChe, epoch: int = EPOCH, slack_ms: Mapping[int, float] | None = None) -> list[int]:
    return list(mind.quotas(epoch, slack_ms).by_rank.values())


def at_work(ms: Sequence[float | None] = (10.0, 10.0), *, overhead: float | None = None, **knobs: Any) -> ElChe:
    """A mind that is Stable and has held its anchor so far. overhead: sync / compute in all its rounds."""
    mind = elche(len(ms), **knobs)
    plan(mind)
    slowest = max(value for value in ms if value is not None)
    target = 0.75 * float(knobs.get("overhead_target", 0.05)) if overhead is None else overhead
    for _ in range(5):
        proposal = report(mind, ms, sync_ms=target * mind.anchor * slowest)
        assert proposal is None
        mind.commit(None, Stable())
        plan(mind)
    assert mind.phase is Phase.STABLE
    return mind


def with_growth_to_20() -> tuple[ElChe, Proposal]:
    mind = at_work([100, 100], overhead_target=0.1)
    proposal = None
    for _ in range(2):
        proposal = report(mind, [100, 100], sync_ms=220)
    assert proposal is not None
    assert (mind.anchor, proposal.anchor) == (10, 20)
    return mind, proposal
