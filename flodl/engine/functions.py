"""Functions of the user's that a rank calls on its way: what they are handed, and what comes of their failures.

An epoch's function is part of training: where it raises, the step has. Of the others a failure is told, and training
goes on.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

from torch import nn

from flodl.engine.evaluate import judging
from flodl.errors import FlodlError

__all__ = ["Functions", "judged"]

NAME = "eval"  # of the only number of a function that gives one


@dataclass(frozen=True, kw_only=True)
class Functions:
    """None: there is none. epoch(epoch, model), eval(model), checkpoint(round, model)."""

    epoch: Callable[[int, nn.Module], object] | None = None
    eval: Callable[[nn.Module], Any] | None = None
    checkpoint: Callable[[int, nn.Module], object] | None = None

    def saved(self, round_: int, model: nn.Module, consensus: AbstractContextManager[None]) -> None:
        """A bundle of this round is begun. What the function raises is written to the rank's log."""
        if self.checkpoint is None:
            return
        try:
            with consensus, judging(model):
                self.checkpoint(round_, model)
        except Exception as error:  # noqa: BLE001  it is the user's, and the bundle is none the worse for it
            sys.stderr.write(f"warning: callbacks.checkpoint_fn failed: {type(error).__name__}: {error}\n")


def judged(function: Callable[[nn.Module], Any], model: nn.Module) -> dict[str, float]:
    """What an evaluation function makes of the model, which is in eval mode meanwhile and builds no graph.

    Raises FlodlError for what is neither a finite number nor a map of names to such.
    """
    with judging(model):
        given = function(model)
    named = cast("Mapping[Any, Any]", given) if isinstance(given, Mapping) else {NAME: given}
    try:
        found = {str(name): float(value) for name, value in named.items()}
    except (TypeError, ValueError) as error:
        raise FlodlError(f"callbacks.eval_fn gave {given!r:.80}, not a number or a map of names to numbers") from error
    broken = [f"{name}={value}" for name, value in found.items() if not math.isfinite(value)]
    if broken:
        raise FlodlError(f"callbacks.eval_fn gave {', '.join(broken)}")
    return found
