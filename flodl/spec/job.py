"""JobSpec: the whole run as one frozen value, the only thing that passes from config to code and to the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from flodl.errors import Problem
from flodl.spec.checkpoint import CheckpointConfig
from flodl.spec.cluster import ClusterSpec, HostOverrides
from flodl.spec.component import Component
from flodl.spec.debug import DebugConfig
from flodl.spec.elche import ElCheConfig
from flodl.spec.guard import GuardConfig, TrendGuardConfig
from flodl.spec.loader import LoaderConfig
from flodl.spec.names import faults, run_name_fault
from flodl.spec.outer import AverageConfig, OuterConfig
from flodl.spec.stop import MetricName, StopConfig
from flodl.spec.value import NonNegativeInt, Positive, PositiveInt, Value

__all__ = [
    "CALLBACKS",
    "CallbacksConfig",
    "CheckpointConfig",
    "Component",
    "DebugConfig",
    "EvalConfig",
    "JobSpec",
    "LaunchConfig",
    "LoaderConfig",
    "MembershipConfig",
    "MetaConfig",
    "OuterConfig",
    "SimConfig",
    "StopConfig",
    "TrainerConfig",
]


ImportPath = Annotated[str, Meta(pattern=r"^\w+(\.\w+)+$", description="an import path")]

Objective = Annotated[
    str, Meta(pattern=r"^(auto|eval/.+|train/.+|[a-z_]+)$", description="a figure's name, such as eval/loss")
]

CALLBACKS = ("epoch_fn", "eval_fn", "checkpoint_fn")
EMA_FIGURE = "ema_"  # before the name of an evaluation's figure: it is the moving average's

_PER_HOST = ("batch_size", "micro_batch", "precision", "compile")


class MetaConfig(Value, frozen=True, kw_only=True):
    """The meta-controller (ELCHE: learning-rate drops and sustained divergence nudge the anchor)."""

    enabled: bool = True


class MembershipConfig(Value, frozen=True, kw_only=True):
    """When deaths end the run. max_failure: that many dead ranks, or a percentage of the world; null: never.

    rejoin: a dead rank's device gets another process; max_restarts: so often, per rank.
    """

    max_failure: (
        PositiveInt | Annotated[str, Meta(pattern=r"^([1-9]\d?|100)%$", description="a percentage such as 25%")] | None
    ) = None
    rejoin: bool = False
    max_restarts: PositiveInt = 3
    timeout_scale: Positive = 1.0


class LaunchConfig(Value, frozen=True, kw_only=True):
    """How ranks are started. probe: look at hosts and networks before anything is. transport: import path of what
    starts an agent on a host that is not this machine, or in a container; execute: of the port `Execute` for such
    hosts; deploy: of the port `Deploy`."""

    dry_run: bool = False
    probe: bool = True
    detach: bool = False
    transport: ImportPath = "flodl_launch.transport.open_streams"
    execute: ImportPath = "flodl_launch.execute.execute"
    deploy: ImportPath = "flodl_launch.deploy.deploy"


class TrainerConfig(Value, frozen=True, kw_only=True):
    """What every rank does with its batches.

    A batch is one optimizer step. accumulate: slices, at least, that it is computed in; micro_batch: samples of a slice
    at most (auto: no limit). Where memory runs out they get smaller.
    """

    num_epochs: PositiveInt = 10
    batch_size: PositiveInt = 64
    seed: NonNegativeInt = 0
    deterministic: bool = False
    accumulate: PositiveInt = 1
    micro_batch: PositiveInt | Literal["auto"] = "auto"
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    compile: Literal["auto"] | bool = "auto"
    max_grad_norm: Positive | None = None
    limit_batches: PositiveInt | None = None  # per epoch, all ranks together
    max_nonfinite_rounds: PositiveInt = 3
    ema: PositiveInt | None = None  # half-life of the consensus's moving average, samples of all ranks
    reports_per_epoch: PositiveInt = 1  # lines of figures; all but the last tell of a part of the epoch

    @property
    def slice_size(self) -> int | None:
        """Samples of a batch that are computed at a time; None: all of them."""
        by_count = None if self.accumulate == 1 else -(-self.batch_size // self.accumulate)
        if self.micro_batch == "auto":
            return by_count
        return self.micro_batch if by_count is None else min(by_count, self.micro_batch)


class EvalConfig(Value, frozen=True, kw_only=True):
    """When the consensus is evaluated, on which split, and which figures are kept.

    every_minutes: of the clock since the last evaluation began, at the next averaging. metrics null: all.
    """

    every_epochs: PositiveInt | None = 1
    every_minutes: Positive | None = None
    at_end: bool = True
    split: Literal["eval", "train"] = "eval"
    limit_batches: PositiveInt | None = None
    metrics: tuple[MetricName, ...] | None = None

    @property
    def is_repeated(self) -> bool:
        """True where evaluations happen while the run goes on."""
        return self.every_epochs is not None or self.every_minutes is not None

    @property
    def is_wanted(self) -> bool:
        """True where anything is ever evaluated."""
        return self.is_repeated or self.at_end


class CallbacksConfig(Value, frozen=True, kw_only=True):
    """Which rank runs evaluation and saves: `fastest`, or the number of a rank; and functions of the user's.

    epoch_fn(epoch, model): in every rank before its first batch of an epoch, counted from 0. eval_fn(model) -> a number
    or {name: number}: in place of the step's figures. checkpoint_fn(round, model): where a bundle is begun.
    """

    policy: Literal["fastest"] | NonNegativeInt = "fastest"
    epoch_fn: Component | None = None
    eval_fn: Component | None = None
    checkpoint_fn: Component | None = None


class SimConfig(Value, frozen=True, kw_only=True):
    """Costs of virtual time. ms_per_batch: one per rank, or one for all; empty: 10 ms divided by the device's speed."""

    ms_per_batch: tuple[Positive, ...] = ()
    averaging_ms: Positive = 2.0
    jitter: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    num_samples: PositiveInt = 50_000


