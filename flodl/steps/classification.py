"""Classification: cross entropy of the logits, and how often the largest one is right."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own habit

__all__ = ["Classification"]


class Classification:
    """Batches are (inputs, labels): labels are class numbers, int64 of shape (batch,).

    label_smoothing: part of a target's mass that is spread over all classes, 0..1; for training only: the loss that
    is told by `metrics` is without it, so that runs can be compared.
    """

    def __init__(self, *, label_smoothing: float = 0.0) -> None:
        if not 0.0 <= label_smoothing <= 1.0:
            raise ValueError(f"label_smoothing={label_smoothing} must lie within 0..1")
        self.label_smoothing = label_smoothing

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Mean cross entropy over the batch, a scalar."""
        inputs, labels = batch
        return F.cross_entropy(model(inputs), labels, label_smoothing=self.label_smoothing)

    def metrics(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        """loss and accuracy, means over the batch."""
        inputs, labels = batch
        logits = model(inputs)
        return {
            "loss": F.cross_entropy(logits, labels),
            "accuracy": (logits.argmax(dim=1) == labels).to(logits.dtype).mean(),
        }
