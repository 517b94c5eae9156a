"""Train one PyTorch model on several devices that are not equal. Importing this loads neither torch nor hydra."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsFloat

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flodl.decide.totals import Reduction
    from flodl.engine.load import Module

__all__ = ["load_model", "record_scalar"]


def load_model(run: str | Path, *, trusted_targets: Sequence[str] = ()) -> Module:
    """The model of a run with the weights that it saved last, on the CPU, in evaluation mode.

    run: a run folder, or ``"last"``: the newest under ./outputs. The model's class is found as in a config: in the
    usual packages, in the working folder, and in trusted_targets. Raises ConfigError where something does not fit.
    """
    from flodl.engine.load import load_model

    return load_model(run, trusted_targets=trusted_targets)


def record_scalar(name: str, value: SupportsFloat, reduction: Reduction = "mean") -> None:
    """Tell a figure from inside a training step; it arrives in the epoch's ``scalars`` in metrics.jsonl.

    reduction: how an epoch's figures of all batches and ranks become one: mean (weighted by samples), sum, max, min,
    or last (of the epoch's last round; of several ranks the highest numbered). value: a number, or a tensor of one
    element, which is not waited for. Outside a training step (evaluation, unit tests) nothing happens.
    Raises ValueError or TypeError for what is no name, no number or no reduction.
    """
    from flodl.engine.scalars import record

    record(name, value, reduction)
