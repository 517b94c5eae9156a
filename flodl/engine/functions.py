"""Functions of the user's that a rank calls on its way: what they are handed, and what comes of their failures.

An epoch's function is part of training: where it raises, the step has. Of the others a failure is told, and training
goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch import nn

from flodl.engine.evaluate import Scope, figures, judging, named_numbers

__all__ = ["Functions"]

NAME = "eval"  # of the only number of a function that gives one


@dataclass(frozen=True, kw_only=True)
class Functions:
    """None: there is none. epoch(epoch, model), eval(model), checkpoint(round, model)."""

    epoch: Callable[[int, nn.Module], object] | None = None
    eval: Callable[[nn.Module], Any] | None = None
    checkpoint: Callable[[int, nn.Module], object] | None = None

    def figures(self, model: nn.Module, step: Any, dataset: Any, scope: Scope) -> dict[str, float]:
        """All figures of an evaluation, finite or not: those of `eval`, which sees the model alone, in eval mode and
        without gradients; else those of the step over the data set. Raises FlodlError for what no record holds."""
        if self.eval is None:
            return figures(model, step, dataset, scope)
        with judging(model):
            given = self.eval(model)
        return named_numbers(given if isinstance(given, Mapping) else {NAME: given}, "callbacks.eval_fn")

    def saved(self, round_: int, model: nn.Module, consensus: AbstractContextManager[None]) -> None:
        """A bundle of this round is begun. What the function raises is written to the rank's log."""
        if self.checkpoint is None:
            return
        try:
            with consensus, judging(model):
                self.checkpoint(round_, model)
        except Exception as error:  # noqa: BLE001  it is the user's, and the bundle is none the worse for it
            sys.stderr.write(f"warning: callbacks.checkpoint_fn failed: {type(error).__name__}: {error}\n")
