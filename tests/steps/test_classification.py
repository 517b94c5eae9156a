"""The classification step gives a mean loss and judges logits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from flodl.steps.classification import Classification

LOGITS = torch.tensor([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 4.0]])
LABELS = torch.tensor([0, 1, 2, 2])


def test_the_loss_is_the_mean_cross_entropy_and_carries_a_gradient() -> None:
    logits = LOGITS.clone().requires_grad_()
    loss = Classification()(nn.Identity(), (logits, LABELS))
    right, wrong = math.log(1 + 2 * math.exp(-4)), math.log(1 + 2 * math.exp(-4)) + 4
    assert loss.item() == pytest.approx((3 * right + wrong) / 4)
    loss.backward()
    assert logits.grad is not None


def test_metrics_tell_accuracy_and_loss() -> None:
    metrics = Classification().metrics(nn.Identity(), (LOGITS, LABELS))
    assert {name: value.shape for name, value in metrics.items()} == {"loss": (), "accuracy": ()}
    assert metrics["accuracy"].item() == 0.75


def test_label_smoothing_changes_what_is_trained_not_what_is_told() -> None:
    plain, smooth = Classification(), Classification(label_smoothing=0.1)
    batch = (LOGITS, LABELS)
    assert smooth(nn.Identity(), batch) > plain(nn.Identity(), batch)
    assert torch.equal(smooth.metrics(nn.Identity(), batch)["loss"], plain.metrics(nn.Identity(), batch)["loss"])


def test_label_smoothing_outside_0_to_1_is_refused() -> None:
    with pytest.raises(ValueError, match=r"label_smoothing=1.5 must lie within 0..1"):
        Classification(label_smoothing=1.5)
