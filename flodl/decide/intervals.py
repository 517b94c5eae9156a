"""Parts of a long epoch: figures on the way (trainer.reports_per_epoch). The epoch's own line is the last of them."""

from __future__ import annotations

from flodl.decide.messages import Command, IntervalEnded
from flodl.decide.mind import Mind
from flodl.decide.tally import Intervals
from flodl.decide.totals import IntervalMetrics

__all__ = ["ended_interval"]


def ended_interval(mind: Mind, epoch: int) -> list[Command]:
    """A round of `epoch` is accepted: tell the part that ended with it. One line where it ended several at once."""
    state, parts = mind.state, mind.job.trainer.reports_per_epoch
    if parts == 1:
        return []
    before, sums, wall = state.intervals, state.tally.epochs.get(epoch), state.tally.wall_seconds
    if before.epoch != epoch:
        before = state.intervals = Intervals(epoch=epoch, wall_seconds=state.tally.epoch_began)
    if sums is None:
        return []
    samples = sums.samples
    number = samples * parts // state.ledger.epoch_samples
    if not before.told < number < parts:
        return []
    loss_sum = None if sums.loss is None else sums.loss * samples
    is_known = loss_sum is not None and before.loss_sum is not None
    new, took = samples - before.samples, wall - before.wall_seconds
    state.intervals = Intervals(epoch=epoch, told=number, samples=samples, loss_sum=loss_sum, wall_seconds=wall)
    metrics = IntervalMetrics(
        epoch=epoch,
        interval=number,
        intervals=parts,
        samples=samples,
        loss=((loss_sum or 0.0) - (before.loss_sum or 0.0)) / max(1, new) if is_known else None,
        wall_seconds=took,
        samples_per_second=new / took if took > 0.0 else 0.0,
        scalars={name: scalar.result for name, scalar in sorted(sums.scalars.items())},
        rounds=sums.rounds,
        anchor=mind.pace.elche.anchor,
        phase=mind.pace.elche.phase.label,
        divergence=sums.divergence,
        learning_rate=sums.learning_rate,
    )
    return [IntervalEnded(metrics=metrics, reason=f"{number} of {parts} parts of epoch {epoch} are accepted")]
