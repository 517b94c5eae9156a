"""Packing: every layout a model may have goes through flat vectors unharmed, and what shares memory goes once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from flodl.engine.averaging.flat import Flat, first_nonfinite
from flodl.engine.averaging.layout import fingerprint, model_layout, num_parameters
from flodl.errors import NotReady


class Tied(nn.Module):
    """Two names for one weight, another Parameter on the same memory, and a view that lies apart in it."""

    def __init__(self) -> None:
        super().__init__()
        memory = torch.arange(12.0)
        self.one = nn.Parameter(memory[:8].view(2, 4))
        self.same = self.one
        self.twin = nn.Parameter(memory[:8].view(2, 4))
        self.turned = nn.Parameter(memory[:8].view(2, 4).t())
        self.apart = nn.Parameter(memory[8:])


def mixed() -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        nn.BatchNorm2d(3),
        nn.Linear(4, 2, dtype=torch.float64),
        nn.Linear(2, 2, dtype=torch.bfloat16),
        nn.Linear(2, 2).requires_grad_(False),
    )
    model.register_parameter("strided", nn.Parameter(torch.randn(6, 4)[::2, ::2]))
    model.register_parameter("waves", nn.Parameter(torch.randn(3, dtype=torch.complex64)))
    return model


def test_what_shares_memory_is_packed_once() -> None:
    layout = model_layout(Tied())
    assert [slot.name for slot in layout.parameter_slots] == ["one", "apart"]
    assert num_parameters(Tied()) == 12


def test_a_partial_overlap_is_refused_by_name() -> None:
    model = nn.Module()
    memory = torch.zeros(6)
    model.register_parameter("head", nn.Parameter(memory[:4]))
    model.register_parameter("tail", nn.Parameter(memory[2:]))
    with pytest.raises(NotReady, match="tail overlaps"):
        model_layout(model)


def test_every_layout_and_dtype_survives_a_round_trip() -> None:
    model, other = mixed(), mixed()
    source, target = Flat(model_layout(model)), Flat(model_layout(other))
    source.read()
    target.copy_(source)
    target.write()
    for (name, here), there in zip(model.named_parameters(), other.parameters(), strict=True):
        same = torch.equal(here, there)
        assert same == here.requires_grad, name  # frozen ones are left alone
    assert [vector.dtype for vector in source.vectors] == [torch.float32, torch.float64]
    assert all(vector.is_contiguous() for vector in source.vectors)
    assert model.get_parameter("strided").stride() == (8, 2)


def test_integer_buffers_stay_local_and_moments_are_paired() -> None:
    layout = model_layout(mixed())
    names = [slot.name for slot in layout.buffer_slots]
    assert names == ["1.running_mean", "1.running_var"]
    assert layout.moments == ((0, 1),)
    assert model_layout(mixed(), with_buffers=False).buffers == ()


def test_means_lie_together_and_variances_behind_them_in_the_same_order() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 3), nn.BatchNorm1d(3))
    model[1].register_buffer("running_mean", torch.zeros(3))  # without a variance: an ordinary buffer
    layout = model_layout(model)
    assert [slot.name for slot in layout.buffer_slots] == [
        *("0.running_mean", "2.running_mean", "0.running_var", "2.running_var", "1.running_mean")
    ]
    assert (layout.moments, layout.moment_sizes) == (((0, 2), (1, 3)), (5,))
    model[0].running_mean += 1.0
    model[2].running_var += 6.0
    flat = Flat(layout)
    flat.read()
    assert flat.means[0].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert flat.variances[0].tolist() == [1.0, 1.0, 7.0, 7.0, 7.0]


def test_a_snapshot_aliases_nothing() -> None:
    model = nn.Linear(3, 3)
    flat = Flat(model_layout(model))
    flat.read()
    before = flat.vectors[0].clone()
    with torch.no_grad():
        model.weight.add_(1.0)
    assert torch.equal(flat.vectors[0], before)


def test_writing_goes_into_leaves_that_require_grad() -> None:
    model = nn.Linear(3, 3)
    flat = Flat(model_layout(model))
    model.weight.grad = torch.ones(3, 3)
    flat.read()
    flat.write()
    flat.write()
    assert model.weight.requires_grad
    assert model.weight.is_leaf


def test_the_tail_rides_in_the_most_precise_vector() -> None:
    flat = Flat(model_layout(mixed()), tail=3)
    flat.tail.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert flat.vectors[1][-3:].tolist() == [1.0, 2.0, 3.0]
    assert flat.tail.dtype == torch.float64


def test_the_fingerprint_tells_names_shapes_dtypes_ties_and_freezing_but_not_strides() -> None:
    plain = nn.Conv2d(2, 3, 3)
    turned = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert fingerprint(plain) == fingerprint(turned)
    others = [
        nn.Conv2d(3, 2, 3),
        nn.Conv2d(2, 3, 3, dtype=torch.float64),
        nn.Conv2d(2, 3, 3).requires_grad_(False),
        nn.Sequential(nn.Conv2d(2, 3, 3)),
    ]
    pair, tied = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    tied[1].weight = tied[0].weight  # type: ignore[assignment]
    prints = {fingerprint(model) for model in (plain, *others, pair, tied)}
    assert len(prints) == 7


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_the_first_tensor_that_is_not_finite_is_named(value: float) -> None:
    model = mixed()
    flat = Flat(model_layout(model))
    flat.read()
    assert first_nonfinite(flat) == ""
    with torch.no_grad():
        model[2].weight[1, 1] = value  # type: ignore[index]
        model[3].bias[0] = value  # type: ignore[index]
    flat.read()
    assert first_nonfinite(flat) == "2.weight"


def test_a_large_but_finite_vector_is_finite() -> None:
    model = nn.Linear(100, 100)
    nn.init.constant_(model.weight, 3e38)
    flat = Flat(model_layout(model))
    flat.read()
    assert first_nonfinite(flat) == ""
