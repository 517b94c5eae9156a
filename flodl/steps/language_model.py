"""Language modelling: at every position, cross entropy of the next token."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own habit

__all__ = ["LanguageModel"]


class LanguageModel:
    """Batches are (tokens, targets), integers of shape (batch, time) of any width: the target is the token after.

    A target of -100 is not judged.
    """

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Mean cross entropy over all positions, a scalar, in nats."""
        logits, targets = _judged(model, batch)
        return F.cross_entropy(logits, targets)

    def metrics(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        """loss (nats), bits_per_char (the same in bits) and accuracy: means over the positions of the batch."""
        logits, targets = _judged(model, batch)
        loss = F.cross_entropy(logits, targets)
        judged = targets != -100
        hits = (logits.argmax(dim=-1) == targets) & judged
        return {
            "loss": loss,
            "bits_per_char": loss / math.log(2),
            "accuracy": hits.to(logits.dtype).sum() / judged.sum().clamp(min=1),
        }


def _judged(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Logits (positions, vocabulary) and targets (positions,)."""
    tokens, targets = batch
    logits = model(tokens.long())
    return logits.flatten(0, 1), targets.long().flatten()
