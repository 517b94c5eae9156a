"""Evaluation: what a model makes of a data set, without changing anything of it."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import nn

from flodl.engine.reading import batch_of, num_samples
from flodl.errors import FlodlError
from flodl.spec.names import figure_fault

__all__ = ["Scope", "evaluate", "figures", "judging", "kept", "named_numbers"]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How to evaluate. limit: samples, the first ones; None: all. cast: around each call of the step."""

    device: torch.device
    batch_size: int
    limit: int | None = None
    cast: AbstractContextManager[object] = field(default_factory=nullcontext)


def evaluate(model: nn.Module, step: Any, dataset: Any, scope: Scope) -> dict[str, float]:
    """What `figures` tells of the data set. Raises FlodlError where one of them is not finite."""
    return kept(figures(model, step, dataset, scope))


def kept(told: Mapping[str, float], keep: Container[str] | None = None) -> dict[str, float]:
    """Of an evaluation's figures the ones named in `keep` (None: all).

    Raises FlodlError where one of them is not finite (a report holds no NaN).
    """
    found = {name: value for name, value in told.items() if keep is None or name in keep}
    broken = [f"{name}={value}" for name, value in found.items() if not math.isfinite(value)]
    if broken:
        raise FlodlError(f"the evaluation gave {', '.join(broken)}")
    return found


def figures(model: nn.Module, step: Any, dataset: Any, scope: Scope) -> dict[str, float]:
    """Means over the samples of `dataset`: step.metrics where the step has it, else only the loss. A figure that some
    batches do not tell is the mean over the others.

    The model is in eval mode meanwhile; each of its modules is put back as it was. None for a data set gives {}.
    Raises FlodlError for what `named_numbers` refuses.
    """
    if dataset is None:
        return {}
    total = num_samples(dataset) if scope.limit is None else min(scope.limit, num_samples(dataset))
    sums: dict[str, float] = {}
    samples: dict[str, int] = {}
    with judging(model):
        for start in range(0, total, scope.batch_size):
            indices = torch.arange(start, min(total, start + scope.batch_size))
            batch = batch_of(dataset, indices, scope.device)
            with scope.cast:
                means = _measure(model, step, batch)
            for name, mean in means.items():
                sums[name] = sums.get(name, 0.0) + mean * len(indices)
                samples[name] = samples.get(name, 0) + len(indices)
    return {name: value / samples[name] for name, value in sums.items()}


def _measure(model: nn.Module, step: Any, batch: Any) -> dict[str, float]:
    metrics = getattr(step, "metrics", None)
    if metrics is None:
        return named_numbers({"loss": step(model, batch)}, "the step")
    return named_numbers(metrics(model, batch), "the step's metrics")


def named_numbers(told: Any, who: str) -> dict[str, float]:
    """Figures as they are recorded. who: tells them. Raises FlodlError for what is no map of fit names to numbers."""
    if not isinstance(told, Mapping):
        raise FlodlError(f"{who} gave {told!r:.80}, not a map of names to numbers")
    found: dict[str, float] = {}
    for name, value in cast("Mapping[Any, Any]", told).items():
        if fault := figure_fault(name):
            raise FlodlError(f"{who} gave a figure that cannot be recorded: {fault}")
        try:
            found[name] = float(value)
        except Exception as error:
            raise FlodlError(f"{who} gave {name}={value!r:.80}, which is no number") from error
    return found


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
