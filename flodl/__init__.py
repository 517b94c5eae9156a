"""Train one PyTorch model on several devices that are not equal. Importing this loads neither torch nor hydra."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsFloat

if TYPE_CHECKING:
    from flodl.decide.totals import Reduction

__all__ = ["record_scalar"]


def record_scalar(name: str, value: SupportsFloat, reduction: Reduction = "mean") -> None:
    """Tell a figure from inside a training step; it arrives in the epoch's ``scalars`` in metrics.jsonl.

    reduction: how an epoch's figures of all batches and ranks become one: mean (weighted by samples), sum, max, min,
    or last (of the epoch's last round; of several ranks the highest numbered). value: a number, or a tensor of one
    element, which is not waited for. Outside a training step (evaluation, unit tests) nothing happens.
    Raises ValueError or TypeError for what is no name, no number or no reduction.
    """
    from flodl.engine.scalars import record

    record(name, value, reduction)
