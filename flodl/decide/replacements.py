"""Replacements: they are started when they are due, and become ready, or do not, or die on the way back."""

from __future__ import annotations

from flodl.decide.accepting import reclaim_dead
from flodl.decide.messages import Command, Dismiss, GroupFormed, RankDied, RankFailed, RankReady, Restart
from flodl.decide.mind import Mind, alert
from flodl.decide.ordering import next_order
from flodl.decide.readiness import readiness_problems
from flodl.decide.recovery import end_without_hope
from flodl.decide.rejoin import AGENT_GONE, deal_anew, expect, join, may_restart
from flodl.decide.saving import failure_code

__all__ = ["on_joined", "on_late_joiners", "on_replacement", "on_replacement_lost", "on_restarts", "restarts_at"]

NO_MATCH = "it is not restarted: another process would find the same"


def restarts_at(mind: Mind) -> float | None:
    """When the next replacement is to be started, or should have been ready; None where none is awaited."""
    if not may_restart(mind):
        return None
    backs = mind.state.membership.comebacks.values()
    dues = [due for back in backs for due in (back.due, back.ready_by) if due is not None]
    return min(dues, default=None)


def on_restarts(mind: Mind, at: float) -> list[Command]:
    """Start the replacements that are due, give up on those that are not ready in time."""
    told: list[Command] = []
    if not may_restart(mind):
        return told
    seconds = mind.job.cluster.controller.join.timeout_seconds
    for rank, back in sorted(mind.state.membership.comebacks.items()):
        if back.due is not None and at >= back.due:
            back.due, back.ready_by = None, at + seconds
            back.restarts += 1
            reason = f"{mind.name(rank)} is started again, restart {back.restarts}"
            told.append(Restart(rank=rank, incarnation=back.restarts, reason=reason))
        elif back.ready_by is not None and at >= back.ready_by:
            cause = f"was not ready within cluster.controller.join.timeout_seconds={seconds:g}"
            told += [*_lose(mind, rank, cause, at), Dismiss(rank=rank, reason=cause)]
    return [*told, *end_without_hope(mind, at)]


def on_replacement(mind: Mind, event: RankReady) -> list[Command]:
    """A replacement has built all it needs: it must agree with the others, as it had to at the start."""
    state = mind.state
    back = state.membership.comebacks.get(event.rank)
    if back is None or back.ready_by is None or event.incarnation != back.restarts or not may_restart(mind):
        return []
    readies = {rank: state.readies[rank] for rank in mind.alive} | {event.rank: event}
    problems = readiness_problems(readies, mind.places, mind.job.trainer.batch_size, newcomer=event.rank)
    if problems:
        cause = "; ".join(str(problem) for problem in problems)
        told = [*_lose(mind, event.rank, cause, event.at, hopeless=NO_MATCH), Dismiss(rank=event.rank, reason=cause)]
        return [*told, *end_without_hope(mind, event.at)]
    state.readies[event.rank] = event
    back.ready_by, back.is_ready = None, True
    return []


def on_replacement_lost(mind: Mind, event: RankDied | RankFailed) -> list[Command]:
    """A replacement died before it could join."""
    is_end = isinstance(event, RankDied)
    cause = event.cause if is_end else event.message
    told = _lose(mind, event.rank, cause, event.at, hopeless=AGENT_GONE if is_end and not event.can_return else "")
    return [*told, *end_without_hope(mind, event.at)]


def _lose(mind: Mind, rank: int, cause: str, at: float, *, hopeless: str = "") -> list[Command]:
    text = f"{mind.name(rank)} could not come back: {cause}"
    return [alert(text, expect(mind, rank, at, hopeless=hopeless) or "the run is about to end", rank)]


# ------------------------------------------------------------------------------------------------- taking a place


def on_joined(mind: Mind, event: GroupFormed) -> list[Command]:
    """A rank is in the group that is formed at a round's edge; when all are, and hold the round, work goes on."""
    state = mind.state
    state.formed[event.rank] = event.last_round
    if any(rank not in state.formed for rank in mind.alive):
        return []
    state.newcomers = [rank for rank in mind.alive if state.formed[rank] < state.accepted]
    if len(state.newcomers) == len(mind.alive):
        reason = f"{state.membership.first_cause} (nobody who is left holds the weights)"
        return mind.end("failed", failure_code(mind), reason)
    if state.newcomers:
        return join(mind, event.at, "not all hold the newest round")
    state.activity = "training"
    told = _welcome(mind, event.at)
    reclaim_dead(mind)  # who died on the way here
    deal_anew(mind)
    return [*told, *next_order(mind, event.at)]


def _welcome(mind: Mind, at: float) -> list[Command]:
    told: list[Command] = []
    for rank, back in sorted(mind.state.membership.comebacks.items()):
        if back.died_at is None or rank not in mind.alive:
            continue
        most = mind.job.membership.max_restarts
        text = f"{mind.name(rank)} is back after {at - back.died_at:.1f} s (restart {back.restarts} of {most})"
        told.append(alert(text, "it holds what the others hold and gets its part of the work", rank))
        back.died_at = None
    return told


def on_late_joiners(mind: Mind, at: float) -> list[Command]:
    """A generation is not formed at a round's edge, and newcomers are missing: they are given up. Where others are
    missing, they have as long as for any other group."""
    state = mind.state
    if state.activity != "joining" or at < state.membership.formed_by or not state.newcomers:
        return []
    late = [rank for rank in state.newcomers if rank not in state.formed]
    if not late:
        state.newcomers = []
        state.membership.formed_by = at + mind.limits.stall
        return []
    told: list[Command] = []
    for rank in late:
        cause = "did not take its place in time"
        state.membership.die(rank, f"{mind.name(rank)}: {cause}")
        mind.pace.remove(rank)
        told += [*_lose(mind, rank, cause, at), Dismiss(rank=rank, reason=cause)]
    ending = end_without_hope(mind, at)
    return [*told, *(ending or join(mind, at, "the others go on"))]
