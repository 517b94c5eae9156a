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


def test_the_rate_grows_with_the_world_as_it_is_said() -> None:
    factors = {name: OptimGroups(lr_scale=name).factor(4) for name in ("none", "linear", "sqrt")}  # type: ignore[arg-type]
    assert factors == {"none": 1.0, "linear": 4.0, "sqrt": 2.0}
