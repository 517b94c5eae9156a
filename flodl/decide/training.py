"""Training: order a round, hear how it went, have it averaged, accept it, order the next.

Every living rank reports before a round is averaged, and holds its result before the next one is ordered, so no order
overwrites another and no report is counted for a round that it does not belong to.
"""

from __future__ import annotations

from flodl.decide.dealing import Plan, Request, plan
from flodl.decide.finishing import begin_finish
from flodl.decide.messages import (
    Average,
    AveragingDone,
    CallbackName,
    Command,
    Cut,
    EpochEnded,
    RunWindow,
    StopRequested,
    WindowDone,
)
from flodl.decide.mind import Mind, alert
from flodl.decide.pace import GRANT_MS
from flodl.decide.rounds import Order
from flodl.decide.shares import mass

__all__ = ["accept_order", "average", "next_order", "on_averaging_done", "on_stop", "on_window_done"]


# ------------------------------------------------------------------------------------------------ order a round


def next_order(mind: Mind, at: float) -> list[Command]:
    """Deal and order what comes next, or begin the end of the run."""
    state = mind.state
    if state.stop is not None:
        return begin_finish(mind, state.stop.reason)
    if state.failure:
        return begin_finish(mind, state.failure)
    callback_rank = state.callbacks.elect(mind.job.callbacks.policy, mind.alive, mind.pace.smoothed_ms(mind.alive))
    request, why = _request(mind, callback_rank)
    dealt = plan(state.ledger, request)
    if dealt is None:
        return begin_finish(mind, f"all {mind.job.trainer.num_epochs} epochs are done")
    alone = mind.works_alone
    state.order = Order(
        number=state.accepted + len(dealt.rounds[callback_rank]),
        epoch=dealt.epoch,
        final=dealt.final,
        last=dealt.last,
        alone=alone,
        at=at,
        rounds=dealt.rounds,
        epochs=dealt.epochs,
        overshoot={} if alone else dealt.overshoot,
    )
    callbacks: tuple[CallbackName, ...] = ()
    if state.callbacks.eval_due is not None:
        callbacks = ("eval",)
        state.callbacks.begin_eval(callback_rank)
    return [_window(mind, rank, dealt, callbacks if rank == callback_rank else (), why) for rank in mind.alive]


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
        why = f"{num_rounds} rounds for about {GRANT_MS / 1000} s; {quotas.reason}"
    if mind.is_solo:
        gradients = elche.averages == "gradients"
        by_rank = {callback_rank: 1 if gradients else pace.grant_rounds}
        num_rounds = pace.grant_rounds if gradients else 1
        why = f"one device: nothing to average; {pace.grant_rounds} batches for about {GRANT_MS / 1000} s"
    elif mind.works_alone and not elche.is_sync:
        num_rounds, why = 1, f"gradients are averaged once per window; {quotas.reason}"
    previous = state.order
    return (
        Request(
            quotas={rank: by_rank[rank] for rank in mind.alive},
            batch_sizes=sizes,
            first_round=state.accepted + 1,
            pinned=previous.overshoot if previous is not None else {},
            num_rounds=num_rounds,
            reserved=elche.partition_ratios is not None or elche.splits == "equal" if elche.is_sync else False,
            ratios=elche.partition_ratios if elche.is_sync else None,
            overshoot=pace.elche.overshoot if elche.is_async else 0,
        ),
        why,
    )


def _window(mind: Mind, rank: int, dealt: Plan, callbacks: tuple[CallbackName, ...], why: str) -> RunWindow:
    rounds = dealt.rounds[rank]
    batches = sum(one.batches for one in rounds)
    numbers = f"round {rounds[0].number}" if len(rounds) == 1 else f"rounds {rounds[0].number} to {rounds[-1].number}"
    closing = ", the epoch's last" if dealt.final else ""
    return RunWindow(
        to=(rank,),
        generation=mind.state.generation,
        rounds=rounds,
        ranges=dealt.ranges[rank],
        alone=mind.works_alone,
        max_overshoot=0 if mind.works_alone else dealt.overshoot[rank],
        callbacks=callbacks,
        epoch=dealt.epochs[rank],
        reason=f"{numbers} of epoch {dealt.epoch}{closing}: {batches} batches ({why})",
    )


# --------------------------------------------------------------------------------------------- hear how it went


def on_window_done(mind: Mind, event: WindowDone) -> list[Command]:
    """A rank reached the end of its window or grant."""
    state, order = mind.state, mind.state.order
    if order is None or state.activity not in ("training", "recovering"):
        return []
    if event.round != order.number or event.rank in order.reports or not state.membership.is_alive(event.rank):
        return []  # of an older round, twice, or from a rank that was declared dead
    if order.alone and event.generation != state.generation:
        return []  # a grant ends with its generation
    told = _take_report(mind, order, event)
    if state.activity == "recovering" or order.missing_reports(mind.alive):
        return told
    return [*told, *after_reports(mind, event.at)]


