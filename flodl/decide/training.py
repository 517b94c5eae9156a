"""Training: hear how a round went, have it averaged when all have reported, end it early when somebody asks.

Every living rank reports before a round is averaged, and no report is counted for a round that it does not belong to.
"""

from __future__ import annotations

from flodl.decide.accepting import accept_order
from flodl.decide.finishing import end_before_start
from flodl.decide.ledger import num_samples, take_batches
from flodl.decide.messages import Average, AveragingDone, Command, Cut, StopRequested, WindowDone
from flodl.decide.mind import Mind, alert
from flodl.decide.rounds import Order
from flodl.decide.shares import mass
from flodl.decide.stopping import announced, judge_figures, overdue

__all__ = ["average", "cut", "on_averaging_done", "on_stop", "on_time", "on_window_done"]


def on_window_done(mind: Mind, event: WindowDone) -> list[Command]:
    """A rank reached the end of its window or grant."""
    state, order = mind.state, mind.state.order
    if order is None or state.activity not in ("training", "recovering"):
        return []
    if event.round != order.number or event.rank in order.reports:
        return []  # of an older round, or twice
    if not state.membership.hears(event.rank, event.generation):
        return []  # from a rank that was declared dead, or from before it came back
    if order.alone and event.generation != state.generation:
        return _hear(mind, event)  # a grant ends with its generation, but not what was evaluated before it
    had_stop = state.stop is not None
    told = _take_report(mind, order, event)
    if state.activity == "recovering":
        return told
    if order.missing_reports(mind.alive):
        return told if had_stop else [*told, *cut(mind, order)]
    return [*told, *_after_reports(mind, event.at)]


def _take_report(mind: Mind, order: Order, event: WindowDone) -> list[Command]:
    """The ledger follows what was really run; a grant is booked at its acceptance (it may end earlier, by a death)."""
    state = mind.state
    size = mind.by_rank[event.rank].batch_size
    if order.alone:
        ran = num_samples(take_batches(state.ledger.held.get(event.rank, ()), event.batches, size)[0])
    else:
        ran = num_samples(state.ledger.run(event.rank, event.batches, size))
    order.reports[event.rank] = event
    told: list[Command] = []
    if ran != event.samples:
        text = f"{mind.name(event.rank)} reports {event.samples} samples, its {event.batches} batches hold {ran}"
        told.append(alert(text, "rank and ledger must cut batches alike", event.rank))
    return [*told, *_hear(mind, event)]


def _hear(mind: Mind, event: WindowDone) -> list[Command]:
    """What a report says beside its figures."""
    state = mind.state
    told: list[Command] = []
    told += [alert(f"{mind.name(event.rank)}: {note}", "the rank says so", event.rank) for note in event.notes]
    for result in event.callbacks:
        problem = state.callbacks.take(result)
        if problem:
            told.append(alert(f"{mind.name(event.rank)}: {problem}", "training goes on", event.rank))
        elif result.name == "eval":
            told += judge_figures(mind, result.values, event.at)
    return told


def _after_reports(mind: Mind, at: float) -> list[Command]:
    """Everybody has reported: average, or accept what the ranks have combined alone."""
    order = mind.state.order
    assert order is not None
    return accept_order(mind, order, at) if order.alone else average(mind, order, at)


def average(mind: Mind, order: Order, at: float) -> list[Command]:
    """Have the round averaged by the living ranks."""
    state = mind.state
    ledger = state.ledger
    gamma = mind.job.elche.gamma
    order.averaged_in, order.averaged_at = state.generation, at
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
            masses=tuple(mass(ledger.trained_samples(rank) - _skipped(order, rank), gamma) for rank in mind.alive),
            consensus=ends or mind.pace.nudged,
            reason=why,
        )
    ]


def _skipped(order: Order, rank: int) -> int:
    """Samples that `rank` trained without learning from them (float16 overflows)."""
    done = order.reports.get(rank)
    return done.skipped_samples if done is not None else 0


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


def on_stop(mind: Mind, event: StopRequested) -> list[Command]:
    """Somebody wants the run to end in order: the round that is under way is its last."""
    state, order = mind.state, mind.state.order
    if state.stop is not None or state.activity in ("finishing", "over"):
        return []
    if state.activity in ("gathering", "forming"):
        return end_before_start(mind, event)
    state.stop = event
    return cut(mind, order) if state.activity == "training" and order is not None else []


def on_time(mind: Mind, at: float) -> list[Command]:
    """What the time that an event tells makes due: the end of a run whose time is up."""
    state = mind.state
    if state.stop is not None or state.activity == "finishing":
        return []
    reason = overdue(mind, at)
    if not reason:
        return []
    ending = on_stop(mind, StopRequested(at=at, reason=reason, status="stopped"))
    return [announced(reason), *ending] if state.activity != "over" else ending


def cut(mind: Mind, order: Order) -> list[Command]:
    """End a window that waits for `Average` at the next step's edge; a grant ends at its own."""
    waiting = order.missing_reports(mind.alive)
    if order.alone or not waiting or mind.state.stop is None:
        return []
    return [Cut(to=waiting, reason=f"{mind.state.stop.reason}: round {order.number} is the last")]
