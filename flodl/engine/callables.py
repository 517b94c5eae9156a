"""What a program hands in through `flodl.Trainer`, as types: a callable, its import path, or a shipped choice's name.

A callable that is a class or a top-level function, or a functools.partial of one with plain keyword arguments, is
known by its import path and travels; anything else lives in the program's own process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from flodl.engine.own_loop import LoopContext
from flodl.spec.component import Component

__all__ = ["LoopFn", "ModelFactory", "Module", "OptimFactory", "SchedulerFn", "Tensor", "TrainStep"]

LoopFn: TypeAlias = Callable[[LoopContext], Any] | str | Component
"""(ctx) -> what `RunHandle.join` shall have: None, a module, or a map of names to modules and tensors."""

ModelFactory: TypeAlias = Callable[[], Module] | str | Component
"""() -> Module, the same in every rank."""

OptimFactory: TypeAlias = Callable[[Any], Optimizer] | str | Component
"""(parameters, or groups of them) -> Optimizer."""

TrainStep: TypeAlias = Callable[..., Any] | str | Component
"""(model, batch) -> the batch's mean loss, a scalar Tensor; or a class of such a thing, which may have metrics()."""

SchedulerFn: TypeAlias = Callable[..., Any] | str | Component
"""(optimizer) -> a torch LRScheduler, stepped once per batch; or one of flodl.decide.schedule, called with progress."""
