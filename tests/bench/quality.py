"""What each mode makes of the same epochs: `python -m tests.bench.quality digits [lenet] [--arms ...] [--seeds 3]`.

Every arm trains the same job on the same samples for the same epochs: solo (one rank), flodl's modes on a rehearsal
cluster, and torch DDP with the same batch per rank and its learning rate scaled by the number of ranks. Printed are the
final accuracy and test loss of every seed, their means, and how they compare with solo's and with DDP's. Nothing here
depends on time but the order of rounds: a busy machine only takes longer, and with `--at-once 4` four runs share it,
each with a quarter of its cores (a rank alone takes as many threads as it sees cores).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from statistics import mean
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from flodl.engine.build import build
from flodl.engine.evaluate import Scope, evaluate
from flodl.engine.reading import batch_of
from flodl.engine.schedule import LearningRate
from flodl.engine.surroundings import Surroundings
from flodl.spec.devices import named_count
from flodl.spec.job import JobSpec
from tests.conf.composing import job as composed
from tests.conf.composing import shipped
from tests.engine.live import ROOT, found_in

JOBS = {
    "digits": ["model=mlp", "dataset=digits", "trainer.num_epochs=20", "trainer.batch_size=8", "optim.lr=0.02"],
    "lenet": ["model=lenet", "dataset=fashion_mnist", "trainer.num_epochs=6", "optim.lr=0.02"],
}
ALIKE = ["eval.every_epochs=null", "checkpoint.every_epochs=null", "launch.probe=false"]
ARMS = {
    "solo": ["cluster=local", "cluster.workers=[{host: localhost, local_devices: 'cpu:1'}]"],
    "cpu_sync": ["elche=cpu_sync"],
    "cpu_cadence": ["elche=cpu_cadence"],
    "cpu_async": ["elche=cpu_async"],
    "cpu_async+easgd": ["elche=cpu_async", "elche.easgd_alpha=0.6"],
    "cpu_cadence+slowmo": ["elche=cpu_cadence", "outer=slowmo"],
    "cpu_cadence+diloco": ["elche=cpu_cadence", "outer=diloco"],
    "cpu_async+diloco": ["elche=cpu_async", "outer=diloco"],
}
DDP = "ddp"  # with scaled learning rate
COMPOSING = threading.Lock()  # Hydra composes one job at a time
Figures = dict[str, float]


def trained(cores: str, *overrides: str) -> Figures:
    """The figures of a run's last consensus. cores: its own, as a list. Ends this program where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["taskset", "-c", cores, sys.executable, "-m", "flodl", *overrides, "hydra.run.dir=run"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": found_in(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        return json.loads((Path(folder) / "run" / "result.json").read_text())["eval"]


def ddp_trained(*overrides: str) -> Figures:
    """The same job by torch's DistributedDataParallel, on as many ranks as the cluster has, on gloo."""
    with COMPOSING, shipped():
        job = composed([*overrides, "optim.lr_scale=linear"])
    ranks = sum(named_count(host.local_devices) or 0 for host in job.cluster.workers)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures"
        mp.spawn(_rank, args=(job, ranks, f"{folder}/store", str(out)), nprocs=ranks)  # pyright: ignore[reportPrivateImportUsage]
        return json.loads(out.read_text())


def _rank(rank: int, job: JobSpec, ranks: int, store: str, out: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting = dist.FileStore(store, ranks)  # pyright: ignore[reportPrivateImportUsage]
    dist.init_process_group("gloo", store=meeting, rank=rank, world_size=ranks)
    cpu = torch.device("cpu")
    built = build(job, Surroundings(device=cpu, num_ranks=ranks))
    model: Any = DistributedDataParallel(built.model)
    batch, epochs = job.trainer.batch_size, job.trainer.num_epochs
    steps = built.num_samples // (batch * ranks)
    rate = LearningRate(built.optimizer, built.schedule, steps * batch * ranks * epochs, batch * ranks)
    model.train()
    for epoch in range(epochs):
        order = torch.randperm(built.num_samples, generator=torch.Generator().manual_seed(job.trainer.seed + epoch))
        for step in range(steps):
            rate.at((epoch * steps + step) * batch * ranks)
            start = (step * ranks + rank) * batch
            built.optimizer.zero_grad()
            built.step(model, batch_of(built.train, order[start : start + batch], cpu)).backward()
            built.optimizer.step()
    if rank == 0:
        scope = Scope(device=cpu, batch_size=256)
        Path(out).write_text(json.dumps(evaluate(built.model, built.step, built.eval, scope)))
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="+", choices=list(JOBS))
    parser.add_argument("--arms", nargs="+", default=["solo", DDP, *list(ARMS)[1:]], choices=[*ARMS, DDP])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cluster", default="rehearsal", help="of all arms but solo")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an override for all of them")
    parser.add_argument("--at-once", type=int, default=1, help="runs at a time")
    asked = parser.parse_args()
    places = _places(asked.at_once)
    with ThreadPoolExecutor(asked.at_once) as pool:
        for name in asked.jobs:
            going = {
                arm: [pool.submit(_made, name, arm, seed, asked, places) for seed in range(asked.seeds)]
                for arm in asked.arms
            }
            found: dict[str, list[Figures]] = {}
            for arm, runs in going.items():
                found[arm] = [run.result() for run in runs]
                print(_line(name, arm, found), flush=True)


def _places(at_once: int) -> SimpleQueue[str]:
    """The machine's cores in so many parts, one for each run of a time; where there are fewer, runs share them."""
    cores = sorted(os.sched_getaffinity(0))
    size = max(1, len(cores) // at_once)
    places: SimpleQueue[str] = SimpleQueue()
    for number in range(at_once):
        start = number * size % len(cores)
        places.put(",".join(map(str, cores[start : start + size])))
    return places


def _made(name: str, arm: str, seed: int, asked: argparse.Namespace, places: SimpleQueue[str]) -> Figures:
    cluster = [f"cluster={asked.cluster}"] if arm != "solo" else []
    job = [*JOBS[name], *ALIKE, *cluster, *ARMS.get(arm, []), *asked.set, f"trainer.seed={seed}"]
    if arm == DDP:
        return ddp_trained(*job)
    cores = places.get()
    try:
        return trained(cores, *job)
    finally:
        places.put(cores)


def _line(name: str, arm: str, found: dict[str, list[Figures]]) -> str:
    accuracy, loss = (mean(figures[key] for figures in found[arm]) for key in ("accuracy", "loss"))
    text = f"{name} {arm:<20} accuracy {accuracy:.4f}  test loss {loss:.4f}"
    if "solo" in found and arm != "solo":
        text += f"  {100 * (accuracy - mean(f['accuracy'] for f in found['solo'])):+.2f} points of solo's"
    if DDP in found and arm != DDP:
        text += f"  {loss / mean(f['loss'] for f in found[DDP]):.3f} x DDP's loss"
    each = ", ".join(f"{figures['accuracy']:.4f}" for figures in found[arm])
    return f"{text}  (accuracies {each})"


if __name__ == "__main__":
    main()
