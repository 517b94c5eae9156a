"""ElChe's knobs: the mode of averaging and how the cadence is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self, TypedDict, Unpack

from msgspec import Meta

from flodl.errors import Problem
from flodl.spec.value import NonNegative, NonNegativeInt, PositiveInt, Value

__all__ = ["MODES", "ElCheConfig", "ElCheKnobs", "ElCheMode", "Mode"]

Mode = Literal["nccl_sync", "nccl_cadence", "cpu_sync", "cpu_cadence", "cpu_async"]
ElCheMode = Mode  # its name outside of this room
MODES: tuple[Mode, ...] = ("nccl_sync", "nccl_cadence", "cpu_sync", "cpu_cadence", "cpu_async")

DEFAULT_MIN_ANCHOR = 1
DEFAULT_MAX_ANCHOR = 1000


class ElCheKnobs(TypedDict, total=False):
    """What the presets of `ElCheConfig` take: every knob but the mode."""

    anchor: int | Literal["auto"]
    min_anchor: int | Literal["auto"]
    max_anchor: int | Literal["auto"]
    anchor_rank: int | None
    overhead_target: float
    max_batch_diff: int | None
    relax_up: bool
    partition_ratios: tuple[float, ...] | None
    split: Literal["auto", "equal", "proportional"]
    average: Literal["auto", "gradients", "parameters"]
    gamma: float
    easgd_alpha: float | None
    easgd_beta: float | Literal["p"] | None
    center: Literal["stored", "consensus"]
    bn_buffers: Literal["pooled", "mean", "local"]
    max_overshoot: int | Literal["auto"]


class ElCheConfig(Value, frozen=True, kw_only=True):
    """How replicas are averaged and how the work between two averagings is sized.

    ``auto`` anywhere means: the mode's own default (see the properties). mode ``auto`` becomes nccl_cadence where
    every rank has a GPU of its own, else cpu_cadence; `resolved` is called with it before anything else is asked.
    """

    mode: Literal["auto", "nccl_sync", "nccl_cadence", "cpu_sync", "cpu_cadence", "cpu_async"] = "auto"
    anchor: PositiveInt | Literal["auto"] = "auto"
    min_anchor: PositiveInt | Literal["auto"] = "auto"
    max_anchor: PositiveInt | Literal["auto"] = "auto"
    anchor_rank: NonNegativeInt | None = None
    overhead_target: Annotated[float, Meta(ge=0.01, le=0.5)] = 0.05
    max_batch_diff: NonNegativeInt | None = None
    relax_up: bool = False
    partition_ratios: tuple[NonNegative, ...] | None = None
    split: Literal["auto", "equal", "proportional"] = "auto"
    average: Literal["auto", "gradients", "parameters"] = "auto"
    gamma: float = 1.0
    easgd_alpha: Annotated[float, Meta(gt=0, le=1)] | None = None
    easgd_beta: Annotated[float, Meta(gt=0, le=1)] | Literal["p"] | None = None
    center: Literal["stored", "consensus"] = "stored"
    bn_buffers: Literal["pooled", "mean", "local"] = "pooled"
    max_overshoot: PositiveInt | Literal["auto"] = "auto"

    @classmethod
    def nccl_sync(cls, **knobs: Unpack[ElCheKnobs]) -> Self:
        """Gradients over NCCL after every batch of the slowest rank: on equal devices this is DDP."""
        return cls(mode="nccl_sync", **knobs)

    @classmethod
    def nccl_cadence(cls, **knobs: Unpack[ElCheKnobs]) -> Self:
        """Parameters over NCCL, once per window."""
        return cls(mode="nccl_cadence", **knobs)

    @classmethod
    def cpu_sync(cls, **knobs: Unpack[ElCheKnobs]) -> Self:
        """Gradients over gloo after every batch of the slowest rank: on equal devices this is DDP."""
        return cls(mode="cpu_sync", **knobs)

    @classmethod
    def cpu_cadence(cls, **knobs: Unpack[ElCheKnobs]) -> Self:
        """Parameters over gloo, once per window."""
        return cls(mode="cpu_cadence", **knobs)

    @classmethod
    def cpu_async(cls, **knobs: Unpack[ElCheKnobs]) -> Self:
        """Parameters over gloo beside training: nobody waits."""
        return cls(mode="cpu_async", **knobs)

    @property
    def is_sync(self) -> bool:
        """True for the modes whose anchor is 1 and never changes."""
        return self.mode.endswith("_sync")

    @property
    def is_async(self) -> bool:
        """True where the round runs beside training."""
        return self.mode == "cpu_async"

    @property
    def backend(self) -> Literal["nccl", "gloo"]:
        """The process group's backend that the mode averages over."""
        return "nccl" if self.mode.startswith("nccl") else "gloo"

    @property
    def initial_anchor(self) -> int:
        """Quota of the slowest rank in the first window, batches."""
        if self.is_sync:
            return 1
        return 10 if self.anchor == "auto" else self.anchor

    @property
    def anchor_bounds(self) -> tuple[int, int]:
        """Lowest and highest anchor that tuning may choose, batches."""
        low = DEFAULT_MIN_ANCHOR if self.min_anchor == "auto" else self.min_anchor
        high = DEFAULT_MAX_ANCHOR if self.max_anchor == "auto" else self.max_anchor
        return low, high

    @property
    def averages(self) -> Literal["gradients", "parameters"]:
        """What is averaged: the explicit choice, else gradients in sync modes and parameters elsewhere."""
        if self.average != "auto":
            return self.average
        return "gradients" if self.is_sync else "parameters"

    @property
    def splits(self) -> Literal["equal", "proportional"]:
        """How an epoch is shared out: the explicit choice, else equal in sync modes and proportional elsewhere."""
        if self.split != "auto":
            return self.split
        return "equal" if self.is_sync else "proportional"

    def beta(self, num_ranks: int) -> float:
        """EASGD's pull of the center per round, for a world of `num_ranks`."""
        alpha = self.easgd_alpha or 1.0
        if self.easgd_beta == "p":
            return min(1.0, num_ranks * alpha)
        return alpha if self.easgd_beta is None else self.easgd_beta

    def resolved(self, mode: Mode) -> Self:
        """This config with ``mode: auto`` replaced by `mode`; an explicit mode wins."""
        return self.replace(mode=mode) if self.mode == "auto" else self

    def problems(self, key: str) -> Iterator[Problem]:
        low, high = self.anchor_bounds
        if low > high:
            yield Problem(
                key=f"{key}.min_anchor",
                value=str(low),
                constraint=f"must not exceed {key}.max_anchor={high}",
                remedy="lower min_anchor or raise max_anchor",
            )
        elif not self.is_sync and not low <= self.initial_anchor <= high:
            yield Problem(
                key=f"{key}.anchor",
                value=str(self.initial_anchor),
                constraint=f"must lie within min_anchor={low} and max_anchor={high}",
                remedy="move the anchor or widen the bounds",
            )
        if self.is_async and self.averages == "gradients":
            yield Problem(
                key=f"{key}.average",
                value="gradients",
                constraint="cpu_async trains on while it averages, so there is no common gradient",
                remedy="use average=parameters, or mode cpu_cadence",
            )
        if self.averages == "gradients" and self.easgd_alpha is not None and not self.is_sync:
            yield Problem(
                key=f"{key}.easgd_alpha",
                value=str(self.easgd_alpha),
                constraint="elastic averaging blends parameters, not gradients",
                remedy="use average=parameters or drop easgd_alpha",
            )
