"""Parameter groups: who gets no weight decay, and the rate by world size."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from flodl.engine.optim import made_optimizer, without_decay
from flodl.errors import ConfigError
from flodl.spec.optim import OptimGroups


class OwnNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.body = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), OwnNorm())
        self.attention = nn.MultiheadAttention(4, 2)
        self.frozen = nn.Linear(2, 2)
        self.frozen.requires_grad_(False)


def sgd(**arguments: float) -> partial[torch.optim.SGD]:
    return partial(torch.optim.SGD, **{"lr": 0.1, "weight_decay": 0.5, **arguments})


def test_bias_and_norm_are_found_by_kind() -> None:
    biases = {"body.0.bias", "body.1.bias", "attention.in_proj_bias", "attention.out_proj.bias"}
    assert without_decay(Net(), ["bias"]) == biases
    assert without_decay(Net(), ["norm"]) == {"body.1.weight", "body.1.bias", "body.2.gain"}
    assert without_decay(nn.GRU(2, 2), ["bias"]) == {"bias_ih_l0", "bias_hh_l0"}
    assert without_decay(nn.LayerNorm(2), ["norm"]) == {"weight", "bias"}


def test_a_pattern_names_parameters_and_one_that_names_none_is_refused() -> None:
    assert without_decay(Net(), ["embedding.*"]) == {"embedding.weight"}
    with pytest.raises(ConfigError, match="no parameter is called so"):
        without_decay(Net(), ["head.*"])
    assert without_decay(nn.Linear(1, 1, bias=False), ["bias", "norm"]) == set()


def test_every_trainable_parameter_is_in_one_group_and_decays_as_said() -> None:
    net = Net()
    optimizer = made_optimizer(sgd(), net, OptimGroups(no_decay=("bias", "norm", "embedding.*")), 1)
    decayed, spared = optimizer.param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.5, 0.0)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in held} == {id(p) for p in net.parameters() if p.requires_grad}
    assert len(held) == len({id(p) for p in held})
    assert len(spared["params"]) == 7


def test_without_groups_there_is_one_and_its_order_is_the_models() -> None:
    net = Net()
    (group,) = made_optimizer(sgd(), net, OptimGroups(), 1).param_groups
    assert [id(p) for p in group["params"]] == [id(p) for p in net.parameters() if p.requires_grad]


@pytest.mark.parametrize(("scale", "lr"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_the_base_rate_of_every_group_follows_the_number_of_ranks(scale: str, lr: float) -> None:
    groups = OptimGroups(no_decay=("bias",), lr_scale=scale)  # type: ignore[arg-type]
    for group in made_optimizer(sgd(), nn.Linear(2, 2), groups, 4).param_groups:
        assert group["lr"] == group["initial_lr"] == pytest.approx(lr)


def test_an_optimizer_that_calls_for_the_loss_by_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"torch.optim.lbfgs.LBFGS: evaluates the loss by itself"):
        made_optimizer(torch.optim.LBFGS, nn.Linear(1, 1), OptimGroups(), 1)


def test_no_decay_wants_an_optimizer_that_decays() -> None:
    with pytest.raises(ConfigError, match="knows no weight_decay"):
        made_optimizer(partial(torch.optim.Rprop, lr=0.1), nn.Linear(1, 1), OptimGroups(no_decay=("bias",)), 1)


@pytest.mark.parametrize(
    "name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "ASGD", "Rprop"]
)
def test_first_order_optimizers_of_torch_are_made_and_step(name: str) -> None:
    model = nn.Linear(2, 1)
    optimizer = made_optimizer(partial(getattr(torch.optim, name), lr=0.1), model, OptimGroups(), 1)
    before = model.weight.detach().clone()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert not torch.equal(before, model.weight)


def test_an_optimizer_of_another_models_parameters_is_refused() -> None:
    other = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(ConfigError, match="optim=SGD: holds 2 tensors that are no parameters of the model; make it of"):
        made_optimizer(lambda params: other, Net(), OptimGroups(), 1)
