"""The shipped models take any image size that makes sense and learn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from flodl.models.conv_autoencoder import ConvAutoencoder
from flodl.models.lenet import LeNet
from flodl.models.logistic import Logistic
from flodl.models.mlp import MLP
from flodl.models.resnet import ResNet

Make = Callable[..., nn.Module]
MODELS: list[Make] = [Logistic, MLP, LeNet, ResNet]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("in_shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)], ids=str)
def test_a_model_gives_one_logit_per_class(make: Make, in_shape: tuple[int, int, int]) -> None:
    model = make(in_shape=in_shape, num_classes=7)
    assert model(torch.zeros(3, *in_shape)).shape == (3, 7)


@pytest.mark.parametrize("make", MODELS)
def test_every_parameter_gets_a_gradient(make: Make) -> None:
    model = make(in_shape=(1, 8, 8), num_classes=10)
    model(torch.randn(4, 1, 8, 8)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("make", MODELS)
def test_a_seed_fixes_the_parameters(make: Make) -> None:
    def first() -> torch.Tensor:
        torch.manual_seed(3)
        return next(make(in_shape=(1, 8, 8), num_classes=10).parameters())

    assert torch.equal(first(), first())


def test_resnet20_has_the_size_of_the_paper() -> None:
    # 0.27 M in the paper's table 6; projections in the shortcuts add 2,752 to its 269,722 for three channels.
    model = ResNet(in_shape=(3, 32, 32), num_classes=10)
    assert sum(p.numel() for p in model.parameters()) == 272_474
    assert sum(isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3) for m in model.modules()) == 19


def test_a_depth_that_is_not_6n_plus_2_is_refused_with_the_right_ones() -> None:
    with pytest.raises(ValueError, match=r"depth=21 must be 6n \+ 2: 8, 14, 20"):
        ResNet(in_shape=(1, 8, 8), num_classes=10, depth=21)


def test_lenet_refuses_an_image_that_would_vanish() -> None:
    with pytest.raises(ValueError, match=r"in_shape=\[1, 3, 3\] must be at least 4x4"):
        LeNet(in_shape=(1, 3, 3), num_classes=10)


def test_mlp_without_hidden_layers_is_linear() -> None:
    model = MLP(in_shape=(1, 2, 2), num_classes=3, hidden=[])
    assert sum(p.numel() for p in model.parameters()) == 4 * 3 + 3


def test_logistic_regression_is_one_linear_layer() -> None:
    assert sum(p.numel() for p in Logistic(in_shape=(1, 2, 2), num_classes=3).parameters()) == 4 * 3 + 3


@pytest.mark.parametrize("in_shape", [(1, 8, 8), (1, 28, 28), (3, 32, 16)], ids=str)
def test_an_autoencoder_gives_back_the_shape_it_was_given_through_a_narrow_code(in_shape: tuple[int, int, int]) -> None:
    model = ConvAutoencoder(in_shape=in_shape, code=5)
    images = torch.randn(3, *in_shape)
    assert model.encoder(images).shape == (3, 5)
    assert model(images).shape == images.shape


def test_every_parameter_of_an_autoencoder_gets_a_gradient() -> None:
    model = ConvAutoencoder(in_shape=(1, 8, 8))
    model(torch.randn(16, 1, 8, 8)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_an_autoencoder_refuses_an_image_that_it_cannot_halve() -> None:
    with pytest.raises(ValueError, match=r"in_shape=\[1, 9, 8\] must be divisible by 4"):
        ConvAutoencoder(in_shape=(1, 9, 8))
