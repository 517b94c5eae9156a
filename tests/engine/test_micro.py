"""Slices of a batch give its gradients; out of memory makes them smaller and changes nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from flodl.decide.messages import WindowDone
from flodl.engine.data import Batch
from flodl.engine.memory import is_out_of_memory
from flodl.engine.micro import Slices, cut
from flodl.engine.precision import Precision
from flodl.engine.scalars import record
from flodl.errors import FlodlError, NotReady
from flodl.models.lenet import LeNet
from flodl.models.mlp import MLP
from tests.engine import rig

MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: MLP(in_shape=(1, 8, 8), num_classes=10),
    "lenet": lambda: LeNet(in_shape=(1, 8, 8), num_classes=10),
}


def loss_of(model: nn.Module, batch: Any) -> Tensor:
    loss = functional.cross_entropy(model(batch[0]), batch[1])
    record("loss", loss.detach())
    record("largest", loss.detach(), "max")
    return loss


class Small:
    """A step on a device that holds `room` samples at a time; below that it fails `failures` times more."""

    def __init__(self, room: int, error: BaseException | None = None, failures: int = 0) -> None:
        self.room, self.failures = room, failures
        self.error = error or MemoryError("no room")
        self.sizes: list[int] = []

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        self.sizes.append(len(batch[0]))
        loss = loss_of(model, batch)
        if len(batch[0]) > self.room:
            raise self.error
        if self.failures:
            self.failures -= 1
            raise self.error
        return loss


def batch_of(samples: int) -> Batch:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(samples, 1, 8, 8, generator=generator)
    return Batch((inputs, torch.randint(0, 10, (samples,), generator=generator)), 0, 0, samples)


def slices(step: Any = loss_of, size: int | None = None, model: nn.Module | None = None) -> tuple[Slices, list[str]]:
    torch.manual_seed(0)
    model = model or MODELS["mlp"]()
    said: list[str] = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = Slices(model=model, step=step, optimizer=optimizer, precision=Precision(), device=rig.CPU, size=size)
    made.say = said.append
    return made, said


def gradients(made: Slices) -> list[Tensor]:
    return [parameter.grad for parameter in made.model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("samples", [64, 61])
@pytest.mark.parametrize("size", [16, 7, 1])
@pytest.mark.parametrize("name", MODELS)
def test_slices_add_up_to_the_gradients_and_figures_of_the_whole_batch(name: str, size: int, samples: int) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    whole, _ = slices(model=model)
    wanted = whole.gradients(batch_of(samples))
    grads = [grad.clone() for grad in gradients(whole)]
    model.zero_grad()
    sliced, _ = slices(size=size, model=model)
    got = sliced.gradients(batch_of(samples))
    for mine, theirs in zip(gradients(sliced), grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)
    torch.testing.assert_close(got.loss, wanted.loss)
    means = [found.recorded.scalars()["loss"] for found in (got, wanted)]
    assert means[0].result == pytest.approx(means[1].result)
    assert means[0].weight == samples
    assert got.recorded.scalars()["largest"].value >= means[0].result


def test_slices_are_as_few_and_as_alike_as_can_be() -> None:
    inputs = (torch.arange(10), {"names": tuple("abcdefghij"), "scale": 2.0, "shared": torch.tensor(5.0), "no": None})
    parts = list(cut(inputs, 10, 4))
    assert [samples for _, samples in parts] == [3, 3, 4]
    assert torch.cat([part[0] for part, _ in parts]).tolist() == list(range(10))
    assert "".join("".join(part[1]["names"]) for part, _ in parts) == "abcdefghij"
    assert {(part[1]["scale"], float(part[1]["shared"]), part[1]["no"]) for part, _ in parts} == {(2.0, 5.0, None)}
    assert list(cut(inputs, 10, None)) == [(inputs, 10)]
    assert list(cut(inputs, 10, 10)) == [(inputs, 10)]


def test_samples_of_different_sizes_lie_in_a_list_that_is_cut() -> None:
    images = tuple(torch.zeros(3, side, side) for side in (4, 5, 6, 7))
    parts = [part for part, _ in cut((images, torch.arange(4)), 4, 2)]
    assert [[len(image[0]) for image in part[0]] for part in parts] == [[4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("inputs", "words"), [(torch.zeros(7, 10), r"shape \(7, 10\)"), ((torch.zeros(10), object()), "a object")]
)
def test_what_cannot_be_cut_is_refused_in_words(inputs: Any, words: str) -> None:
    with pytest.raises(FlodlError, match=words):
        list(cut(inputs, 10, 5))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_out_of_memory_halves_the_slice_and_does_the_batch_again(error: BaseException) -> None:
    step = Small(20, error)
    made, said = slices(step)
    made.gradients(batch_of(64))
    whole, _ = slices(model=made.model)
    got = [grad.clone() for grad in gradients(made)]
    made.model.zero_grad()
    whole.gradients(batch_of(64))
    for mine, theirs in zip(got, gradients(whole), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)
    assert step.sizes == [64, 32, 16, 16, 16, 16]
    assert made.size == 16
    assert said == [
        "out of memory with 64 samples at a time; the batch is done again in slices of 32",
        "out of memory with 32 samples at a time; the batch is done again in slices of 16",
    ]
    made.gradients(batch_of(64))
    assert len(said) == 2
    assert step.sizes[6:] == [16] * 4


def test_a_batch_that_is_done_again_has_the_same_random_numbers_and_statistics() -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10), nn.Dropout(0.5))
    failing, _ = slices(Small(64, failures=1), model=model, size=16)
    plain, _ = slices(model=model, size=8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = failing.gradients(batch_of(64))
    after = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(before)
    model.zero_grad()
    assert torch.equal(plain.gradients(batch_of(64)).loss, found.loss)
    assert all(torch.equal(value, after[name]) for name, value in model.state_dict().items())


def test_a_single_sample_that_does_not_fit_is_tried_twice_and_then_refused_with_need_and_free_memory() -> None:
    step = Small(0, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ..."))
    made, said = slices(step)
    with pytest.raises(NotReady, match=r"this rank: one sample .*CPU: needs 2.00 GiB more, [\d.]+ GiB are free"):
        made.gradients(batch_of(4))
    assert step.sizes == [4, 2, 1, 1]
    assert len(said) == 3


def test_a_single_sample_that_fits_the_second_time_goes_on() -> None:
    step = Small(1, failures=1)
    made, _ = slices(step)
    made.gradients(batch_of(2))
    assert step.sizes == [2, 1, 1, 1]


def test_other_errors_are_the_users() -> None:
    made, said = slices(Small(0, RuntimeError("mat1 and mat2 shapes cannot be multiplied")))
    with pytest.raises(RuntimeError, match="mat1"):
        made.gradients(batch_of(4))
    assert said == []
    assert not is_out_of_memory(KeyError("memory"))


@pytest.mark.own_process
@pytest.mark.parametrize("rule", ["parameters", "gradients"])
def test_a_window_counts_a_redone_batch_once_and_tells_what_happened(rule: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = MODELS["mlp"]()
    data = TensorDataset(torch.randn(40, 1, 8, 8), torch.randint(0, 10, (40,)))
    orders = [rig.form((0,)), rig.window(1, 4, [(0, 0, 40)]), rig.After(WindowDone, 1), rig.average(1, [1])]
    link = rig.ScriptedLink([*orders, rig.finish()], tmp_path / "store")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig.make_loop(0, link, rule=rule, model=model, optimizer=optimizer, step=Small(5), data=data, batch_size=10).run()
    (report,) = link.told(WindowDone)
    assert (report.batches, report.samples, report.skipped_samples) == (4, 40, 0)
    assert report.notes == ("out of memory with 10 samples at a time; the batch is done again in slices of 5",)
    assert report.scalars["loss"].weight == 40
