"""Evaluation: the trial before the first window, and when the clock asks for one."""

from __future__ import annotations

from flodl.decide.messages import CallbackResult
from flodl.decide.mind import Mind
from flodl.decide.rounds import Order
from flodl.errors import Problem
from flodl.spec.stop import TRAIN
from flodl.spec.suggest import did_you_mean

__all__ = ["ask_by_clock", "missing_figures", "trial_rank"]


def trial_rank(mind: Mind) -> int | None:
    """The rank that tries one batch before the first window: the one that would evaluate. None: nobody ever does."""
    if not mind.job.eval.is_wanted:
        return None
    return mind.state.callbacks.elect(mind.job.callbacks.policy, mind.alive, mind.speeds)


def missing_figures(mind: Mind, trial: CallbackResult) -> list[Problem]:
    """Figures that the job names and an evaluation does not tell."""
    wanted = {f"eval.metrics[{i}]": name for i, name in enumerate(mind.job.eval.metrics or ())}
    wanted |= {key: name for key, name in mind.job.stop.metrics.items() if not name.startswith(TRAIN)}
    there = sorted(trial.values)
    nothing = "the data set has no part to evaluate on"
    if mind.job.callbacks.eval_fn is not None:
        nothing = "callbacks.eval_fn gives no figure"
    told = f"an evaluation tells {', '.join(there)}" if there else nothing
    return [
        Problem(key=key, value=name, constraint=told, remedy=did_you_mean(name, there) if there else "")
        for key, name in wanted.items()
        if name not in trial.values
    ]


def ask_by_clock(mind: Mind, order: Order, at: float) -> None:
    """A round is accepted: make an evaluation due where eval.every_minutes have passed since the last one began."""
    callbacks, minutes = mind.state.callbacks, mind.job.eval.every_minutes
    if minutes is None or callbacks.eval_due is not None or callbacks.running is not None:
        return
    if at - callbacks.evaluated_at >= minutes * 60.0:
        callbacks.eval_due = order.epoch
        callbacks.midway = not mind.state.ledger.is_done(order.epoch)
