"""What a ``model`` block holds beside the model's own arguments: the weights that it begins with."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from flodl.errors import Problem
from flodl.spec.component import Component
from flodl.spec.reader import Reader
from flodl.spec.value import Value

__all__ = ["ModelStart", "read_model"]

WeightsFile = Annotated[str, Meta(pattern=r"(?s)^.+\.safetensors$", description="the name of a .safetensors file")]


class ModelStart(Value, frozen=True, kw_only=True):
    """init_from: a file of weights under the names of the model's state_dict; null: those of its constructor."""

    init_from: WeightsFile | None = None


def read_model(model: Component) -> tuple[Component, ModelStart, list[Problem]]:
    """The model as it is built, what it begins with, and what is wrong with that."""
    own = {name: value for name, value in model.args.items() if name in ModelStart.__struct_fields__}
    reader = Reader()
    start = reader.value(ModelStart, own, "model")
    rest = {name: value for name, value in model.args.items() if name not in own}
    return model.replace(args=rest), start, reader.problems
