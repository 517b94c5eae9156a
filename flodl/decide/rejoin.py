"""Rejoin: a dead rank's device gets another process, which takes the rank's place at a round's edge.

A death makes a replacement due, after a pause that doubles from one to the next; so a rank that dies of its own step
does not loop, and after membership.max_restarts it is given up. While the process starts the others go on. At the edge
after it is ready (everybody holds the newest accepted round, nothing is under way) all form a new generation, in which
the newcomer adopts what a survivor holds: parameters, buffers, optimizer, and whatever else a round changes. Nothing is
known of its speed: until it has reported, its quota is the anchor.

What comes of them is answered in `replacements`.
"""

from __future__ import annotations

from flodl.decide.ledger import samples_of
from flodl.decide.membership import Comeback
from flodl.decide.messages import Command, Dismiss, FormGroup
from flodl.decide.mind import Mind

__all__ = ["AGENT_GONE", "admit", "begin_generation", "deal_anew", "dismiss_awaited", "expect", "join", "may_restart"]

AGENT_GONE = "it cannot be restarted: its host's agent is gone"
STATE_BYTES_PER_SECOND = 50e6  # a slow network
STATE_BYTES_PER_PARAMETER = 16  # float32 with two optimizer moments and a center


def may_restart(mind: Mind) -> bool:
    """True while replacements are started: not before the first window, and not for a run that is about to end."""
    state = mind.state
    is_at_work = state.activity in ("training", "recovering", "repairing", "joining")
    return mind.job.membership.rejoin and is_at_work and state.stop is None and not state.failure


def expect(mind: Mind, rank: int, at: float, *, hopeless: str = "") -> str:
    """`rank`, or its replacement, is gone: when the next one is due, in words; "" where the job wants none.

    hopeless: why another process of it would be of no use.
    """
    membership, most = mind.state.membership, mind.job.membership.max_restarts
    if not may_restart(mind):
        return ""
    back = membership.comebacks.setdefault(rank, Comeback())
    back.stop()
    if back.died_at is None:
        back.died_at = at
    if hopeless:
        return hopeless
    if back.restarts >= most:
        return f"it was restarted {back.restarts} times (membership.max_restarts) and is given up"
    pause = mind.limits.restart * 2.0**back.restarts
    back.due = at + pause
    return f"it is restarted in {pause:g} s (restart {back.restarts + 1} of {most})"


def dismiss_awaited(mind: Mind) -> list[Command]:
    """The run is about to end: replacements that have not joined yet are not needed any more."""
    membership = mind.state.membership
    awaited = membership.awaited
    for back in membership.comebacks.values():
        back.stop()
    return [Dismiss(rank=rank, reason="the run ends before it could join") for rank in awaited]


# ---------------------------------------------------------------------------------------------------- a round's edge


def admit(mind: Mind, at: float) -> list[Command]:
    """A round's edge: the ranks whose replacements are ready take their places. [] where there are none."""
    state, membership = mind.state, mind.state.membership
    waiting = membership.waiting
    if not waiting or not state.accepted:  # before the first accepted round there is nothing to hand on
        return []
    state.newcomers = list(waiting)
    for rank in waiting:
        membership.come_back(rank, state.generation + 1)
        mind.pace.add(rank)
    names = ", ".join(mind.name(rank) for rank in waiting)
    return join(mind, at, f"{names} {'joins' if len(waiting) == 1 else 'join'} after round {state.accepted}")


def join(mind: Mind, at: float, reason: str) -> list[Command]:
    """Have all form a generation at a round's edge; newcomers adopt what the fastest of the others holds.

    Where nobody else is left, they form one to say whether they hold the round already.
    """
    state = mind.state
    state.newcomers = [rank for rank in state.newcomers if rank in mind.alive]
    holders = [rank for rank in mind.alive if rank not in state.newcomers]
    source = state.callbacks.next_saver(holders, mind.speeds, ()) if state.newcomers else None
    state.activity = "joining"
    begin_generation(mind, at + (mind.limits.stall if source is None else _seconds(mind)))
    told = "" if source is None else f"; {mind.name(source)} hands its state on"
    return [
        FormGroup(
            to=mind.alive,
            generation=state.generation,
            ranks=mind.alive,
            source=source,
            accept_round=state.accepted,
            joiners=() if source is None else tuple(state.newcomers),
            reason=reason + told,
        )
    ]


def _seconds(mind: Mind) -> float:
    """What joining may take: everybody comes to the edge, a group is formed, the state travels, however large it is (a
    piece that does not come has the limit of a collective)."""
    step_ms = max((ms or 0.0 for ms in mind.speeds().values()), default=0.0)
    parameters = max((ready.num_parameters for ready in mind.state.readies.values()), default=0)
    travel_seconds = parameters * STATE_BYTES_PER_PARAMETER / STATE_BYTES_PER_SECOND
    return min(mind.limits.dead + 2.0 * step_ms / 1000.0, mind.limits.stall / 2.0) + travel_seconds


def begin_generation(mind: Mind, formed_by: float) -> None:
    """A group is to be formed until then."""
    state = mind.state
    state.generation += 1
    state.formed = {}
    state.membership.formed_by = formed_by


def deal_anew(mind: Mind) -> None:
    """Where every rank works off a share of its own, newcomers get theirs now: what nobody has begun is owed again."""
    state, elche = mind.state, mind.job.elche
    if elche.splits != "equal" and not (elche.is_sync and elche.partition_ratios is not None):
        return
    begun = {} if state.order is None else state.order.overshoot
    for rank, size in mind.batch_sizes().items():
        state.ledger.recall(rank, samples_of(state.ledger.held.get(rank, ()), begun.get(rank, 0), size))
