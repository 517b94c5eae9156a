"""Averaging parameters (cpu_cadence) against one process that runs the ranks one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from flodl.decide.messages import AveragingDone, Range, WindowDone
from flodl.decide.shares import mass, shares
from flodl.engine.data import Feed
from tests.engine import rig

QUOTAS = (3, 1)
BATCH = 8
ROUNDS = 20


def data(samples: int = 4 * BATCH * ROUNDS) -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(samples, 6, generator=generator)
    return torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())


def net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def dealt(number: int, rank: int) -> list[tuple[int, int, int]]:
    """Positions of one round: rank 0's three batches, then rank 1's one."""
    start = number * sum(QUOTAS) * BATCH + (0 if rank == 0 else QUOTAS[0] * BATCH)
    return [(0, start, start + QUOTAS[rank] * BATCH)]


def live(gamma: float, store: Path) -> list[Any]:
    masses = tuple(mass(quota * BATCH, gamma) for quota in QUOTAS)

    def work(rank: int) -> Any:
        script: list[Any] = [rig.form((0, 1))]
        for number in range(ROUNDS):
            script += [rig.window(number + 1, QUOTAS[rank], dealt(number, rank)), rig.After(WindowDone, number + 1)]
            script += [rig.average(number + 1, masses)]
        link = rig.ScriptedLink([*script, rig.finish()], store)
        model = net(seed=rank)  # different seeds at build: the common start makes them one
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        rig.make_loop(
            rank, link, rule="parameters", model=model, optimizer=optimizer, step=loss_of, data=data(), batch_size=BATCH
        ).run()
        return rig.values(model), [event.divergence for event in link.told(AveragingDone)], len(link.told(WindowDone))

    return rig.run_ranks(2, work)


def oracle(gamma: float) -> tuple[dict[str, Any], list[float]]:
    """The same in one process, one rank after the other."""
    from flodl.engine.seeding import seed_batch

    weights = shares([mass(quota * BATCH, gamma) for quota in QUOTAS])
    models = [net(seed=0), net(seed=0)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    divergences = []
    for number in range(ROUNDS):
        for rank, model in enumerate(models):
            feed = Feed(data(), batch_size=BATCH, seed=0, num_positions=len(data()), device=rig.CPU)
            feed.restate([Range(*piece) for piece in dealt(number, rank)])
            while (batch := feed.next()) is not None:
                seed_batch(0, batch.epoch, batch.first_position, rig.CPU)
                loss_of(model, batch.inputs).backward()
                optimizers[rank].step()
                optimizers[rank].zero_grad()
        before = [torch.cat([p.detach().double().reshape(-1) for p in m.parameters()]) for m in models]
        with torch.no_grad():
            for mine in zip(*(m.parameters() for m in models), strict=True):
                mean = sum(w * p.double() for w, p in zip(weights, mine, strict=True)).float()
                for parameter in mine:
                    parameter.copy_(mean)
        after = torch.cat([p.detach().double().reshape(-1) for p in models[0].parameters()])
        divergences.append(max(float((b - after).norm() / after.norm()) for b in before))
    return rig.values(models[0]), divergences


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_twenty_rounds_with_unequal_quotas_equal_the_single_process_oracle(gamma: float, tmp_path: Path) -> None:
    answers = live(gamma, tmp_path / "store")
    wanted, divergences = rig.run_ranks(1, lambda rank: oracle(gamma))[0]
    for got, _, windows in answers:
        assert windows == ROUNDS
        for name, value in wanted.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-6, err_msg=name)
    told = [max(pair) for pair in zip(answers[0][1], answers[1][1], strict=True)]
    np.testing.assert_allclose(told, divergences, rtol=1e-4)


def test_a_rank_alone_trains_what_a_plain_loop_does_to_the_last_bit(tmp_path: Path) -> None:
    def parts() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def alone(rank: int) -> Any:
        rounds = [rig.window(n + 1, 3, [(0, n * 3 * BATCH, (n + 1) * 3 * BATCH)], alone=True) for n in range(ROUNDS)]
        link = rig.ScriptedLink([rig.form((0,)), *rounds, rig.finish()], tmp_path / "store")
        model, optimizer = parts()
        rig.make_loop(
            rank, link, rule="parameters", model=model, optimizer=optimizer, step=loss_of, data=data(), batch_size=BATCH
        ).run()
        assert [report.divergence for report in link.told(WindowDone)] == [0.0] * ROUNDS
        return rig.values(model)

    def plain(_: int) -> Any:
        model, optimizer = parts()
        feed = Feed(data(), batch_size=BATCH, seed=0, num_positions=len(data()), device=rig.CPU)
        feed.restate([Range(0, 0, ROUNDS * 3 * BATCH)])
        while (batch := feed.next()) is not None:
            loss_of(model, batch.inputs).backward()
            optimizer.step()
            optimizer.zero_grad()
        return rig.values(model)

    (got,), (wanted,) = rig.run_ranks(1, alone), rig.run_ranks(1, plain)
    for name, value in wanted.items():
        assert np.array_equal(got[name], value), name
