"""Stop rules: when a run ends before its last epoch, and why.

Limits of time are points of the controller's clock, held against the `at` of events: nobody asks what time it is.
What is left to do after the last window (its averaging, evaluation, save) is predicted and kept free before a limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from flodl.decide.limits import Stopping
from flodl.decide.messages import Alert, Command, EndBy, StopRequested
from flodl.decide.mind import Mind
from flodl.decide.rounds import Order
from flodl.spec.duration import seconds
from flodl.spec.stop import TRAIN, EarlyConfig, TargetConfig, wants_less

__all__ = ["announced", "begin_limits", "judge_figures", "judge_progress", "on_end_by", "overdue"]

SAVE_BYTES_PER_SECOND = 50e6  # a slow disk or network: a save that is done early harms nobody
BYTES_PER_PARAMETER = 4


def begin_limits(mind: Mind, at: float) -> None:
    """Training begins."""
    stopping, max_time = mind.state.stopping, mind.job.stop.max_time
    stopping.begun = at
    if max_time is not None:
        stopping.limits[f"stop.max_time={max_time}"] = at + seconds(max_time)
    stopping.aim(0.0)


def on_end_by(mind: Mind, event: EndBy) -> list[Command]:
    """A time of day was told as a duration."""
    mind.state.stopping.limits[event.rule] = event.at + event.seconds_left
    mind.state.stopping.aim(0.0)
    return []


def overdue(mind: Mind, at: float) -> str:
    """Why the run must end now, where its time is up; else ""."""
    stopping = mind.state.stopping
    if stopping.due is None or at < stopping.due:
        return ""
    return f"{stopping.rule}: the time is up"


def judge_progress(mind: Mind, order: Order, at: float) -> list[Command]:
    """A round is accepted: is it enough, or is there no time for another one?"""
    state, stop = mind.state, mind.job.stop
    state.stopping.windows += 1
    if state.stop is not None or state.ledger.epoch is None:
        return []
    if state.stopping.limits:
        state.stopping.aim(_closing_seconds(mind, order, at))
    reason = overdue(mind, at)
    if stop.max_samples is not None and state.ledger.samples_done >= stop.max_samples:
        reason = f"stop.max_samples={stop.max_samples}: {state.ledger.samples_done} samples are done"
    elif state.stopping.windows == mind.job.debug.max_windows:
        reason = f"debug.max_windows={state.stopping.windows}: so many are done"
    elif stop.when_settled and mind.pace.is_settled:
        reason = f"stop.when_settled: anchor {mind.pace.elche.anchor} and the divergence have stopped moving"
    return _stop(mind, at, reason) if reason else []


def judge_figures(mind: Mind, figures: Mapping[str, float], at: float) -> list[Command]:
    """New figures are known, of an evaluation or (named train_...) of an epoch's own training."""
    state, stop = mind.state, mind.job.stop
    if state.stop is not None:
        return []
    reason = _reached(stop.target, figures) or _without_progress(state.stopping, stop.early, figures)
    return _stop(mind, at, reason) if reason else _missing(mind, figures)


def _stop(mind: Mind, at: float, reason: str) -> list[Command]:
    mind.state.stop = StopRequested(at=at, reason=reason, status="stopped")
    return [announced(reason)]


def announced(reason: str) -> Alert:
    """A rule's decision for people."""
    return Alert(text=f"stopping: {reason}", reason="a stop rule: the round that is under way is the last")


def _reached(target: TargetConfig, figures: Mapping[str, float]) -> str:
    value = figures.get(target.metric or "")
    if value is None or target.metric is None or target.value is None:
        return ""
    less = wants_less(target.metric, target.mode)
    if not (value <= target.value if less else value >= target.value):
        return ""
    return f"stop.target: {target.metric} {value:.6g} has reached {target.value:g}"


def _without_progress(stopping: Stopping, early: EarlyConfig, figures: Mapping[str, float]) -> str:
    value = figures.get(early.metric or "")
    if value is None or early.metric is None:
        return ""
    gain = None if stopping.best is None else value - stopping.best
    if gain is not None and wants_less(early.metric, early.mode):
        gain = -gain
    if gain is None or gain > early.min_delta:
        stopping.best, stopping.stale = value, 0
        return ""
    stopping.stale += 1
    if stopping.stale < early.patience:
        return ""
    return (
        f"stop.early: {early.metric} {value:.6g} is the reading no. {stopping.stale} in a row "
        f"that is no better than {stopping.best:.6g}"
    )


def _missing(mind: Mind, figures: Mapping[str, float]) -> list[Command]:
    """A figure of training that a rule follows and no epoch tells: said once."""
    stopping = mind.state.stopping
    if stopping.missed or f"{TRAIN}loss" not in figures:
        return []
    for key, metric in mind.job.stop.metrics.items():
        if metric.startswith(TRAIN) and metric not in figures:
            stopping.missed = True
            text = f"{key}={metric} is not among the epoch's figures: {', '.join(figures)}"
            return [Alert(text=text, reason="the rule is idle")]
    return []


def _closing_seconds(mind: Mind, order: Order, at: float) -> float:
    """What is left to do once a limit has come: a window ends at its next step, a grant at its own edge."""
    state = mind.state
    if order.alone:
        closing_ms = (at - order.at) * 1000.0
    else:
        averaging_ms = max((done.duration_ms for done in order.results.values()), default=0.0)
        closing_ms = averaging_ms + max((ms or 0.0 for ms in mind.speeds().values()), default=0.0)
    if mind.job.eval.at_end:
        closing_ms += state.callbacks.slack_ms
    parameters = max((ready.num_parameters for ready in state.readies.values()), default=0)
    return closing_ms / 1000.0 + parameters * BYTES_PER_PARAMETER / SAVE_BYTES_PER_SECOND
