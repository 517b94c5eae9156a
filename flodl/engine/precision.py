"""In what numbers a rank computes its forward passes. Weights, gradients and all averaging stay in float32.

float16 needs a scale: gradients are computed of loss x scale. Where they overflow, that batch is skipped (it weighs
nothing in the averaging) and the scale is halved.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from flodl.errors import ConfigError, Problem

__all__ = ["Precision", "precision_of"]

Name = Literal["float32", "bfloat16", "float16"]

BFLOAT16_CAPABILITY = (8, 0)  # cards before that compute it slower than float32


def precision_of(asked: Literal["auto"] | Name, device: torch.device) -> Precision:
    """auto: bfloat16 where the card has it (capability 8.0 and up), else float32, also on every CPU."""
    if asked != "auto":
        return Precision(asked, device)
    has_bfloat16 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= BFLOAT16_CAPABILITY
    return Precision("bfloat16" if has_bfloat16 else "float32", device)


class Precision:
    """Casts forward passes, and scales what float16 would lose. cast: reusable, around forward and loss."""

    def __init__(self, name: Name = "float32", device: torch.device | None = None) -> None:
        kind = device.type if device is not None else "cpu"
        self.name = name
        self.cast: AbstractContextManager[object] = nullcontext()
        if name != "float32":
            self.cast = torch.autocast(kind, dtype=getattr(torch, name))
        self._scaler = torch.amp.GradScaler(kind) if name == "float16" else None
        self._scale = self._scaler.get_scale() if self._scaler is not None else 1.0

    def standing(self) -> dict[str, Any] | None:
        """What the scale has come to, as JSON; None where there is none."""
        return None if self._scaler is None else self._scaler.state_dict()

    def restore(self, standing: Mapping[str, Any] | None) -> None:
        """Go on with another one's scale, where there is one on both sides."""
        if self._scaler is not None and standing is not None:
            self._scaler.load_state_dict(dict(standing))
            self._scale = self._scaler.get_scale()

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of `loss` (scaled, in float16). Raises ConfigError where it is no loss."""
        try:
            (loss if self._scaler is None else self._scaler.scale(loss)).backward()
        except (AttributeError, AssertionError, RuntimeError, TypeError, ValueError) as error:
            if (told := _no_loss(loss, str(error))) is None:
                raise
            raise ConfigError([told]) from error

    def settle(self, optimizer: Optimizer) -> bool:
        """Make the gathered gradients those of the loss itself. False, with none left: they are not finite (float16).

        One sync per batch in float16, none elsewhere.
        """
        if self._scaler is None:
            return True
        self._scaler.unscale_(optimizer)
        before = self._scale
        self._scaler.update()
        self._scale = self._scaler.get_scale()
        if self._scale >= before:
            return True
        optimizer.zero_grad(set_to_none=True)
        return False


def _no_loss(loss: object, said: str) -> Problem | None:
    """What a step gave that is no loss, looked at once backward() has failed; None where it is one. said: by torch."""
    if not isinstance(loss, Tensor):
        wrong, remedy = (
            f"gave a {type(loss).__name__}",
            "return the batch's mean loss, a tensor",
        )
    elif loss.numel() != 1:
        wrong, remedy = f"gave a tensor of shape {tuple(loss.shape)}", "return one loss for the batch: the mean"
    elif not loss.requires_grad:
        wrong, remedy = "gave a loss that leads back to no parameter", "leave out detach(), item() and no_grad()"
    elif "backward through the graph a second time" in said:
        wrong, remedy = "has called backward() itself", "return the loss; gradients are computed here"
    else:
        return None
    return Problem(key="step", constraint=wrong, remedy=remedy)
