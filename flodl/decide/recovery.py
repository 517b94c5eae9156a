"""Recovery after a death: a contribution counts wholly or not at all, with the same verdict on every survivor.

An averaging may have ended on some survivors and not on others. Survivors form a new generation and say which round
they hold. If anybody holds the round in question it is accepted, the dead rank's work in it included, and those who
lack it adopt the holder's state; if nobody does, the survivors repeat it without the dead, whose work is owed again.
A window that is under way goes on; a grant ends at its last finished round.

Where a death (or an averaging that does not come about) is the end of the run, every rank is set free from what it
waits for: each forms a group of its own, for which nobody is needed, and says which round it holds. The newest one is
accepted, and one that holds it saves.
"""

from __future__ import annotations

from flodl.decide.accepting import accept_order, reclaim_dead
from flodl.decide.finishing import begin_finish, end_alone, on_death_at_end, on_lingering, release_by
from flodl.decide.messages import Command, FormGroup, GroupFormed, RankDied, RankFailed, RankSuspected
from flodl.decide.mind import Mind, alert
from flodl.decide.ordering import next_order
from flodl.decide.rejoin import AGENT_GONE, begin_generation, expect, join
from flodl.decide.rounds import Order
from flodl.decide.training import average, cut
from flodl.spec.checkpoint import SaveReason

__all__ = ["end_without_hope", "on_death", "on_group_formed", "on_stall", "on_suspected", "stalls_at"]


def on_suspected(mind: Mind, event: RankSuspected) -> list[Command]:
    """Nothing was heard from a rank for a while."""
    if not mind.state.membership.is_alive(event.rank):
        return []
    text = f"{mind.name(event.rank)} has not been heard for {event.silent_seconds:.1f} s"
    return [alert(text, f"silent for {mind.limits.dead:g} s it is taken for dead", event.rank)]


def on_death(mind: Mind, event: RankDied | RankFailed) -> list[Command]:
    """A rank is gone after the first window was ordered."""
    state, rank = mind.state, event.rank
    first = state.membership.first_cause
    cause = event.cause if isinstance(event, RankDied) else event.message
    if not state.membership.die(rank, f"{mind.name(rank)}: {cause}"):
        return []
    if state.activity == "finishing":
        return on_death_at_end(mind, rank, event.at)
    is_consequence = bool(first) and isinstance(event, RankFailed) and event.kind == "contact"
    why = f"a consequence of the first death: {first}" if is_consequence else "the others go on with its work"
    is_lost = isinstance(event, RankDied) and not event.can_return
    comeback = expect(mind, rank, event.at, hopeless=AGENT_GONE if is_lost else "")
    text = f"{mind.name(rank)} died: {cause}" + (f"; {comeback}" if comeback else "")
    told: list[Command] = [alert(text, why, rank)]
    mind.pace.remove(rank)
    lost = state.callbacks.lose(rank)
    if lost:
        told.append(alert(lost, "training goes on", rank))
    if not mind.alive:
        return [*told, *_end(mind, f"{state.membership.first_cause} (no rank is left)", event.at)]
    ending = _ending(mind)
    if ending is not None:
        return [*told, *_part(mind, *ending, event.at)]
    form = join if state.activity == "joining" else _form
    return [*told, *form(mind, event.at, f"{mind.name(rank)} is gone; {_who_goes_on(mind)}")]


def _who_goes_on(mind: Mind) -> str:
    alive = list(mind.alive)
    return f"{len(alive)} ranks go on" if len(alive) > 1 else f"{mind.name(alive[0])} goes on alone"


def end_without_hope(mind: Mind, at: float) -> list[Command]:
    """Nobody may come back any more: the end of a run that went on for that alone."""
    state = mind.state
    if state.failure or state.activity not in ("training", "recovering", "repairing", "joining"):
        return []
    ending = _ending(mind) if state.membership.causes and mind.alive else None
    return [] if ending is None else _part(mind, *ending, at)


def _ending(mind: Mind) -> tuple[str, SaveReason] | None:
    """Why the run must end now that a rank is dead, for people and for the bundle; None where it goes on."""
    state = mind.state
    first = state.membership.first_cause
    if state.failure:
        return state.failure, state.callbacks.why or "max_failure_exceeded"
    spent = state.membership.is_spent(mind.job.membership.max_failure)
    if spent:
        return f"{first} ({spent})", "max_failure_exceeded"
    is_alone = len(mind.alive) == 1 and mind.job.elche.backend == "nccl"
    if is_alone and not state.membership.may_grow:  # while another one may come it trains on, in a group of one
        alone = f"{mind.name(mind.alive[0])} is the only one left, and NCCL cannot go on alone"
        return f"{first} ({alone})", "single_survivor"
    return None


def _end(mind: Mind, reason: str, at: float) -> list[Command]:
    """Nobody can save any more: what was saved before is what there is."""
    mind.state.failure = reason
    return end_alone(mind, at)


def _form(mind: Mind, at: float, reason: str, *, repair_from: int | None = None) -> list[Command]:
    """Have the living ranks form the next generation."""
    state = mind.state
    state.activity = "recovering" if repair_from is None else "repairing"
    begin_generation(mind, at + mind.limits.stall + _callback_seconds(mind))
    return [
        FormGroup(
            to=mind.alive,
            generation=state.generation,
            ranks=mind.alive,
            source=repair_from,
            accept_round=0 if repair_from is None else state.repairing_round,
            reason=reason,
        )
    ]


