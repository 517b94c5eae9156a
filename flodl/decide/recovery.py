"""Recovery after a death: a contribution counts wholly or not at all, with the same verdict on every survivor.

An averaging may have ended on some survivors and not on others. Survivors form a new generation and say which round
they hold. If anybody holds the round in question it is accepted, the dead rank's work in it included, and those who
lack it adopt the holder's state; if nobody does, the survivors repeat it without the dead, whose work is owed again.
A window that is under way goes on; a grant ends at its last finished round.
"""

from __future__ import annotations

from flodl.decide.accepting import accept_order, reclaim_dead
from flodl.decide.finishing import on_death_at_end
from flodl.decide.messages import Command, FormGroup, GroupFormed
from flodl.decide.mind import Mind, alert
from flodl.decide.ordering import next_order
from flodl.decide.rounds import Order
from flodl.decide.training import average, cut

__all__ = ["on_death", "on_group_formed"]

_EXIT_FAILED = 5  # until there are bundles, nothing can be resumed


def on_death(mind: Mind, rank: int, cause: str) -> list[Command]:
    """A rank is gone after the first window was ordered."""
    state = mind.state
    if not state.membership.die(rank, f"{mind.name(rank)}: {cause}"):
        return []
    if state.activity == "finishing":
        return on_death_at_end(mind, rank)
    spent = state.membership.is_spent(mind.job.membership.max_failure)
    if not spent and len(mind.alive) == 1 and mind.job.elche.backend == "nccl":
        spent = f"{mind.name(mind.alive[0])} is the only one left, and NCCL cannot go on alone"
    if spent:
        return mind.end("failed", _EXIT_FAILED, f"{state.membership.first_cause} ({spent})")
    mind.pace.remove(rank)
    told: list[Command] = [alert(f"{mind.name(rank)} died: {cause}", "the others go on with its work", rank)]
    lost = state.callbacks.lose(rank)
    if lost:
        told.append(alert(lost, "training goes on", rank))
    return [*told, *_form(mind, "recovering", f"{mind.name(rank)} is gone; {len(mind.alive)} ranks go on")]


def _form(mind: Mind, activity: str, reason: str, source: int | None = None) -> list[Command]:
    """Have the living ranks form the next generation."""
    state = mind.state
    state.activity = "repairing" if activity == "repairing" else "recovering"
    state.generation += 1
    state.formed = {}
    return [
        FormGroup(
            to=mind.alive,
            generation=state.generation,
            ranks=mind.alive,
            source=source,
            accept_round=state.repairing_round if source is not None else 0,
            reason=reason,
        )
    ]


def on_group_formed(mind: Mind, event: GroupFormed) -> list[Command]:
    """A survivor is in the new group and says which round it holds."""
    state, order = mind.state, mind.state.order
    assert order is not None
    state.formed[event.rank] = event.last_round
    if any(rank not in state.formed for rank in mind.alive):
        return []
    held = {rank: state.formed[rank] for rank in mind.alive}
    newest = max(held.values())
    if newest > state.accepted and min(held.values()) < newest:
        return _repair(mind, newest, held)
    return _resume(mind, order, newest, event.at)


def _repair(mind: Mind, newest: int, held: dict[int, int]) -> list[Command]:
    """Some hold a round that others lack: it is accepted, and its holder's state goes to everybody."""
    source = min(rank for rank, number in held.items() if number == newest)
    lacking = ", ".join(mind.name(rank) for rank, number in held.items() if number < newest)
    mind.state.repairing_round = newest
    reason = f"{mind.name(source)} holds round {newest}, so it counts; {lacking} adopt its state"
    return _form(mind, "repairing", reason, source=source)


def _resume(mind: Mind, order: Order, newest: int, at: float) -> list[Command]:
    """All survivors hold the same round: book what it contains, owe the rest of the dead ranks' work again."""
    state = mind.state
    state.activity = "training"
    finished = max(newest, state.accepted)
    if order.alone and finished < order.number:
        order.number = max(finished, order.first - 1)
        order.reports = {}  # they tell of more than what is accepted
    if finished == order.number and finished > state.accepted:
        return accept_order(mind, order, at)
    reclaim_dead(mind)
    if order.alone:
        return next_order(mind, at)
    if order.missing_reports(mind.alive):
        return cut(mind, order)
    return average(mind, order)
