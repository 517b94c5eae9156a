"""Saves: when one is due, who does it, and what came of it.

A bundle holds the result of exactly one accepted round: what the coordinator knew is fixed together with the order that
has a rank copy its weights, before anything else is dealt. One save is under way at a time; training goes on meanwhile.
A save that fails is tried again, at the next edge, by the next fastest rank that has not tried.
"""

from __future__ import annotations

from flodl.decide.messages import BundleKept, Command, SaveBegun
from flodl.decide.mind import Mind, alert
from flodl.spec.checkpoint import SaveReason

__all__ = ["ask_save", "begin_save", "due_saver", "failure_code", "note_kept", "save_failed"]

_EXIT_FAILED, _EXIT_LOST = 4, 5


def ask_save(mind: Mind, at: float, *, has_ended: bool) -> None:
    """A round is accepted: make a save due where an epoch has ended (has_ended) or the clock asks for one.

    Where the best are kept, evaluated weights are saved too; not while a save is under way: what could be saved after
    it are other weights.
    """
    callbacks, config = mind.state.callbacks, mind.job.checkpoint
    minutes = config.every_minutes
    newest = max(mind.state.epochs_ended, default=-1)
    by_epoch = has_ended and config.every_epochs is not None and (newest + 1) % config.every_epochs == 0
    if by_epoch or (minutes is not None and at - callbacks.saved_at >= minutes * 60.0):
        callbacks.save_due = "checkpoint"
        callbacks.saved_at = at
    elif config.best.metric is not None and callbacks.eval_due is not None and callbacks.is_idle:
        callbacks.save_due = "best"


def due_saver(mind: Mind) -> int | None:
    """The rank that is to save now; None where nothing is due or a save is still under way."""
    callbacks = mind.state.callbacks
    if callbacks.save_due is None or callbacks.saving is not None:
        return None
    return callbacks.next_saver(mind.alive, mind.speeds, callbacks.save_tried)


def begin_save(mind: Mind, rank: int, why: SaveReason, *, evaluates: bool = False) -> SaveBegun:
    """`rank` is told to save the newest accepted round; what is known now belongs to it."""
    state = mind.state
    state.callbacks.save_due = None
    state.callbacks.saving = state.callbacks.saver = None
    mind.fix()
    state.callbacks.saving, state.callbacks.saver = state.accepted, rank
    state.callbacks.unheard = rank, state.accepted
    epoch = state.ledger.epoch
    return SaveBegun(
        rank=rank,
        round=state.accepted,
        generation=state.generation,
        epoch=state.ledger.num_epochs if epoch is None else epoch,
        global_step=state.tally.batches,
        why=why,
        evaluates=evaluates,
        reason=f"{mind.name(rank)} saves round {state.accepted}: {why}",
    )


def note_kept(mind: Mind, event: BundleKept) -> list[Command] | None:
    """What came of a save. None for word of another one than the one under way: of one that was followed by another, or
    whose rank has died, a bundle may be there all the same."""
    callbacks = mind.state.callbacks
    if (event.rank, event.round) == callbacks.unheard:
        callbacks.unheard = None
    if not event.error:
        callbacks.kept = max(event.round, callbacks.kept or 0)
    if (event.round, event.rank) != (callbacks.saving, callbacks.saver):
        return None
    callbacks.saving = callbacks.saver = None
    told: list[Command] = [alert(remark, "the bundle is in place all the same") for remark in event.remarks]
    if not event.error:
        callbacks.save_tried = []
        return told
    return [*told, save_failed(mind, event.rank, event.error)]


def save_failed(mind: Mind, rank: int, error: str) -> Command:
    """A save has failed: the next rank tries at the next edge, unless all have."""
    callbacks = mind.state.callbacks
    callbacks.saving = callbacks.saver = callbacks.unheard = None
    callbacks.save_tried.append(rank)
    if callbacks.next_saver(mind.alive, mind.speeds, callbacks.save_tried) is None:
        callbacks.save_tried, follows = [], "all ranks have tried; the next one comes when it is due"
    else:
        callbacks.save_due, follows = "checkpoint", "another rank tries"
    kept = "" if callbacks.kept is None else f"; the bundle of round {callbacks.kept} is whole"
    return alert(f"{mind.name(rank)}: the save failed: {error}{kept}", f"training goes on, {follows}", rank)


def failure_code(mind: Mind) -> int:
    """The exit code of a run that failed: is there anything to go on from?"""
    return _EXIT_LOST if mind.state.callbacks.kept is None else _EXIT_FAILED
