"""Ordering: deal what comes next and tell every rank, with the reason, or begin the end of the run.

An order is given only when everybody holds the result of the one before it, so no order overwrites another. This edge
is where ranks that come back take their places.
"""

from __future__ import annotations

from collections.abc import Sequence

from flodl.decide.dealing import Plan, Request, plan
from flodl.decide.finishing import begin_finish
from flodl.decide.messages import CallbackName, Command, Round, RunWindow, SaveBegun
from flodl.decide.mind import Mind
from flodl.decide.pace import GRANT_MS
from flodl.decide.rejoin import admit
from flodl.decide.rounds import Order
from flodl.decide.saving import begin_save, due_saver
from flodl.spec.counting import all_are

__all__ = ["next_order"]


def next_order(mind: Mind, at: float) -> list[Command]:
    """Deal and order what comes next, or begin the end of the run."""
    if over := _over(mind):
        return begin_finish(mind, over, at)
    return admit(mind, at) or _order(mind, at)


def _order(mind: Mind, at: float) -> list[Command]:
    """Deal the next rounds, and tell every rank its own."""
    state = mind.state
    callback_rank = state.callbacks.elect(mind.job.callbacks.policy, mind.alive, mind.speeds)
    begun = _begin_save(mind, callback_rank)
    request, why = _request(mind, callback_rank)
    dealt = plan(state.ledger, request)
    assert dealt is not None
    alone = mind.works_alone
    state.order = Order(
        number=state.accepted + len(dealt.rounds[callback_rank]),
        epoch=dealt.epoch,
        alone=alone,
        at=at,
        rounds=dealt.rounds,
        epochs=dealt.epochs,
        overshoot=dealt.overshoot,
        is_rest=dealt.final and not alone and _is_short(mind, request, dealt.rounds[callback_rank][0]),
    )
    due, midway = _due_callbacks(mind, callback_rank, begun, at)
    what = _what(dealt, callback_rank)
    windows = [
        RunWindow(
            to=(rank,),
            generation=state.generation,
            rounds=dealt.rounds[rank],
            ranges=dealt.ranges[rank],
            alone=alone,
            max_overshoot=dealt.overshoot[rank],
            callbacks=due.get(rank, ()),
            midway=midway and rank == callback_rank,
            anchor=mind.pace.elche.anchor,
            epoch=dealt.epochs[rank],
            reason=f"{what}: {dealt.batches[rank]} batches ({why})",
        )
        for rank in mind.alive
    ]
    return [*begun, *windows]


def _over(mind: Mind) -> str:
    """Why nothing more is dealt; "" while the run goes on."""
    state = mind.state
    if state.stop is not None:
        return state.stop.reason
    done = all_are(mind.job.trainer.num_epochs, "epoch", "done") if state.ledger.epoch is None else ""
    return state.failure or done


def _begin_save(mind: Mind, callback_rank: int) -> list[SaveBegun]:
    """The save that is due, before anything of the next window is dealt."""
    callbacks = mind.state.callbacks
    saver = due_saver(mind)
    if saver is None or callbacks.save_due is None:
        return []
    evaluates = callbacks.eval_due is not None and saver == callback_rank
    return [begin_save(mind, saver, callbacks.save_due, evaluates=evaluates)]


def _due_callbacks(
    mind: Mind, callback_rank: int, begun: Sequence[SaveBegun], at: float
) -> tuple[dict[int, tuple[CallbackName, ...]], bool]:
    """What ranks do before their windows, and whether the evaluation among it judges a part of an epoch."""
    callbacks = mind.state.callbacks
    due: dict[int, tuple[CallbackName, ...]] = {}
    if callbacks.eval_due is not None:
        callbacks.begin_eval(callback_rank)
        callbacks.evaluated_at = at
        due[callback_rank] = ("eval",)
    midway = bool(due) and callbacks.midway
    for save in begun:
        due[save.rank] = (*due.get(save.rank, ()), "save")
    return due, midway


def _request(mind: Mind, callback_rank: int) -> tuple[Request, str]:
    """How much each rank gets, and why."""
    state, pace, elche = mind.state, mind.pace, mind.job.elche
    sizes = mind.batch_sizes()
    slack = {callback_rank: state.callbacks.slack_ms} if state.callbacks.eval_due is not None else {}
    epoch_batches = -(-state.ledger.epoch_samples // min(sizes.values()))
    quotas = pace.quotas(epoch_batches, {} if mind.works_alone else slack)
    by_rank, num_rounds, why = quotas.by_rank, 1, f"{quotas.reason}; {pace.reason}"
    if mind.works_alone:
        num_rounds = pace.grant_rounds
        why = f"{num_rounds} rounds for about {GRANT_MS / 1000:g} s; {quotas.reason}"
    if mind.is_solo:
        gradients = elche.averages == "gradients"
        batches = pace.grant(-(-state.ledger.left(state.ledger.epoch or 0) // sizes[callback_rank]))
        by_rank = {callback_rank: 1 if gradients else batches}
        num_rounds = batches if gradients else 1
        why = f"one device: nothing to average; {batches} batches for about {GRANT_MS / 1000:g} s"
    elif mind.works_alone and not elche.is_sync:
        num_rounds, why = 1, f"gradients are averaged once per window; {quotas.reason}"
    previous = state.order
    ratios = elche.partition_ratios if elche.is_sync else None
    return (
        Request(
            quotas={rank: by_rank[rank] for rank in mind.alive},
            batch_sizes=sizes,
            first_round=state.accepted + 1,
            pinned=previous.overshoot if previous is not None else {},
            num_rounds=num_rounds,
            reserved=elche.splits == "equal" or ratios is not None,
            ratios=ratios,
            overshoot=0 if mind.works_alone else pace.elche.overshoot,
            tail={} if slack else pace.elche.shortest_window,  # its rest is not to be shared out like such a window
        ),
        why,
    )


def _is_short(mind: Mind, request: Request, window: Round) -> bool:
    """Less than was wanted, and than an epoch holds."""
    wanted = sum([quota * request.batch_sizes[rank] for rank, quota in request.quotas.items()])
    return window.samples < min(wanted, mind.state.ledger.epoch_samples)


def _what(dealt: Plan, any_rank: int) -> str:
    """The order's rounds and epoch, in words; the same for every rank."""
    rounds = dealt.rounds[any_rank]
    numbers = f"round {rounds[0].number}" if len(rounds) == 1 else f"rounds {rounds[0].number} to {rounds[-1].number}"
    closing = ", the epoch's last" if dealt.final else ""
    return f"{numbers} of epoch {dealt.epoch}{closing}"