def _take_report(mind: Mind, order: Order, event: WindowDone) -> list[Command]:
    """The ledger follows what was really run."""
    state = mind.state
    size = mind.by_rank[event.rank].batch_size
    ran = sum(len(piece) for piece in state.ledger.run(event.rank, event.batches, size))
    order.reports[event.rank] = event
    told: list[Command] = []
    if ran != event.samples:
        text = f"{mind.name(event.rank)} reports {event.samples} samples, its {event.batches} batches hold {ran}"
        told.append(alert(text, "rank and ledger must cut batches alike", event.rank))
    for result in event.callbacks:
        problem = state.callbacks.take(result)
        if problem:
            told.append(alert(f"{mind.name(event.rank)}: {problem}", "training goes on", event.rank))
    return told


def after_reports(mind: Mind, at: float) -> list[Command]:
    """Everybody has reported: average, or accept what the ranks have combined alone."""
    order = mind.state.order
    assert order is not None
    return accept_order(mind, order, at) if order.alone else average(mind, order)


def average(mind: Mind, order: Order) -> list[Command]:
    """Have the round averaged by the living ranks."""
    state = mind.state
    ledger = state.ledger
    gamma = mind.job.elche.gamma
    order.averaged_in = state.generation
    order.results = {}
    ends = ledger.epoch is None or state.stop is not None or bool(state.failure)
    why = f"all {len(mind.alive)} ranks have reported round {order.number}"
    if ends:
        why += ", the run's last"
    elif mind.pace.nudged:
        why += "; after a nudge everybody adopts the consensus"
    return [
        Average(
            to=mind.alive,
            generation=state.generation,
            round=order.number,
            masses=tuple(mass(ledger.trained_samples(rank), gamma) for rank in mind.alive),
            consensus=ends or mind.pace.nudged,
            reason=why,
        )
    ]


def on_averaging_done(mind: Mind, event: AveragingDone) -> list[Command]:
    """A rank holds the round's result."""
    state, order = mind.state, mind.state.order
    if order is None or state.activity != "training" or not state.membership.is_alive(event.rank):
        return []
    if event.generation != state.generation or event.generation != order.averaged_in or event.round != order.number:
        return []  # of an abandoned averaging
    order.results.setdefault(event.rank, event)
    if order.missing_results(mind.alive):
        return []
    return accept_order(mind, order, event.at)


# ------------------------------------------------------------------------------------------------- accept it


def accept_order(mind: Mind, order: Order, at: float) -> list[Command]:
    """The order's last round is accepted: book it, learn from it, order the next."""
    state = mind.state
    state.ledger.accept()
    state.accepted = order.number
    told = _nonfinite(mind, order)
    if order.alone:
        _resize_grant(mind, order, at)
    if not mind.is_solo:
        mind.pace.observe(order, mind.alive)
    state.tally.accept(order, at, _paused_seconds(mind, order))
    told += _ended_epochs(mind)
    return [*told, *next_order(mind, at)]


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


def _ended_epochs(mind: Mind) -> list[Command]:
    """Epochs whose last sample has just been accepted; their evaluation is due with the next window."""
    state = mind.state
    every = mind.job.eval.every_epochs
    told: list[Command] = []
    for epoch in range(state.ledger.opened):
        if epoch in state.epochs_ended or not state.ledger.is_done(epoch):
            continue
        state.epochs_ended.append(epoch)
        if every is not None and (epoch + 1) % every == 0:
            state.callbacks.eval_due = epoch
        metrics = state.tally.close_epoch(
            epoch,
            samples=state.ledger.epoch_samples,
            anchor=mind.pace.elche.anchor,
            phase=mind.pace.elche.phase.label,
        )
        told.append(EpochEnded(metrics=metrics, reason=f"the last sample of epoch {epoch} is accepted"))
    return told


# ----------------------------------------------------------------------------------------------------- stop


def on_stop(mind: Mind, event: StopRequested) -> list[Command]:
    """Somebody wants the run to end in order: the round that is under way is its last."""
    state, order = mind.state, mind.state.order
    if state.stop is not None or state.activity in ("finishing", "over"):
        return []
    if state.activity in ("gathering", "forming"):
        exit_code = 130 if event.status == "interrupted" else 0
        return mind.end(event.status, exit_code, f"{event.reason}, before the first window")
    state.stop = event
    return cut(mind, order) if state.activity == "training" and order is not None else []


def cut(mind: Mind, order: Order) -> list[Command]:
    """End a window that waits for `Average` at the next step's edge; a grant ends at its own."""
    waiting = order.missing_reports(mind.alive)
    if order.alone or not waiting or mind.state.stop is None:
        return []
    order.cut = True
    return [Cut(to=waiting, reason=f"{mind.state.stop.reason}: round {order.number} is the last")]