class JobSpec(Value, frozen=True, kw_only=True):
    """One run, whole. Made by the codec from a resolved config tree; nothing is recomposed later or elsewhere."""

    name: str = "run"
    elche: ElCheConfig
    guard: GuardConfig = TrendGuardConfig()
    meta: MetaConfig = MetaConfig()
    membership: MembershipConfig = MembershipConfig()
    outer: OuterConfig = AverageConfig()
    cluster: ClusterSpec
    launch: LaunchConfig = LaunchConfig()
    model: Component
    dataset: Component
    step: Component
    optim: Component
    scheduler: Component
    loop: Component | None = None  # a training loop of the user's own, in place of ours
    loader: LoaderConfig = LoaderConfig()
    trainer: TrainerConfig = TrainerConfig()
    eval: EvalConfig = EvalConfig()
    stop: StopConfig = StopConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    callbacks: CallbacksConfig = CallbacksConfig()
    sim: SimConfig = SimConfig()
    debug: DebugConfig = DebugConfig()
    logger: dict[str, Component] = {}  # beside metrics.jsonl, by the name of each
    objective: Objective | tuple[Objective, ...] = "auto"  # what a sweep is told of a run: see record.figures
    trusted_targets: tuple[str, ...] = ()  # from the command line or Python only

    def problems(self, key: str) -> Iterator[Problem]:
        yield from faults(f"{key}.name" if key else "name", self.name, run_name_fault)

    @property
    def components(self) -> dict[str, Component]:
        """Dotted key -> what ranks build, each in the order in which it is told."""
        found = {"model": self.model, "dataset": self.dataset, "step": self.step, "optim": self.optim,
                 "scheduler": self.scheduler}  # fmt: skip
        if self.loop is not None:
            return {"dataset": self.dataset, "loop": self.loop}
        functions = {f"callbacks.{name}": getattr(self.callbacks, name) for name in CALLBACKS}
        return found | {key: made for key, made in functions.items() if made is not None}

    def trainer_with(self, overrides: HostOverrides) -> TrainerConfig:
        """What the ranks of a host do: the job's values, and the host's own where it has some."""
        own = {name: value for name in _PER_HOST if (value := getattr(overrides, name)) is not None}
        return self.trainer.replace(**own)
