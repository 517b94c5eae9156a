"""What a person wants to see of a run while it goes on: the terminal and status.json show it."""

from __future__ import annotations

import msgspec

from flodl.decide.mind import Activity, Mind

__all__ = ["View", "view_of"]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A run now. progress: 0..1 of all samples. shares: each rank's part of the newest round. loss: of the newest
    round, None before the first. samples_per_second: smoothed over rounds. is_settled: anchor and divergence have
    stopped moving. awaited_ranks: the dead that are started again. restarts: as in the
    totals."""

    activity: Activity
    epoch: int
    num_epochs: int
    progress: float
    rounds: int
    anchor: int
    phase: str
    is_settled: bool = False
    samples_done: int
    samples_per_second: float
    loss: float | None
    shares: dict[int, float]
    eval: dict[str, float]
    dead_ranks: tuple[int, ...]
    awaited_ranks: tuple[int, ...] = ()
    restarts: dict[int, int] = {}


def view_of(mind: Mind) -> View:
    """The view of what `mind` knows."""
    state = mind.state
    ledger = state.ledger
    done = ledger.samples_done
    return View(
        activity=state.activity,
        epoch=len(state.epochs_ended) if state.order is None else state.order.epoch,
        num_epochs=ledger.num_epochs,
        progress=done / max(1, ledger.epoch_samples * ledger.num_epochs),
        rounds=state.accepted,
        anchor=mind.pace.elche.anchor,
        phase=mind.pace.elche.phase.label,
        is_settled=mind.pace.is_settled,
        samples_done=done,
        samples_per_second=state.tally.rate,
        loss=state.tally.train_loss,
        shares=dict(state.tally.shares),
        eval=dict(state.callbacks.results),
        dead_ranks=state.membership.dead,
        awaited_ranks=state.membership.awaited,
        restarts=state.membership.restarts,
    )
