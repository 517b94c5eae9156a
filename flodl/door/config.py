"""What a program asks for, as one frozen value. What is left out is as conf/ says; nothing is checked here.

Fields that a job has not (figures told to functions of the program) stay with the program; all others become the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from flodl.decide.totals import EpochMetrics
from flodl.spec.checkpoint import CheckpointConfig
from flodl.spec.cluster import ClusterSpec
from flodl.spec.codec import value_to_plain
from flodl.spec.elche import ElCheConfig
from flodl.spec.guard import GuardConfig
from flodl.spec.job import EvalConfig, MembershipConfig
from flodl.spec.loader import LoaderConfig
from flodl.spec.outer import OuterConfig
from flodl.spec.stop import StopConfig
from flodl.spec.value import Value

if TYPE_CHECKING:
    from flodl.engine.callables import SchedulerFn

__all__ = ["EpochCallbackPolicy", "EvalResultFn", "MetricsFn", "TrainerConfig", "laid"]

MetricsFn = Callable[[EpochMetrics], object]
EvalResultFn = Callable[[int, Mapping[str, float]], object]


@dataclass(frozen=True)
class EpochCallbackPolicy:
    """Which rank evaluates and saves: made by `fastest` or `rank`. value: as `callbacks.policy` has it."""

    value: Literal["fastest"] | int

    @classmethod
    def fastest(cls) -> EpochCallbackPolicy:
        """The rank with the lowest time per batch; it keeps the role until it dies."""
        return cls("fastest")

    @classmethod
    def rank(cls, number: int) -> EpochCallbackPolicy:
        """This one, as long as it lives. number: a global rank, from 0."""
        return cls(number)


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """A run as a program wants it. None anywhere means: as conf/ has it.

    dataset, eval_dataset: a function or class that gives a map-style data set (or a `Splits`), its import path, the
    name of a shipped choice, or a live data set (this machine only); only a shipped model, or a loop that reads none,
    goes without. batch_size: samples per batch and rank.
    max_grad_norm, limit_batches, accumulate, micro_batch, precision, compile, ema, seed, deterministic: as in
    ``trainer``.
    save_path: the run folder, else a new one under ./outputs. resume_from: a run folder to go on from.
    checkpoint_every: epochs. scheduler_fn: optimizer -> a torch LRScheduler, which is stepped once per batch; or one of
    flodl's schedules.
    epoch_fn(epoch, model): in every rank, before its first batch of an epoch (from 0). eval_fn(model) -> a number, or
    {name: number}: in place of the step's figures, on the consensus. checkpoint_fn(round, model): when a bundle is
    begun, in the rank that saves. metrics_fn(EpochMetrics) and eval_result_fn(epoch, {name: number}): in this process,
    as they come, on a thread of their own. overrides: words of the command line (``"optim.lr_scale=linear"``,
    ``"experiment=mine"``), for whatever has no field. trusted_targets: as on the command line.
    """

    dataset: Any = None
    eval_dataset: Any = None
    batch_size: int | None = None
    num_epochs: int | None = None
    elche: ElCheConfig | None = None
    cluster: ClusterSpec | str | None = None
    guard: GuardConfig | None = None
    meta: bool | None = None
    membership: MembershipConfig | None = None
    outer: OuterConfig | None = None
    loader: LoaderConfig | None = None
    eval: EvalConfig | None = None
    stop: StopConfig | None = None
    checkpoint: CheckpointConfig | None = None
    name: str | None = None
    seed: int | None = None
    deterministic: bool | None = None
    max_grad_norm: float | None = None
    limit_batches: int | None = None
    accumulate: int | None = None
    micro_batch: int | Literal["auto"] | None = None
    precision: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    compile: Literal["auto"] | bool | None = None
    ema: int | None = None
    save_path: str | Path | None = None
    resume_from: str | Path | None = None
    checkpoint_every: int | None = None
    epoch_callback_policy: EpochCallbackPolicy | None = None
    scheduler_fn: SchedulerFn | None = None
    epoch_fn: Callable[[int, Any], object] | str | None = None
    eval_fn: Callable[[Any], float | Mapping[str, float]] | str | None = None
    checkpoint_fn: Callable[[int, Any], object] | str | None = None
    metrics_fn: MetricsFn | None = None
    eval_result_fn: EvalResultFn | None = None
    trusted_targets: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return replace(self, **changes)


_TRAINER = ("batch_size", "num_epochs", "seed", "deterministic", "max_grad_norm", "limit_batches", "accumulate",
            "micro_batch", "precision", "compile", "ema")  # fmt: skip
_BLOCKS = ("elche", "cluster", "guard", "membership", "outer", "loader", "eval", "stop", "checkpoint")


def laid(config: TrainerConfig) -> dict[str, Any]:
    """Dotted key -> plain value, for what the config says itself (callables are `flodl.door.named`'s); whole blocks
    come before single keys of theirs."""
    found: dict[str, Any] = {}
    for block in _BLOCKS:
        value = getattr(config, block)
        if isinstance(value, Value):
            found[block] = value_to_plain(value)
    for key in _TRAINER:
        found[f"trainer.{key}"] = _number(getattr(config, key))
    policy, path = config.epoch_callback_policy, config.resume_from
    found |= {
        "name": config.name,
        "meta.enabled": config.meta,
        "checkpoint.resume_from": None if path is None else str(path),
        "checkpoint.every_epochs": config.checkpoint_every,
        "callbacks.policy": None if policy is None else policy.value,
        "trusted_targets": list(config.trusted_targets) or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _number(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    if isinstance(value, bool | int | float):
        return value
    return int(value) if isinstance(value, Integral) else float(value) if isinstance(value, Real) else value
