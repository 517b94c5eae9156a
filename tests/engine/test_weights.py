"""Weights leave a run as a file that two lines of plain PyTorch load."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from flodl.engine.weights import from_bytes, to_bytes
from flodl.errors import FlodlError
from flodl.models.resnet import ResNet


class Tied(nn.Module):
    """Two names for one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


def written(model: nn.Module, folder: Path) -> Path:
    path = folder / "weights.safetensors"
    path.write_bytes(to_bytes(model.state_dict()))
    return path


def test_two_lines_of_plain_pytorch_load_the_weights(tmp_path: Path) -> None:
    model, other = (ResNet(in_shape=(1, 8, 8), num_classes=10, depth=8) for _ in range(2))
    model(torch.randn(4, 1, 8, 8))  # moves the integer and floating buffers
    other.load_state_dict(load_file(written(model, tmp_path)))
    assert all(torch.equal(other.state_dict()[name], value) for name, value in model.state_dict().items())


def test_tied_weights_load_in_two_lines_and_the_file_says_that_they_are_one(tmp_path: Path) -> None:
    model, other = Tied(), Tied()
    path = written(model, tmp_path)
    other.load_state_dict(load_file(path))
    assert torch.equal(other.embed.weight, model.embed.weight)
    assert other.head.weight is other.embed.weight
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt", "tied": '{"head.weight": "embed.weight"}'}


def test_strided_parts_of_one_tensor_keep_their_values() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    loaded = from_bytes(to_bytes({"columns": whole[:, ::2], "t": whole.T, "row": whole[1], "image": image}))
    assert torch.equal(loaded["columns"], whole[:, ::2])
    assert torch.equal(loaded["t"], whole.T)
    assert torch.equal(loaded["row"], whole[1])
    assert torch.equal(loaded["image"], image)


def test_the_bytes_are_a_copy_of_the_moment() -> None:
    weight = torch.zeros(3)
    data = to_bytes({"w": weight})
    weight.fill_(1)
    assert from_bytes(data)["w"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_every_type_comes_back_as_it_was(dtype: torch.dtype) -> None:
    value = torch.tensor([0, 1, 1]).to(dtype)
    assert torch.equal(from_bytes(to_bytes({"v": value, "scalar": value[1]}))["v"], value)


def test_empty_tensors_of_one_kind_are_not_taken_for_tied() -> None:
    assert set(from_bytes(to_bytes({"a": torch.empty(0), "b": torch.empty(0)}))) == {"a", "b"}


def test_what_cannot_be_stored_without_pickle_is_told_by_name() -> None:
    with pytest.raises(FlodlError, match="extra is a dict; only dense tensors"):
        to_bytes({"extra": {"a": 1}})
    with pytest.raises(FlodlError, match=r"s is a torch.sparse_coo tensor"):
        to_bytes({"s": torch.eye(2).to_sparse()})


@pytest.mark.parametrize("cut", [0, 7, 40])
def test_a_damaged_file_is_told_as_such(cut: int) -> None:
    data = to_bytes({"w": torch.ones(4)})
    with pytest.raises(FlodlError, match="not a whole safetensors file"):
        from_bytes(data[:cut])
