"""Language modelling judges every position; reconstruction compares with the input."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from flodl.steps.language_model import LanguageModel
from flodl.steps.reconstruction import Reconstruction


class Certain(nn.Module):
    """Expects the next character to be the same one, with a logit of 4 against 0 for the two others."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return nn.functional.one_hot(tokens, 3) * 4.0


TOKENS = torch.tensor([[0, 1], [2, 1]], dtype=torch.uint8)
TARGETS = torch.tensor([[0, 1], [2, 0]], dtype=torch.uint8)
RIGHT = math.log(1 + 2 * math.exp(-4))


def test_a_language_models_loss_is_the_mean_over_all_positions_in_nats() -> None:
    loss = LanguageModel()(Certain(), (TOKENS, TARGETS))
    assert loss.shape == ()
    assert loss.item() == pytest.approx((4 * RIGHT + 4) / 4, rel=1e-5)


def test_a_language_model_is_judged_in_nats_bits_and_hits() -> None:
    metrics = LanguageModel().metrics(Certain(), (TOKENS, TARGETS))
    assert set(metrics) == {"loss", "bits_per_char", "accuracy"}
    assert metrics["accuracy"].item() == 0.75
    assert metrics["bits_per_char"].item() == pytest.approx(metrics["loss"].item() / math.log(2))


def test_a_position_without_a_target_is_not_judged() -> None:
    targets = TARGETS.long()
    targets[1, 1] = -100
    metrics = LanguageModel().metrics(Certain(), (TOKENS, targets))
    assert metrics["accuracy"].item() == 1.0
    assert metrics["loss"].item() == pytest.approx(RIGHT, rel=1e-5)


def test_reconstruction_is_the_mean_squared_error_whatever_lies_beside_the_inputs() -> None:
    class Half(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images / 2

    images = torch.full((2, 1, 2, 2), 4.0)
    for batch in (images, (images,), (images, torch.zeros(2))):
        assert Reconstruction()(Half(), batch).item() == 4.0
        assert {n: v.item() for n, v in Reconstruction().metrics(Half(), batch).items()} == {"loss": 4.0, "mse": 4.0}
