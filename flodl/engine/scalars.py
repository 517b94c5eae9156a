"""Named figures of the user's step: where `flodl.record_scalar` puts them while a batch is trained.

The recorder of the batch under way is local to the context, so that two ranks in one process never mix. Outside a
training step there is none and nothing is recorded: the same step can be evaluated, or called in a unit test.
Tensors stay on their device until the window's report: no sync per batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import SupportsFloat, get_args

import torch
from torch import Tensor

from flodl.decide.totals import Reduction, Scalar
from flodl.spec.names import figure_fault

__all__ = ["Recorder", "record"]

MAX_NAMES = 256
REDUCTIONS = get_args(Reduction)

_current: ContextVar[Recorder | None] = ContextVar("flodl_recorder", default=None)


def record(name: str, value: SupportsFloat, reduction: Reduction = "mean") -> None:
    """See `flodl.record_scalar`."""
    recorder = _current.get()
    if recorder is not None:
        recorder.record(name, value, reduction)


class Recorder:
    """Figures of one batch, or of the batches since the last report. weight: samples of the call under way."""

    def __init__(self) -> None:
        self.weight = 0.0
        self._before: Token[Recorder | None]
        self._held: dict[str, tuple[Reduction, Tensor, float]] = {}
        self._warned: set[str] = set()

    def during(self, samples: int) -> Recorder:
        """`with` this, whatever is recorded meanwhile goes here, weighted by `samples`."""
        self.weight = float(samples)
        return self

    def __enter__(self) -> None:
        self._before = _current.set(self)

    def __exit__(self, *raised: object) -> None:
        _current.reset(self._before)

    def record(self, name: str, value: SupportsFloat, reduction: Reduction) -> None:
        """Take one figure. Raises ValueError or TypeError for what is no name, no number or no reduction."""
        if fault := figure_fault(name):
            raise ValueError(f"record_scalar: {fault}")
        if reduction not in REDUCTIONS:
            raise ValueError(f"record_scalar({name!r}): reduction={reduction!r} is none of {', '.join(REDUCTIONS)}")
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise ValueError(f"record_scalar({name!r}): a tensor of shape {tuple(value.shape)} is no single number")
            figure = value.detach().reshape(()).double()
        else:
            try:
                figure = torch.tensor(float(value), dtype=torch.float64)
            except (TypeError, ValueError):
                raise ValueError(f"record_scalar({name!r}): {value!r} is no number") from None
        self._merge(name, reduction, figure * self.weight if reduction == "mean" else figure, self.weight)

    def add(self, later: Recorder) -> None:
        """Take over what another one holds."""
        for name, (reduction, value, weight) in later._held.items():
            self._merge(name, reduction, value, weight)

    def clear(self) -> None:
        """Forget what is held."""
        self._held.clear()

    def scalars(self) -> Mapping[str, Scalar]:
        """What is held, read off its device. A figure that is not finite is left out and told once, by name."""
        found: dict[str, Scalar] = {}
        for name, (reduction, tensor, weight) in sorted(self._held.items()):
            value = float(tensor)
            if math.isfinite(value):
                found[name] = Scalar(reduction, value, weight if reduction == "mean" else 0.0)
            elif name not in self._warned:
                self._warned.add(name)
                print(f"record_scalar({name!r}): {value}; figures that are not finite are left out")  # noqa: T201
        return found

    def _merge(self, name: str, reduction: Reduction, value: Tensor, weight: float) -> None:
        before = self._held.get(name)
        if before is None:
            if len(self._held) >= MAX_NAMES:
                raise ValueError(f"record_scalar({name!r}): more than {MAX_NAMES} names")
        elif before[0] != reduction:
            raise ValueError(f"record_scalar({name!r}): reduction={reduction!r}, but it was {before[0]!r} before")
        elif reduction in ("mean", "sum"):
            value, weight = before[1] + value.to(before[1].device), before[2] + weight
        elif reduction in ("max", "min"):
            value = (torch.maximum if reduction == "max" else torch.minimum)(before[1], value.to(before[1].device))
        self._held[name] = (reduction, value, weight)
