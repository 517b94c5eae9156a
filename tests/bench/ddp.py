"""torch's DistributedDataParallel on the same unequal ranks: the yardstick beside which flodl's rates are stated.

The pace is flodl's rehearsal pace: a step that takes t alone gets a sleep of (1/speed - 1) x t. DDP averages inside
backward, so the sleep stands before backward, where it delays the all-reduce as a slower card would.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

__all__ = ["samples_per_second"]


Batch = tuple[torch.Tensor, torch.Tensor]


def samples_per_second(model: Any, batch: Batch, step: Any, *, speeds: tuple[float, ...], steps: int) -> float:
    """Samples per second of the whole world. model: a factory without arguments; batch: inputs and class numbers; step:
    (model, batch) -> loss."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seconds"
        mp.spawn(_rank, args=((model, step), batch, speeds, steps, f"{folder}/store", str(out)), nprocs=len(speeds))
        return steps * len(speeds) * len(batch[0]) / float(out.read_text())


def _rank(rank: int, job: Any, batch: Batch, speeds: tuple[float, ...], steps: int, store: str, out: str) -> None:
    factory, step = job
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(store, len(speeds)), rank=rank, world_size=len(speeds))
    torch.manual_seed(0)
    model = DistributedDataParallel(factory())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    pause = (1 / speeds[rank] - 1) * _compute_seconds(model, optimizer, step, batch)
    dist.barrier()
    began = time.perf_counter()
    for _ in range(steps):
        _step(model, optimizer, step, batch, pause)
    dist.barrier()
    if rank == 0:
        Path(out).write_text(str(time.perf_counter() - began))
    dist.destroy_process_group()


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, step: Any, batch: Batch, pause: float) -> None:
    optimizer.zero_grad()
    loss = step(model, batch)
    time.sleep(pause)
    loss.backward()
    optimizer.step()


def _compute_seconds(
    model: DistributedDataParallel, optimizer: torch.optim.Optimizer, step: Any, batch: Batch
) -> float:
    """Median time of a step that waits for nobody."""
    seconds = []
    with model.no_sync():
        for _ in range(15):
            began = time.perf_counter()
            _step(model, optimizer, step, batch, 0.0)
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[5:])
