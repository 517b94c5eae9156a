"""Evaluation: what a model makes of a data set, without changing anything of it."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from flodl.engine.reading import batch_of, num_samples
from flodl.errors import FlodlError

__all__ = ["Scope", "evaluate", "figures", "judging"]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How to evaluate. limit: samples, the first ones; None: all. cast: around each call of the step."""

    device: torch.device
    batch_size: int
    limit: int | None = None
    cast: AbstractContextManager[object] = field(default_factory=nullcontext)


def evaluate(
    model: nn.Module, step: Any, dataset: Any, scope: Scope, *, keep: Container[str] | None = None
) -> dict[str, float]:
    """What `figures` tells of the data set; of these the ones named in `keep` (None: all).

    Raises FlodlError where one of them is not finite (a report holds no NaN).
    """
    told = figures(model, step, dataset, scope)
    kept = {name: value for name, value in told.items() if keep is None or name in keep}
    broken = [f"{name}={value}" for name, value in kept.items() if not math.isfinite(value)]
    if broken:
        raise FlodlError(f"evaluation gave {', '.join(broken)} over {num_samples(dataset)} samples")
    return kept


def figures(model: nn.Module, step: Any, dataset: Any, scope: Scope) -> dict[str, float]:
    """Means over the samples of `dataset`: step.metrics where the step has it, else only the loss.

    The model is in eval mode meanwhile; each of its modules is put back as it was. None for a data set gives {}.
    """
    if dataset is None:
        return {}
    total = num_samples(dataset) if scope.limit is None else min(scope.limit, num_samples(dataset))
    sums: dict[str, Tensor] = {}
    with judging(model):
        for start in range(0, total, scope.batch_size):
            indices = torch.arange(start, min(total, start + scope.batch_size))
            batch = batch_of(dataset, indices, scope.device)
            with scope.cast:
                means = _measure(model, step, batch)
            for name, mean in means.items():
                weighted = torch.as_tensor(mean, dtype=torch.float64, device="cpu") * len(indices)
                sums[name] = sums.get(name, torch.zeros((), dtype=torch.float64)) + weighted
    return {name: float(value) / total for name, value in sums.items()}


def _measure(model: nn.Module, step: Any, batch: Any) -> Mapping[str, Tensor]:
    metrics = getattr(step, "metrics", None)
    return {"loss": step(model, batch)} if metrics is None else metrics(model, batch)


@contextmanager
def judging(model: nn.Module) -> Iterator[None]:
    """Eval mode, without gradients; afterwards every module as it was (a frozen BatchNorm may have been in eval mode
    all along)."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
