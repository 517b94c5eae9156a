"""A run's figures under one set of names, for whoever wants plain numbers: loggers, sweeps that learn, other tools.

``train/loss  train/<own scalar>  eval/<name>  rank/<n>/<figure>`` and the result's own (``wall_seconds``,
``samples_per_second`` ...). A figure that was not finite is absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from flodl.decide.totals import EpochMetrics, IntervalMetrics, training_figures
from flodl.record.result import Result
from flodl.spec.job import JobSpec
from flodl.spec.stop import wants_less

__all__ = ["Objective", "of_epoch", "of_eval", "of_interval", "of_objective", "of_result"]

Objective = float | tuple[float, ...]

_OF_EPOCHS = ("wall_seconds", "samples_per_second", "rounds", "anchor", "divergence", "learning_rate")
_OF_RANKS = ("batches", "samples", "samples_per_second", "batch_share", "compute_ms", "data_wait_ms", "averaging_ms",
             "idle_ms", "skipped_batches")  # fmt: skip
_OF_RESULTS = ("wall_seconds", "startup_seconds", "samples_per_second", "ideal_samples_per_second", "utilisation",
               "rounds", "anchor", "averaging_seconds_exposed", "divergence_last", "epochs_done",
               "samples_done")  # fmt: skip


def of_epoch(metrics: EpochMetrics) -> dict[str, float]:
    """An epoch's, and each rank's part of it."""
    ranks = {f"rank/{rank.rank}/{name}": float(getattr(rank, name)) for rank in metrics.ranks for name in _OF_RANKS}
    return {**_of_training(metrics), **of_eval(metrics.eval), **ranks}


def of_interval(metrics: IntervalMetrics) -> dict[str, float]:
    """A part of an epoch's."""
    return _of_training(metrics)


def of_eval(values: Mapping[str, float]) -> dict[str, float]:
    """An evaluation's."""
    return {f"eval/{name}": value for name, value in sorted(values.items())}


def of_result(result: Result) -> dict[str, float]:
    """A whole run's; none of a run that trained nothing."""
    if result.samples_done == 0:
        return {}
    loss = {} if result.train_loss is None else {"train/loss": result.train_loss}
    return {**loss, **of_eval(result.eval), **{name: float(getattr(result, name)) for name in _OF_RESULTS}}


def of_objective(job: JobSpec, result: Result) -> tuple[Objective | None, str]:
    """What a sweep is told of a run, and a warning ("": none).

    What a run learned whose loss is no number any more is infinitely bad; None where it has no such figure.
    """
    found, is_lost = of_result(result), result.samples_done > 0 and result.train_loss is None
    names = (job.objective,) if isinstance(job.objective, str) else job.objective
    pairs = [_value(name, found, is_lost=is_lost) for name in names]
    said = "\n".join(text for _, text in pairs if text)
    values = tuple(value for value, _ in pairs if value is not None)
    if len(values) < len(pairs):
        return None, said
    return (values[0] if isinstance(job.objective, str) else values), said


def _value(name: str, found: Mapping[str, float], *, is_lost: bool) -> tuple[float | None, str]:
    if name == "auto":
        name = "train/loss" if "eval/loss" not in found and "train/loss" in found else "eval/loss"
    if is_lost and name.startswith(("train/", "eval/")):  # an evaluation from before it was lost tells nothing
        return (math.inf if wants_less(name, "auto") else -math.inf), ""
    if name in found:
        return found[name], ""
    return None, f"objective={name}: the run has no such figure; it has {', '.join(sorted(found)) or 'none'}"


def _of_training(metrics: EpochMetrics | IntervalMetrics) -> dict[str, float]:
    own = {f"train/{name}": value for name, value in training_figures(metrics).items()}
    plain = {name: float(getattr(metrics, name)) for name in _OF_EPOCHS}
    return {**own, **plain, "epoch": float(metrics.epoch + 1)}
