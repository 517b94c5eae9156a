"""Ranks with batch sizes and slices of their own are one process on the batches put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import TensorDataset

from flodl.decide.messages import Range, Round, RunWindow, WindowDone
from flodl.engine.data import Feed
from flodl.models.mlp import MLP
from tests.engine import rig

SIZES = (6, 12)
WHOLE = sum(SIZES)
ROUNDS = 30


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(WHOLE * ROUNDS, 1, 8, 8, generator=generator)
    return TensorDataset(inputs, torch.randint(0, 10, (WHOLE * ROUNDS,), generator=generator))


def loss_of(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def parts() -> tuple[MLP, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = MLP(in_shape=(1, 8, 8), num_classes=10)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def grant(rank: int) -> RunWindow:
    """Rounds of one batch; the ranks' batches lie one after another."""
    begin = sum(SIZES[:rank])
    ranges = tuple(Range(0, n * WHOLE + begin, n * WHOLE + begin + SIZES[rank]) for n in range(ROUNDS))
    rounds = tuple(Round(n + 1, 1, n * WHOLE, WHOLE) for n in range(ROUNDS))
    return RunWindow(to=(rank,), generation=1, rounds=rounds, ranges=ranges, alone=True, epoch=0, reason="test")


def together(store: Path, **options: Any) -> list[Any]:
    def work(rank: int) -> Any:
        link = rig.ScriptedLink([rig.form((0, 1)), grant(rank), rig.finish()], store)
        model, optimizer = parts()
        rig.make_loop(
            rank,
            link,
            rule="gradients",
            model=model,
            optimizer=optimizer,
            step=loss_of,
            data=data(),
            batch_size=SIZES[rank],
            **options,
        ).run()
        (report,) = link.told(WindowDone)
        assert report.samples == ROUNDS * SIZES[rank]
        return rig.values(model)

    return rig.run_ranks(2, work)


def alone() -> Any:
    model, optimizer = parts()
    samples = WHOLE * ROUNDS
    feed = Feed(data(), batch_size=WHOLE, seed=0, num_positions=samples, device=rig.CPU)
    feed.restate([Range(0, 0, samples)])
    while (batch := feed.next()) is not None:
        loss_of(model, batch.inputs).backward()
        optimizer.step()
        optimizer.zero_grad()
    return rig.values(model)


@pytest.mark.parametrize(("options", "tolerance"), [({}, 1e-6), ({"slice_size": 3}, 1e-5)], ids=["whole", "sliced"])
def test_batches_of_6_and_12_are_one_process_of_18(options: dict[str, int], tolerance: float, tmp_path: Path) -> None:
    wanted = rig.run_ranks(1, lambda rank: alone())[0]
    for got in together(tmp_path / "store", **options):
        for name, value in wanted.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=tolerance, err_msg=name)
