"""Averaging gradients: torch's own DDP, and one process on the concatenated batches, as the yardsticks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from flodl.decide.messages import Range, Round, RunWindow, WindowDone
from flodl.engine.data import Feed
from tests.engine import rig
from tests.engine.pair import Pair

BATCH = 8
STEPS = 50
GRANT = 10
KEPT: list[Any] = []
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
}


class Odd(nn.Module):
    """Convolution, tied and frozen weights, an integer buffer, and a parameter that may lie strided in memory."""

    steps: Tensor

    def __init__(self, seed: int, dtype: torch.dtype, *, channels_last: bool = False, strided: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, 4, 3, padding=1, dtype=dtype)
        self.frozen = nn.Linear(16, 16, dtype=dtype).requires_grad_(False)
        self.first = nn.Linear(16, 16, bias=False, dtype=dtype)
        self.again = nn.Linear(16, 16, bias=False, dtype=dtype)
        self.again.weight = self.first.weight
        scale = torch.randn(16, dtype=dtype)
        self.scale = nn.Parameter(torch.stack([scale, scale], dim=1)[:, 0] if strided else scale)
        assert self.scale.is_contiguous() != strided
        self.register_buffer("steps", torch.tensor([seed, 7]))
        if channels_last:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.conv(images).mean(1).flatten(1)
        return torch.tanh(self.again(self.first(self.frozen(hidden)))) * self.scale


def data(samples: int, dtype: torch.dtype) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, 3, 4, 4, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs.to(dtype), torch.randint(0, 16, (samples,), generator=generator))


def loss_of(model: nn.Module, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def grants(quotas: tuple[int, ...], rank: int, rounds: int) -> list[RunWindow]:
    """Grants of ten rounds; each round deals the ranks' batches one after another."""
    width, offset = sum(quotas) * BATCH, sum(quotas[:rank]) * BATCH
    orders = []
    for first in range(0, rounds, GRANT):
        numbers = range(first, first + GRANT)
        ranges = tuple(Range(0, n * width + offset, n * width + offset + quotas[rank] * BATCH) for n in numbers)
        planned = tuple(Round(n + 1, quotas[rank], n * width, width) for n in numbers)
        orders.append(
            RunWindow(to=(rank,), generation=1, rounds=planned, ranges=ranges, alone=True, epoch=0, reason="test")
        )
    return orders


def live(
    quotas: tuple[int, ...], rounds: int, dtype: torch.dtype, optim: str, store: Path, **options: Any
) -> list[Any]:
    def work(rank: int) -> Any:
        script = [rig.form(range(len(quotas))), *grants(quotas, rank, rounds), rig.finish()]
        link = rig.ScriptedLink(script, store)
        model = Odd(rank, dtype, channels_last=rank == 1, strided=rank == 0)
        rig.make_loop(
            rank,
            link,
            rule="gradients",
            model=model,
            optimizer=OPTIMIZERS[optim]([p for p in model.parameters() if p.requires_grad]),
            step=loss_of,
            data=data(sum(quotas) * BATCH * rounds, dtype),
            batch_size=BATCH,
            **options,
        ).run()
        assert sum(event.batches for event in link.told(WindowDone)) == rounds * quotas[rank]
        assert len({event.digest for event in link.sent if hasattr(event, "digest")}) == 1
        return rig.values(model)

    return rig.run_ranks(len(quotas), work)


def with_ddp(dtype: torch.dtype, optim: str, store: Path, clip: float | None) -> Any:
    def work(rank: int) -> Any:
        dist.init_process_group("gloo", store=dist.FileStore(str(store), 2), rank=rank, world_size=2)
        model = Odd(0, dtype)
        ddp = DistributedDataParallel(model)
        optimizer = OPTIMIZERS[optim]([p for p in model.parameters() if p.requires_grad])
        feed = Feed(
            data(2 * BATCH * STEPS, dtype), batch_size=BATCH, seed=0, num_positions=2 * BATCH * STEPS, device=rig.CPU
        )
        feed.restate([piece for order in grants((1, 1), rank, STEPS) for piece in order.ranges])
        while (batch := feed.next()) is not None:
            loss_of(ddp, batch.inputs).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
        KEPT.append(ddp)  # its destructor may hang once the other rank is gone
        return rig.values(model)

    return rig.run_ranks(2, work)[0]


