"""Weights out of a file into a model, strictly: every name is there on both sides, or the first that is not is told.

safetensors and nothing else: a checkpoint that is a pickle runs code when it is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from flodl.engine.weights import bare_name
from flodl.errors import ConfigError, Problem

__all__ = ["load_weights"]


def load_weights(model: nn.Module, path: Path, key: str) -> None:
    """Copy the file's tensors into parameters and buffers of the same names. key: what named the file, for messages.

    Of tied weights one name is enough. Floating-point numbers may be of another precision. Raises ConfigError where the
    file is not whole or something differs (then the model is as it was), FileNotFoundError where there is none.
    """
    try:
        found = {bare_name(name): tensor for name, tensor in load_file(path).items()}
    except SafetensorError as error:
        remedy = "safetensors.torch.save_file(model.state_dict(), ...) writes one"
        raise _refused(key, path, f"is not a whole safetensors file: {error}", remedy) from error
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    difference = _difference({bare_name(name): value for name, value in own.items()}, found)
    if difference:
        raise _refused(key, path, difference, "the file has to be of this very model")
    model.load_state_dict({name: found[bare_name(name)] for name in own if bare_name(name) in found}, strict=False)


def _difference(own: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    """The first difference in words, in the model's order; "" where the file fits."""
    held = {_place(own[name]) for name in found if name in own}
    for name, value in own.items():
        there = found.get(name)
        if there is None:
            if _place(value) not in held:
                return f"lacks {name}, which the model has as {_form(value)}"
        elif there.shape != value.shape or there.is_floating_point() != value.is_floating_point():
            return f"has {name} as {_form(there)}, the model as {_form(value)}"
    return next((f"has {name}, which the model does not have" for name in found if name not in own), "")


def _place(value: Tensor) -> tuple[object, ...]:
    """Where a tensor lies: tied ones lie in one place."""
    return value.data_ptr(), value.shape, value.stride(), value.dtype


def _form(value: Tensor) -> str:
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"


def _refused(key: str, path: Path, constraint: str, remedy: str) -> ConfigError:
    return ConfigError([Problem(key=key, value=str(path), constraint=constraint, remedy=remedy)])
