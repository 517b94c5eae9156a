"""What an optim block says beside the optimizer's arguments."""

from __future__ import annotations

import pytest

from flodl.spec.component import Component
from flodl.spec.optim import OptimGroups, read_groups


def test_the_optimizer_does_not_see_what_is_flodls_own() -> None:
    optim = Component(
        target="torch.optim.SGD", partial=True, args={"lr": 0.1, "no_decay": ["bias"], "lr_scale": "sqrt"}
    )
    bare, groups, problems = read_groups(optim)
    assert bare == optim.replace(args={"lr": 0.1})
    assert groups == OptimGroups(no_decay=("bias",), lr_scale="sqrt")
    assert problems == []


@pytest.mark.parametrize(
    ("args", "key"),
    [
        ({"no_decay": "bias"}, "optim.no_decay"),
        ({"lr_scale": "double"}, "optim.lr_scale"),
        ({"no_decay": [""]}, "optim.no_decay"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(args: dict[str, object], key: str) -> None:
    assert [p.key for p in read_groups(Component(target="torch.optim.SGD", args=args))[2]] == [key]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"lr": "abc"}, ["optim.lr=abc: must be a number >= 0"]),
        ({"lr": -1}, ["optim.lr=-1: must be a number >= 0"]),
        ({"lr": None}, ["optim.lr=null: must be a number >= 0"]),
        ({"lr": True, "momentum": -0.9, "weight_decay": "no", "eps": -1e-8, "no_decay": "bias"},
         ["optim.no_decay=bias: must be a list of bias, norm, or a pattern of parameter names",
          "optim.lr=true: must be a number >= 0", "optim.momentum=-0.9: must be a number >= 0",
          "optim.weight_decay=no: must be a number >= 0", "optim.eps=-1e-08: must be a number >= 0"]),
        ({"betas": [0.9, 1.0]}, ["optim.betas=[0.9, 1.0]: must be two numbers >= 0 and < 1"]),
        ({"betas": 0.9}, ["optim.betas=0.9: must be two numbers >= 0 and < 1"]),
    ],
)  # fmt: skip
def test_a_number_that_no_optimizer_of_torchs_takes_is_told_with_its_key(
    args: dict[str, object], words: list[str]
) -> None:
    assert [str(p) for p in read_groups(Component(target="torch.optim.AdamW", args=args))[2]] == words


@pytest.mark.parametrize(
    ("target", "args"),
    [
        ("torch.optim.SGD", {"lr": 0, "momentum": 0.0, "weight_decay": 1}),
        ("torch.optim.adam.Adam", {"lr": 1e-3, "betas": [0, 0.999], "eps": 0}),
        ("torch.optim.Adafactor", {"eps": [None, 1e-3]}),
        ("torch.optim.SGD", {"lr": {"_target_": "torch.nn.Parameter"}}),
        ("mine.Optimizer", {"lr": "by itself", "betas": -1}),
    ],
)
def test_what_an_optimizer_may_take_passes(target: str, args: dict[str, object]) -> None:
    assert read_groups(Component(target=target, args=args))[2] == []


def test_the_rate_grows_with_the_world_as_it_is_said() -> None:
    factors = {name: OptimGroups(lr_scale=name).factor(4) for name in ("none", "linear", "sqrt")}  # type: ignore[arg-type]
    assert factors == {"none": 1.0, "linear": 4.0, "sqrt": 2.0}
