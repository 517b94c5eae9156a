"""A flodl job trained by torch's DistributedDataParallel on the same unequal ranks, epoch for epoch.

Model, data, step, optimizer and schedule are built from a run's spec.json; every rank gets whole batches of the job's
size, so a step is ranks x batch_size samples, and the learning rate is multiplied by the number of ranks. The pace is
that of `tests.bench.ddp`: a step that takes t alone gets a sleep of (1/speed - 1) x t before its backward pass. The
clock stands still while rank 0 evaluates.
"""

from __future__ import annotations

import copy
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from flodl.engine.build import Built, build
from flodl.engine.evaluate import Scope, evaluate
from flodl.engine.reading import batch_of
from flodl.engine.schedule import TorchSchedule
from flodl.engine.surroundings import Surroundings
from flodl.spec.codec import load_spec
from flodl.spec.job import JobSpec
from tests.bench.section import DdpEpoch, DdpRun

__all__ = ["train"]

CPU = torch.device("cpu")
WARM_STEPS, TIMED_STEPS = 5, 10


def train(spec: Path, speeds: tuple[float, ...]) -> DdpRun:
    """Train the job of a spec.json, one process per speed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.json"
        mp.spawn(_rank, args=(spec, speeds, f"{folder}/store", out), nprocs=len(speeds))
        return msgspec.json.decode(out.read_bytes(), type=DdpRun)


def _rank(rank: int, spec: Path, speeds: tuple[float, ...], store: str, out: Path) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(store, len(speeds)), rank=rank, world_size=len(speeds))
    job = load_spec(spec)
    built = build(job, Surroundings(device=CPU))
    training = _Training(job, built, rank, len(speeds))
    training.pause = (1 / speeds[rank] - 1) * training.compute_seconds()
    epochs = [training.epoch(number) for number in range(job.trainer.num_epochs)]
    if rank == 0:
        run = DdpRun(seed=job.trainer.seed, speeds=speeds, samples=training.samples, epochs=tuple(epochs))
        out.write_bytes(msgspec.json.encode(run))
    dist.barrier()
    dist.destroy_process_group()


class _Training:
    """One rank's. pause: seconds before each backward pass."""

    def __init__(self, job: JobSpec, built: Built, rank: int, world: int) -> None:
        if isinstance(built.schedule, TorchSchedule):
            raise SystemExit("a scheduler of torch is stepped by flodl alone: choose another for this comparison")
        self._job, self._built, self._schedule = job, built, built.schedule
        self._rank, self._world = rank, world
        self._model = DistributedDataParallel(built.model)
        batches = built.num_samples // built.batch_size
        self._steps = min(batches, job.trainer.limit_batches or batches) // world
        self.samples = self._steps * world * built.batch_size
        self.pause = 0.0

    def epoch(self, number: int) -> DdpEpoch:
        """Train one; the evaluation is rank 0's."""
        order = torch.randperm(self._built.num_samples, generator=torch.Generator().manual_seed(self._seed(number)))
        losses: list[float] = []
        dist.barrier()
        began = time.perf_counter()
        for step in range(self._steps):
            at = (step * self._world + self._rank) * self._built.batch_size
            batch = batch_of(self._built.train, order[at : at + self._built.batch_size], CPU)
            self._set_rate((number * self._steps + step) / (self._job.trainer.num_epochs * self._steps))
            losses.append(self._step(self._model, self._built.optimizer, batch, self.pause))
        dist.barrier()
        wall = time.perf_counter() - began
        judged = {}
        if self._rank == 0:
            judged = evaluate(self._built.model, self._built.step, self._built.eval,
                              Scope(device=CPU, batch_size=self._built.batch_size))  # fmt: skip
        return DdpEpoch(loss=statistics.fmean(losses), wall_seconds=wall, eval=judged)

    def compute_seconds(self) -> float:
        """Median time of a step that waits for nobody, on copies of model and optimizer."""
        model, optimizer = copy.deepcopy((self._built.model, self._built.optimizer))
        batch = batch_of(self._built.train, torch.arange(self._built.batch_size), CPU)
        seconds: list[float] = []
        for _ in range(WARM_STEPS + TIMED_STEPS):
            began = time.perf_counter()
            self._step(model, optimizer, batch, 0.0)
            seconds.append(time.perf_counter() - began)
        return statistics.median(seconds[WARM_STEPS:])

    def _step(self, model: Any, optimizer: torch.optim.Optimizer, batch: Any, pause: float) -> float:
        optimizer.zero_grad()
        loss = self._built.step(model, batch)
        time.sleep(pause)
        loss.backward()
        if self._job.trainer.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), self._job.trainer.max_grad_norm)
        optimizer.step()
        return float(loss.detach())

    def _set_rate(self, progress: float) -> None:
        for group in self._built.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * self._world * self._schedule(progress)

    def _seed(self, epoch: int) -> int:
        return self._job.trainer.seed * 10_000 + epoch
