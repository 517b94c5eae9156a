"""The engine on GPUs: what the CPU computes, over NCCL and over gloo, and a group whose member dies in a collective."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from flodl.decide.messages import AveragingDone, GroupFormed, Range, Round, RunWindow, WindowDone
from flodl.engine.groups import gloo_group, nccl_group
from flodl.probe.gpus import count_gpus
from tests.engine import rig

GPUS = count_gpus()  # from the driver: a process that has touched CUDA cannot fork ranks that use it
BATCH, ROUNDS, QUOTAS = 8, 6, (3, 1)
SAMPLES = BATCH * ROUNDS * sum(QUOTAS)


def net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2, bias=False)
    ).double()


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, 3, 4, 4, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs, (inputs.sum((1, 2, 3)) > 0).long())


def compare(answers: list[Any], wanted: dict[str, Any]) -> None:
    """Integer buffers are each rank's own."""
    for got in answers:
        for name, value in wanted.items():
            if name != "1.num_batches_tracked":
                np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-9, err_msg=name)


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def piece(number: int, rank: int) -> tuple[int, int, int]:
    """Positions that a rank runs in round `number` (from 0)."""
    start = (number * sum(QUOTAS) + sum(QUOTAS[:rank])) * BATCH
    return 0, start, start + QUOTAS[rank] * BATCH


def script(rank: int, rule: str) -> list[Any]:
    """A grant of all rounds for gradients, else windows with nothing ahead."""
    if rule == "gradients":
        rounds = tuple(Round(n + 1, QUOTAS[rank], 0, 1) for n in range(ROUNDS))
        ranges = tuple(Range(*piece(n, rank)) for n in range(ROUNDS))
        grant = RunWindow(to=(), generation=1, rounds=rounds, ranges=ranges, alone=True, epoch=0, reason="test")
        return [rig.form((0, 1)), grant, rig.After(WindowDone, 1), rig.finish()]
    orders: list[Any] = [rig.form((0, 1))]
    for number in range(ROUNDS):
        orders += [rig.window(number + 1, QUOTAS[rank], [piece(number, rank)]), rig.After(WindowDone, number + 1)]
        orders += [rig.average(number + 1, QUOTAS), rig.After(AveragingDone, number + 1)]
    return [*orders, rig.finish("eval", "save")]


def train(rule: str, store: Path, devices: tuple[str, str], backend: str) -> list[Any]:
    def work(rank: int) -> Any:
        device = torch.device(devices[rank])
        if device.type == "cuda":
            torch.cuda.set_device(device)
        link = rig.ScriptedLink(script(rank, rule), store)
        model = net(rank).to(device)
        rig.make_loop(
            rank,
            link,
            rule=rule,
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            step=loss_of,
            data=data(),
            batch_size=BATCH,
            device=device,
            flat_device=device if backend == "nccl" else rig.CPU,
            group=nccl_group(60.0) if backend == "nccl" else gloo_group("127.0.0.1", 60.0),
            held=data(),
        ).run()
        assert all(event.compute_ms > 0 for event in link.told(WindowDone))
        assert all(result.ok for result in link.sent[-1].callbacks), link.sent[-1].callbacks
        return rig.values(model)

    return rig.run_ranks(2, work, timeout=120.0)


@pytest.mark.parametrize("rule", ["parameters", "gradients", "elastic"])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_gpus_compute_what_cpus_compute(backend: str, rule: str, tmp_path: Path) -> None:
    if (2 if backend == "nccl" else 1) > GPUS:
        pytest.skip(f"needs {'two GPUs' if backend == 'nccl' else 'a GPU'}: {GPUS} here")
    devices = ("cuda:0", f"cuda:{min(1, GPUS - 1)}")
    wanted = train(rule, tmp_path / "cpu", ("cpu", "cpu"), "gloo")[0]
    compare(train(rule, tmp_path / "gpu", devices, backend), wanted)


@pytest.mark.skipif(GPUS < 1, reason="needs a GPU")
def test_a_gpu_and_a_cpu_train_one_model(tmp_path: Path) -> None:
    wanted = train("parameters", tmp_path / "cpu", ("cpu", "cpu"), "gloo")[0]
    compare(train("parameters", tmp_path / "both", ("cuda:0", "cpu"), "gloo"), wanted)


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_a_survivor_leaves_a_hung_nccl_collective_behind_and_repeats_the_round(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        torch.cuda.set_device(rank)
        device = torch.device("cuda", rank)
        orders = [rig.form((0, 1)), rig.window(1, QUOTAS[rank], [piece(0, rank)]), rig.After(WindowDone, 1)]
        if rank == 1:
            orders.append(lambda link: os.kill(os.getpid(), signal.SIGKILL))
        began: list[float] = []

        def announced(link: rig.ScriptedLink) -> bool:
            began.append(time.monotonic())
            return began[-1] - began[0] > 1.0

        orders += [rig.average(1, QUOTAS), announced, rig.form((0,), generation=2, source=None)]
        orders += [rig.After(GroupFormed, 2), rig.average(1, (3.0,), generation=2), rig.finish()]
        link = rig.ScriptedLink(orders, tmp_path / "store")
        model = net(0).to(device)
        rig.make_loop(
            rank,
            link,
            rule="parameters",
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            step=loss_of,
            data=data(),
            batch_size=BATCH,
            device=device,
            flat_device=device,
            group=nccl_group(60.0),
        ).run()
        finite = all(bool(np.isfinite(value).all()) for value in rig.values(model).values())
        return finite, [event.round for event in link.told(AveragingDone)], time.monotonic() - began[0]

    ((finite, rounds, seconds),) = rig.run_ranks(2, work, wanted=1, timeout=120.0)
    assert finite
    assert rounds == [1]
    assert seconds < 10.0