def on_one(quotas: tuple[int, ...], rounds: int, dtype: torch.dtype, optim: str) -> Any:
    """One process, one step per round on all its batches concatenated."""
    model = Odd(0, dtype)
    optimizer = OPTIMIZERS[optim]([p for p in model.parameters() if p.requires_grad])
    samples = sum(quotas) * BATCH * rounds
    feed = Feed(data(samples, dtype), batch_size=BATCH * sum(quotas), seed=0, num_positions=samples, device=rig.CPU)
    feed.restate([Range(0, 0, samples)])
    while (batch := feed.next()) is not None:
        loss_of(model, batch.inputs).backward()
        optimizer.step()
        optimizer.zero_grad()
    return rig.values(model)


def compare(answers: list[Any], wanted: Any, dtype: torch.dtype) -> float:
    """Every rank's values equal the yardstick's; returns the largest difference."""
    largest = 0.0
    for got in answers:
        for name, value in wanted.items():
            largest = max(largest, float(np.abs(got[name] - value).max()))
            np.testing.assert_allclose(got[name], value, rtol=0, atol=TOLERANCE[dtype], err_msg=name)
    return largest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("optim", ["sgd", "adamw"])
def test_two_equal_ranks_are_ddp(optim: str, dtype: torch.dtype, tmp_path: Path) -> None:
    answers = live((1, 1), STEPS, dtype, optim, tmp_path / "ours")
    compare(answers, with_ddp(dtype, optim, tmp_path / "theirs", None), dtype)


def test_the_averaged_gradient_is_clipped_as_with_ddp(tmp_path: Path) -> None:
    answers = live((1, 1), STEPS, torch.float32, "sgd", tmp_path / "ours", max_grad_norm=0.05)
    compare(answers, with_ddp(torch.float32, "sgd", tmp_path / "theirs", 0.05), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("optim", ["sgd", "adamw"])
@pytest.mark.parametrize("quotas", [(3, 1), (0, 2)], ids=str)
def test_uneven_counts_are_one_process_on_the_concatenated_batches(
    quotas: tuple[int, int], optim: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    answers = live(quotas, 20, dtype, optim, tmp_path / "ours")
    compare(answers, rig.run_ranks(1, lambda rank: on_one(quotas, 20, dtype, optim))[0], dtype)


def test_two_parameters_of_one_memory_are_averaged_once_and_stay_alike() -> None:
    def shared() -> nn.Module:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
        model[1].weight.data = model[0].weight.data
        return model

    pair = Pair(lambda p: torch.optim.SGD(p, lr=0.1), model=shared)
    for number in range(3):
        pair.batch(number)
        pair.average()
    first, second = (model[0].weight for model in pair.models)
    assert torch.equal(first, second)


class Differing(torch.optim.Optimizer):
    """Keeps the last gradient itself, as some do who look at its change."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})
        self.changes: list[float] = []

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if "before" in state:
                self.changes.append(float((state["before"] - parameter.grad).abs().sum()))
            state["before"] = parameter.grad
            parameter.sub_(0.1 * parameter.grad)


def test_an_optimizer_may_keep_the_gradient_that_it_was_given() -> None:
    pair = Pair(Differing, model=lambda: nn.Linear(4, 1, bias=False))
    for number in range(3):
        pair.batch(number)
        pair.average()
    for rule in pair.rules:
        assert isinstance(rule.optimizer, Differing)
        assert len(rule.optimizer.changes) == 2
        assert min(rule.optimizer.changes) > 0.0
