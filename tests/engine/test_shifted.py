"""Normalisation layers on ranks whose data differ: the consensus evaluates like one process that saw both."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from flodl.decide.messages import WindowDone
from flodl.decide.shares import mass
from tests.engine import rig

BATCH, QUOTA, ROUNDS = 32, 30, 10
FEATURES, CLASSES = 16, 4
SHIFT = 1.0  # standard deviations, up on one rank and down on the other
PER_RANK = BATCH * QUOTA * ROUNDS


class Trained(NamedTuple):
    """variance: the first layer's, mean over its features (a single one is as noisy as a batch)."""

    accuracy: float
    variance: float


def samples(count: int, shift: float, seed: int) -> tuple[Tensor, Tensor]:
    """Clusters around centers that all ranks share, every feature moved by `shift`."""
    centers = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1)) * 1.8
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return centers[labels] + torch.randn(count, FEATURES, generator=generator) + shift, labels


def own(rank: int) -> torch.utils.data.TensorDataset:
    """What one rank trains on."""
    return torch.utils.data.TensorDataset(*samples(PER_RANK, (SHIFT, -SHIFT)[rank], seed=2 + rank))


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES)
    )


def loss_of(model: nn.Module, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3)


def judged(model: Any) -> Trained:
    model.eval()
    parts = [samples(20_000, shift, seed) for seed, shift in ((4, SHIFT), (5, -SHIFT))]
    with torch.no_grad():
        right = sum(int((model(inputs).argmax(1) == labels).sum()) for inputs, labels in parts)
    return Trained(right / 40_000, float(model[0].running_var.mean()))


def on_two_ranks(bn_buffers: str, store: Path) -> Trained:
    """What rank 0 holds after the last averaging."""

    def work(rank: int) -> Any:
        script: list[Any] = [rig.form((0, 1))]
        for number in range(ROUNDS):
            start = number * QUOTA * BATCH
            script += [rig.window(number + 1, QUOTA, [(0, start, start + QUOTA * BATCH)])]
            script += [rig.After(WindowDone, number + 1), rig.average(number + 1, (mass(QUOTA * BATCH, 1.0),) * 2)]
        model = net().train()
        rig.make_loop(
            rank, rig.ScriptedLink([*script, rig.finish()], store), rule="parameters", model=model,
            optimizer=optimizer_of(model), step=loss_of, data=own(rank), batch_size=BATCH, bn_buffers=bn_buffers,
        ).run()  # fmt: skip
        return judged(model)

    return rig.run_ranks(2, work)[0]


def in_one_process() -> Trained:
    """Each step on a batch of both."""
    model = net().train()
    optimizer = optimizer_of(model)
    parts = [own(rank).tensors for rank in range(2)]
    for start in range(0, PER_RANK, BATCH):
        batch = [torch.cat([part[i][start : start + BATCH] for part in parts]) for i in range(2)]
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    return judged(model)


@pytest.fixture(scope="module")
def one() -> Trained:
    return rig.run_ranks(1, lambda rank: in_one_process())[0]


def test_pooled_statistics_are_those_of_one_process_that_saw_both(one: Trained, tmp_path: Path) -> None:
    pooled = on_two_ranks("pooled", tmp_path / "store")
    assert abs(pooled.accuracy - one.accuracy) <= 0.002
    assert pooled.variance == pytest.approx(one.variance, rel=0.05)


def test_statistics_that_are_not_pooled_are_not(one: Trained, tmp_path: Path) -> None:
    local, mean = (on_two_ranks(how, tmp_path / how) for how in ("local", "mean"))
    assert local.accuracy < one.accuracy - 0.005
    assert mean.variance < one.variance - 0.5 * SHIFT**2
