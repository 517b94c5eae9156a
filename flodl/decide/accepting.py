"""Acceptance: everybody holds a round's result. Book it, learn from it, tell what ended with it, order the next."""

from __future__ import annotations

from flodl.decide.evaluation import ask_by_clock
from flodl.decide.intervals import ended_interval
from flodl.decide.messages import Command, EpochEnded
from flodl.decide.mind import Mind, alert
from flodl.decide.ordering import next_order
from flodl.decide.rounds import Order
from flodl.decide.saving import ask_save
from flodl.decide.stopping import judge_figures, judge_progress
from flodl.decide.totals import training_figures
from flodl.spec.stop import TRAIN

__all__ = ["accept_order", "reclaim_dead"]


def accept_order(mind: Mind, order: Order, at: float) -> list[Command]:
    """The order's last round is accepted: book it, learn from it, order the next."""
    state = mind.state
    if order.alone:
        _book_grant(mind, order)
    state.ledger.accept()
    reclaim_dead(mind)
    state.accepted = order.number
    told = _nonfinite(mind, order)
    if order.alone:
        _resize_grant(mind, order, at)
    if not mind.is_solo:
        mind.pace.observe(order, mind.alive)
    state.tally.accept(order, at, _paused_seconds(mind, order))
    ended_before = len(state.epochs_ended)
    told += _ended_epochs(mind, order, at)
    has_ended = len(state.epochs_ended) > ended_before
    told += ended_interval(mind, order.epoch)
    ask_by_clock(mind, order, at)
    ask_save(mind, at, has_ended=has_ended)
    told += judge_progress(mind, order, at)
    return [*told, *next_order(mind, at)]


def reclaim_dead(mind: Mind) -> None:
    """What the dead had in hand or trained, and no accepted round contains, is owed again."""
    for rank in mind.state.membership.dead:
        mind.state.ledger.reclaim(rank)


def _book_grant(mind: Mind, order: Order) -> None:
    """What all ranks of a grant, the dead included, have run in its accepted rounds."""
    planned: dict[int, int] = {}  # ranks with the same batches share their rounds
    for rank in sorted(order.rounds):
        shared = id(order.rounds[rank])
        if shared not in planned:
            planned[shared] = order.planned(rank)
        mind.state.ledger.run(rank, planned[shared], mind.by_rank[rank].batch_size)


def _resize_grant(mind: Mind, order: Order, at: float) -> None:
    """The next grant is sized from this one, callbacks left out."""
    callback_ms = max((done.callback_ms for done in order.reports.values()), default=0.0)
    by_batches = mind.is_solo and mind.job.elche.averages == "parameters"
    units = max(map(order.planned, order.rounds)) if by_batches else order.number - order.first + 1
    mind.pace.resize_grant(units, (at - order.at) * 1000.0 - callback_ms)


def _paused_seconds(mind: Mind, order: Order) -> float:
    """What callbacks took out of the wall time: all of it where the others waited, else the rank's part of the work."""
    paused = 0.0
    for rank, done in order.reports.items():
        if done.callback_ms > 0.0:
            paused += done.callback_ms / 1000.0 * (1.0 if order.alone else mind.state.tally.shares.get(rank, 1.0))
    return paused


def _nonfinite(mind: Mind, order: Order) -> list[Command]:
    """Contributions that were left out: told, counted, and in the end a reason to stop."""
    state = mind.state
    found = order.nonfinite
    state.bad_rounds = state.bad_rounds + 1 if found else 0
    told: list[Command] = [
        alert(
            f"round {order.number}: {name} of {mind.name(rank)} is not finite; it adopts the consensus",
            "a contribution that is not finite is left out of the averaging",
            rank,
        )
        for rank, name in found.items()
    ]
    if state.bad_rounds >= mind.job.trainer.max_nonfinite_rounds:
        state.failure = f"not finite in {state.bad_rounds} rounds in a row (trainer.max_nonfinite_rounds)"
    return told


def _ended_epochs(mind: Mind, order: Order, at: float) -> list[Command]:
    """Epochs whose last sample has just been accepted; their evaluation is due with the next window."""
    state = mind.state
    every = mind.job.eval.every_epochs
    told: list[Command] = []
    for epoch in sorted({order.epoch, *order.epochs.values()}):
        if epoch in state.epochs_ended or not state.ledger.is_done(epoch):
            continue
        state.epochs_ended.append(epoch)
        if every is not None and (epoch + 1) % every == 0:
            state.callbacks.eval_due, state.callbacks.midway = epoch, False
        metrics = state.tally.close_epoch(
            epoch,
            samples=state.ledger.epoch_samples,
            anchor=mind.pace.elche.anchor,
            phase=mind.pace.elche.phase.label,
        )
        told.append(EpochEnded(metrics=metrics, reason=f"the last sample of epoch {epoch} is accepted"))
        if state.ledger.epoch is not None:
            figures = {f"{TRAIN}{name}": value for name, value in training_figures(metrics).items()}
            told += judge_figures(mind, figures, at)
    return told
