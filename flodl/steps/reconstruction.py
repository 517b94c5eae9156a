"""Reconstruction: the mean squared error between what a model gives back and what it was given."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own habit

__all__ = ["Reconstruction"]


class Reconstruction:
    """Batches are inputs, or begin with them: labels beside them are not looked at."""

    def __call__(self, model: nn.Module, batch: Tensor | tuple[Tensor, ...]) -> Tensor:
        """Mean squared error over all elements of the batch, a scalar."""
        inputs = batch if isinstance(batch, Tensor) else batch[0]
        return F.mse_loss(model(inputs), inputs)

    def metrics(self, model: nn.Module, batch: Tensor | tuple[Tensor, ...]) -> dict[str, Tensor]:
        """loss, and the same as mse."""
        mse = self(model, batch)
        return {"loss": mse, "mse": mse}