def _part(mind: Mind, failure: str, why: SaveReason, at: float) -> list[Command]:
    """The run ends: set everybody free."""
    state = mind.state
    state.failure, state.callbacks.why = failure, why
    state.activity = "recovering"
    begin_generation(mind, at + mind.limits.collective + _callback_seconds(mind))
    reason = f"the run ends ({why}): each says which round it holds"
    return [FormGroup(to=(rank,), generation=state.generation, ranks=(rank,), reason=reason) for rank in mind.alive]


def on_group_formed(mind: Mind, event: GroupFormed) -> list[Command]:
    """A survivor is in the new group and says which round it holds."""
    state, order = mind.state, mind.state.order
    assert order is not None
    state.formed[event.rank] = event.last_round
    if any(rank not in state.formed for rank in mind.alive):
        return []
    held = {rank: state.formed[rank] for rank in mind.alive}
    newest = max(held.values())
    if state.failure:
        return _last_round(mind, order, held, event.at)
    if newest > state.accepted and min(held.values()) < newest:
        return _repair(mind, newest, held, event.at)
    return _resume(mind, order, newest, event.at)


def _repair(mind: Mind, newest: int, held: dict[int, int], at: float) -> list[Command]:
    """Some hold a round that others lack: it is accepted, and its holder's state goes to everybody."""
    source = min(rank for rank, number in held.items() if number == newest)
    lacking = [mind.name(rank) for rank, number in held.items() if number < newest]
    mind.state.repairing_round = newest
    adopt = "adopts" if len(lacking) == 1 else "adopt"
    reason = f"{mind.name(source)} holds round {newest}, so it counts; {', '.join(lacking)} {adopt} its state"
    return _form(mind, at, reason, repair_from=source)


def _last_round(mind: Mind, order: Order, held: dict[int, int], at: float) -> list[Command]:
    """The run ends with the newest round that anybody holds; who lacks it does not save."""
    newest = max(*held.values(), mind.state.accepted)
    mind.state.callbacks.tried = [rank for rank in mind.alive if held.get(rank, 0) < newest]
    return _resume(mind, order, newest, at)


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
    if state.failure:
        state.ledger.void_trained()  # of a round that nobody holds; the bundle is to say so
        return begin_finish(mind, state.failure, at)
    if order.alone:
        return next_order(mind, at)
    if order.missing_reports(mind.alive):
        return cut(mind, order)
    return average(mind, order, at)


# ------------------------------------------------------------------------------------------------------- the ceiling


def stalls_at(mind: Mind) -> float | None:
    """When what the living ranks do together has taken too long; None while they owe each other nothing."""
    state, order, limits = mind.state, mind.state.order, mind.limits
    if state.activity == "finishing":
        return release_by(mind)
    if state.activity in ("recovering", "repairing", "joining"):
        return state.membership.formed_by
    if state.activity != "training" or order is None or mind.is_solo:
        return None
    if not order.alone:
        return order.averaged_at + limits.stall if order.averaged_in == state.generation else None
    if not state.accepted:
        return None  # a first step compiles, and nobody knows for how long
    return order.at + limits.stall + limits.step + _callback_seconds(mind)


def _callback_seconds(mind: Mind) -> float:
    """For so long a rank may not be able to answer: it evaluates, and is at no step's edge before that has ended."""
    return mind.limits.callback if mind.state.callbacks.running is not None else 0.0


def on_stall(mind: Mind, at: float) -> list[Command]:
    """An averaging, or a new group, does not come about although everybody lives: save and stop."""
    due, state, order = stalls_at(mind), mind.state, mind.state.order
    if state.activity == "finishing":
        return on_lingering(mind, at)
    if due is None or at < due or order is None:
        return []
    is_forming = state.activity in ("recovering", "repairing", "joining")
    if is_forming and state.failure:
        return _leave_the_silent(mind, order, at)
    what = f"generation {state.generation} was not formed" if is_forming else _not_averaged(order)
    seconds = mind.limits.stall + (_callback_seconds(mind) if is_forming else 0.0)
    if order.alone and not is_forming:
        seconds = due - order.at
    text = f"{what} in {seconds:g} s, and no rank is known to be dead"
    return [alert(text, "the run is saved and ends"), *_part(mind, text, "reduce_stall", at)]


def _not_averaged(order: Order) -> str:
    if order.first == order.number:
        return f"round {order.number} was not averaged"
    return f"rounds {order.first} to {order.number} were not all averaged"


def _leave_the_silent(mind: Mind, order: Order, at: float) -> list[Command]:
    """Some do not even answer alone: they are given up."""
    state = mind.state
    told: list[Command] = []
    for rank in [rank for rank in mind.alive if rank not in state.formed]:
        seconds = mind.limits.collective + _callback_seconds(mind)
        cause = f"did not answer in {seconds:g} s when the run was to end"
        state.membership.die(rank, f"{mind.name(rank)}: {cause}")
        told.append(alert(f"{mind.name(rank)} {cause}", "it is given up", rank))
    if not mind.alive:
        return [*told, *_end(mind, state.failure, at)]
    return [*told, *_last_round(mind, order, {rank: state.formed[rank] for rank in mind.alive}, at)]
