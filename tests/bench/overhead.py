"""What flodl costs a single device: `python -m tests.bench.overhead`.

Each turn trains the same model twice, one thread each: through the whole command, solo, and by the bare loop below,
which is what one would write by hand: the same tensors in the same order, the loss summed up without a sync. Both are
timed from the first batch to the last. `--jobs gpu` is resnet20 in bfloat16 on the first GPU. Prints the median
of the turns' quotients, and that of each side's best turn. They begin in alternating order. On a busy machine single
quotients scatter by a tenth: take more turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from flodl.datasets.digits import digits
from flodl.datasets.mnist import fashion_mnist
from flodl.datasets.synthetic import synthetic
from flodl.engine.reading import permutation
from flodl.models.mlp import MLP
from flodl.models.resnet import ResNet
from flodl.steps.classification import Classification

SEED = 0
COMMON = (
    "scheduler=constant",
    "optim.lr=0.01",
    "optim.momentum=0.9",
    "optim.weight_decay=0",
    "optim.nesterov=false",
    "trainer.seed=0",
)
COMMON += ("eval=off", "cluster=local", "cluster.workers.0.local_devices=cpu:1", "trusted_targets=[tests.bench]")
GPU_SAMPLES = 51_200
EPOCHS = {"mlp": 6, "resnet20": 20, "gpu": 40}  # some ten seconds of training each
JOBS = {  # name -> (batch size, overrides)
    "mlp": (512, ("model=mlp", "model.hidden=[256, 256]", "dataset=fashion_mnist", "trainer.precision=float32")),
    "resnet20": (64, ("model=resnet20", "dataset=digits", "trainer.precision=float32")),
    "gpu": (
        512,
        (
            "model=resnet20",
            "dataset=synthetic",
            f"dataset.num_samples={GPU_SAMPLES}",
            "dataset.image_shape=[3,32,32]",
            "trainer.precision=bfloat16",
            "trainer.compile=false",
            "cluster.workers.0.local_devices=[0]",
        ),
    ),
}


class OneThread(Classification):
    """The classification step in a rank that computes with one thread."""

    def __init__(self, *, label_smoothing: float = 0.0) -> None:
        super().__init__(label_smoothing=label_smoothing)
        torch.set_num_threads(1)  # here: at every step it would be counted as flodl's


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--epochs", type=int, help=f"default: {EPOCHS}")
    parser.add_argument("--jobs", nargs="+", default=["mlp", "resnet20"], choices=list(JOBS))
    parser.add_argument("--bare", nargs=2, metavar=("JOB", "EPOCHS"), help="print samples/s of the bare loop alone")
    args = parser.parse_args()
    if args.bare:
        print(bare(args.bare[0], int(args.bare[1])))
        return
    for name in args.jobs:
        pairs = [_turn(name, args.epochs or EPOCHS[name], turn) for turn in range(args.turns)]
        quotients = [ours / theirs for ours, theirs in pairs]
        best, bare_best = (max(rates) for rates in zip(*pairs, strict=True))
        print(f"{name:<9} flodl / bare: median {median(quotients):.3f} of {', '.join(f'{q:.3f}' for q in quotients)}; "
              f"best of each {best:.1f} / {bare_best:.1f} samples/s = {best / bare_best:.3f}", flush=True)  # fmt: skip


def _turn(name: str, epochs: int, turn: int) -> tuple[float, float]:
    """(through flodl, bare), samples/s."""
    if turn % 2:
        theirs = _bare_elsewhere(name, epochs)
        return flodl(name, epochs), theirs
    ours = flodl(name, epochs)
    return ours, _bare_elsewhere(name, epochs)


def flodl(name: str, epochs: int) -> float:
    """Samples/s of the whole command, as its result says."""
    batch_size, overrides = JOBS[name]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "flodl", *COMMON, *overrides, "step._target_=tests.bench.overhead.OneThread"]
        command += [f"trainer.batch_size={batch_size}", f"trainer.num_epochs={epochs}", f"hydra.run.dir={folder}/run"]
        _run(command)
        return float(json.loads(Path(folder, "run", "result.json").read_text())["samples_per_second"])


def _bare_elsewhere(name: str, epochs: int) -> float:
    return float(_run([sys.executable, "-m", "tests.bench.overhead", "--bare", name, str(epochs)]).split()[-1])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def bare(name: str, epochs: int) -> float:
    """Samples/s of a loop written by hand."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    batch_size, _ = JOBS[name]
    model, data = _parts(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step, total = Classification(), torch.zeros((), dtype=torch.float64, device=data[0].device)
    batches = len(data[0]) // batch_size
    began = time.perf_counter()
    for epoch in range(epochs):
        order = torch.from_numpy(permutation(SEED, epoch, len(data[0]))).to(data[0].device)
        for i in range(batches):
            chosen = order[i * batch_size : (i + 1) * batch_size]
            batch: Any = tuple(column.index_select(0, chosen) for column in data)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(data[0].device.type, dtype=torch.bfloat16, enabled=name == "gpu"):
                loss = step(model, batch)
            loss.backward()
            optimizer.step()
            total += loss.detach().double() * batch_size
    assert torch.isfinite(total)
    return epochs * batches * batch_size / (time.perf_counter() - began)


def _parts(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    if name == "mlp":
        splits: Any = fashion_mnist(folders=["data/fashion-mnist", "/usr/share/datasets/fashion-mnist"])
        return MLP(in_shape=(1, 28, 28), num_classes=10, hidden=(256, 256)), splits.train.tensors
    if name == "gpu":
        splits = synthetic(image_shape=(3, 32, 32), num_samples=GPU_SAMPLES)
        model = ResNet(in_shape=(3, 32, 32), num_classes=10).to("cuda")
        return model, tuple(column.to("cuda") for column in splits.train.tensors)
    splits = digits()
    return ResNet(in_shape=(1, 8, 8), num_classes=10), splits.train.tensors


if __name__ == "__main__":
    main()
