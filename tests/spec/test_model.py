"""What a model block says beside the model's arguments."""

from __future__ import annotations

import pytest

from flodl.spec.component import Component
from flodl.spec.model import ModelStart, read_model


def test_the_model_does_not_see_what_it_begins_with() -> None:
    model = Component(target="my.Net", args={"width": 3, "init_from": "runs/a b/weights.safetensors"})
    bare, start, problems = read_model(model)
    assert bare == model.replace(args={"width": 3})
    assert start == ModelStart(init_from="runs/a b/weights.safetensors")
    assert problems == []


def test_by_default_it_begins_with_its_own_weights() -> None:
    assert read_model(Component(target="my.Net"))[1].init_from is None
    assert read_model(Component(target="my.Net", args={"init_from": None}))[0].args == {}


@pytest.mark.parametrize("value", ["model.pt", "", ".safetensors", 5, ["a.safetensors"]])
def test_what_is_no_safetensors_file_is_refused_with_its_key(value: object) -> None:
    problems = read_model(Component(target="my.Net", args={"init_from": value}))[2]
    assert [p.key for p in problems] == ["model.init_from"]
    assert "the name of a .safetensors file" in problems[0].constraint
