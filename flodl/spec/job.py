"""JobSpec: the whole run as one frozen value, the only thing that passes from config to code and to the ranks."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from flodl.spec.cluster import ClusterSpec
from flodl.spec.component import Component
from flodl.spec.elche import ElCheConfig
from flodl.spec.guard import GuardConfig, TrendGuardConfig
from flodl.spec.loader import LoaderConfig
from flodl.spec.stop import MetricName, StopConfig
from flodl.spec.value import NonNegativeInt, Positive, PositiveInt, Value

__all__ = [
    "CallbacksConfig",
    "CheckpointConfig",
    "Component",
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


class MetaConfig(Value, frozen=True, kw_only=True):
    """The meta-controller (ELCHE: learning-rate drops and sustained divergence nudge the anchor)."""

    enabled: bool = True


class MembershipConfig(Value, frozen=True, kw_only=True):
    """When deaths end the run. max_failure: that many dead ranks, or a percentage of the world; null: never."""

    max_failure: (
        PositiveInt | Annotated[str, Meta(pattern=r"^([1-9]\d?|100)%$", description="a percentage such as 25%")] | None
    ) = None
    timeout_scale: Positive = 1.0


class OuterConfig(Value, frozen=True, kw_only=True):
    """The optimizer on the consensus."""

    name: Literal["average"] = "average"


class LaunchConfig(Value, frozen=True, kw_only=True):
    """How ranks are started."""

    dry_run: bool = False


class TrainerConfig(Value, frozen=True, kw_only=True):
    """What every rank does with its batches."""

    num_epochs: PositiveInt = 10
    batch_size: PositiveInt = 64
    seed: NonNegativeInt = 0
    deterministic: bool = False
    max_grad_norm: Positive | None = None
    limit_batches: PositiveInt | None = None  # per epoch, all ranks together
    max_nonfinite_rounds: PositiveInt = 3
    reports_per_epoch: PositiveInt = 1  # lines of figures; all but the last tell of a part of the epoch


class EvalConfig(Value, frozen=True, kw_only=True):
    """When the consensus is evaluated, on which split, and which figures are kept.

    every_minutes: of the clock since the last evaluation began, at the next averaging. metrics null: all.
    """

    every_epochs: PositiveInt | None = 1
    every_minutes: Positive | None = None
    at_end: bool = True
    split: Literal["eval", "train"] = "eval"
    metrics: tuple[MetricName, ...] | None = None

    @property
    def is_repeated(self) -> bool:
        """True where evaluations happen while the run goes on."""
        return self.every_epochs is not None or self.every_minutes is not None

    @property
    def is_wanted(self) -> bool:
        """True where anything is ever evaluated."""
        return self.is_repeated or self.at_end


class CheckpointConfig(Value, frozen=True, kw_only=True):
    """What a run leaves to go on from."""

    stem: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="a file name of letters, digits, dots and dashes"),
    ] = "model"


class CallbacksConfig(Value, frozen=True, kw_only=True):
    """Which rank runs evaluation and saves: `fastest`, or the number of a rank."""

    policy: Literal["fastest"] | NonNegativeInt = "fastest"


class SimConfig(Value, frozen=True, kw_only=True):
    """Costs of virtual time. ms_per_batch: one per rank; empty: 10 ms divided by the host's speed."""

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
    outer: OuterConfig = OuterConfig()
    cluster: ClusterSpec
    launch: LaunchConfig = LaunchConfig()
    model: Component
    dataset: Component
    step: Component
    optim: Component
    scheduler: Component
    loader: LoaderConfig = LoaderConfig()
    trainer: TrainerConfig = TrainerConfig()
    eval: EvalConfig = EvalConfig()
    stop: StopConfig = StopConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    callbacks: CallbacksConfig = CallbacksConfig()
    sim: SimConfig = SimConfig()
    trusted_targets: tuple[str, ...] = ()  # from the command line or Python only
