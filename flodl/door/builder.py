"""The same config, said in a chain: each method answers with another builder, the one before stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from flodl.door.config import EpochCallbackPolicy, EvalResultFn, MetricsFn, TrainerConfig
from flodl.door.handle import RunHandle
from flodl.spec.checkpoint import CheckpointConfig
from flodl.spec.cluster import ClusterSpec
from flodl.spec.elche import ElCheConfig
from flodl.spec.guard import GuardConfig
from flodl.spec.job import EvalConfig, JobSpec, MembershipConfig
from flodl.spec.loader import LoaderConfig
from flodl.spec.outer import OuterConfig
from flodl.spec.stop import StopConfig

if TYPE_CHECKING:
    from flodl.engine.callables import SchedulerFn

__all__ = ["Factories", "Start", "TrainerBuilder"]


@dataclass(frozen=True)
class Factories:
    """Key of the tree -> what was handed in for it: model, optim and step, or a whole loop in place of them."""

    given: Mapping[str, Any]


class Start(Protocol):
    """Makes a job of it and runs it."""

    def spec(self, factories: Factories, config: TrainerConfig) -> JobSpec: ...

    def run(self, factories: Factories, config: TrainerConfig) -> RunHandle: ...


@dataclass(frozen=True)
class TrainerBuilder:
    """Made by `Trainer.builder`. Every method sets the field of `TrainerConfig` of its name."""

    factories: Factories
    start: Start
    config: TrainerConfig = field(default_factory=TrainerConfig)

    def spec(self) -> JobSpec:
        """The job, as the command line would have it; nothing is started. Raises ConfigError."""
        return self.start.spec(self.factories, self.config)

    def run(self) -> RunHandle:
        """Start it, see `Trainer.run`. Raises ConfigError."""
        return self.start.run(self.factories, self.config)

    def _with(self, **changes: Any) -> TrainerBuilder:
        return replace(self, config=replace(self.config, **changes))

    def dataset(self, dataset: Any, eval: Any = None) -> TrainerBuilder:  # noqa: A002  the part's name
        """What is learnt from; eval: what is judged on, where that is another one."""
        return self._with(dataset=dataset, eval_dataset=eval)

    def eval_dataset(self, dataset: Any) -> TrainerBuilder:
        return self._with(eval_dataset=dataset)

    def batch_size(self, samples: int) -> TrainerBuilder:
        """Samples per batch and rank."""
        return self._with(batch_size=samples)

    def num_epochs(self, epochs: int) -> TrainerBuilder:
        return self._with(num_epochs=epochs)

    def elche(self, config: ElCheConfig) -> TrainerBuilder:
        return self._with(elche=config)

    def cluster(self, cluster: ClusterSpec | str) -> TrainerBuilder:
        """A value of `ClusterBuilder`, or the name of a file in conf/cluster/."""
        return self._with(cluster=cluster)

    def guard(self, guard: GuardConfig) -> TrainerBuilder:
        return self._with(guard=guard)

    def meta(self, enabled: bool) -> TrainerBuilder:
        return self._with(meta=enabled)

    def membership(self, membership: MembershipConfig) -> TrainerBuilder:
        return self._with(membership=membership)

    def outer(self, outer: OuterConfig) -> TrainerBuilder:
        return self._with(outer=outer)

    def loader(self, loader: LoaderConfig) -> TrainerBuilder:
        return self._with(loader=loader)

    def eval(self, config: EvalConfig) -> TrainerBuilder:
        return self._with(eval=config)

    def stop(self, config: StopConfig) -> TrainerBuilder:
        return self._with(stop=config)

    def checkpoint(self, config: CheckpointConfig) -> TrainerBuilder:
        return self._with(checkpoint=config)

    def name(self, name: str) -> TrainerBuilder:
        return self._with(name=name)

    def seed(self, seed: int) -> TrainerBuilder:
        return self._with(seed=seed)

    def deterministic(self, enabled: bool = True) -> TrainerBuilder:
        return self._with(deterministic=enabled)

    def max_grad_norm(self, norm: float) -> TrainerBuilder:
        return self._with(max_grad_norm=norm)

    def limit_batches(self, batches: int) -> TrainerBuilder:
        """Of all ranks together, per epoch."""
        return self._with(limit_batches=batches)

    def accumulate(self, slices: int) -> TrainerBuilder:
        return self._with(accumulate=slices)

    def micro_batch(self, samples: int | Literal["auto"]) -> TrainerBuilder:
        return self._with(micro_batch=samples)

    def precision(self, precision: Literal["auto", "float32", "bfloat16", "float16"]) -> TrainerBuilder:
        return self._with(precision=precision)

    def compile(self, compiled: Literal["auto"] | bool) -> TrainerBuilder:
        return self._with(compile=compiled)

    def ema(self, half_life: int) -> TrainerBuilder:
        """The consensus's moving average is evaluated and kept beside it; half_life: samples of all ranks."""
        return self._with(ema=half_life)

    def save_path(self, folder: str | Path) -> TrainerBuilder:
        return self._with(save_path=folder)

    def resume_from(self, folder: str | Path) -> TrainerBuilder:
        return self._with(resume_from=folder)

    def checkpoint_every(self, epochs: int) -> TrainerBuilder:
        return self._with(checkpoint_every=epochs)

    def epoch_callback_policy(self, policy: EpochCallbackPolicy) -> TrainerBuilder:
        return self._with(epoch_callback_policy=policy)

    def scheduler_fn(self, scheduler: SchedulerFn) -> TrainerBuilder:
        """A torch scheduler is stepped once per batch."""
        return self._with(scheduler_fn=scheduler)

    def epoch_fn(self, function: Callable[[int, Any], object] | str) -> TrainerBuilder:
        return self._with(epoch_fn=function)

    def eval_fn(self, function: Callable[[Any], float | Mapping[str, float]] | str) -> TrainerBuilder:
        return self._with(eval_fn=function)

    def checkpoint_fn(self, function: Callable[[int, Any], object] | str) -> TrainerBuilder:
        return self._with(checkpoint_fn=function)

    def metrics_fn(self, function: MetricsFn) -> TrainerBuilder:
        return self._with(metrics_fn=function)

    def eval_result_fn(self, function: EvalResultFn) -> TrainerBuilder:
        return self._with(eval_result_fn=function)

    def trusted_targets(self, *names: str) -> TrainerBuilder:
        return self._with(trusted_targets=(*self.config.trusted_targets, *names))

    def override(self, *words: str) -> TrainerBuilder:
        """Words of the command line, for whatever has no method: ``override("optim.lr_scale=linear")``."""
        return self._with(overrides=(*self.config.overrides, *words))
