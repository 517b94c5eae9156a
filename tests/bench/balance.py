"""Balance on unequal ranks: `python -m tests.bench.balance`.

Paced: every real step has a sleep of about 4 x its compute, counted as compute, so that two cores are not the limit.
(Every forward pass is filled up to 25 ms: a sleep that followed each step's own time would multiply the machine's noise
by five.) The second rank has a speed of 0.4. Prints samples/s of each rank alone,
of torch DDP and of each mode, and each one's quotient with the sum of the solo rates of the same turn: the median of
several turns, all from one run.
"""

from __future__ import annotations

import argparse
import functools
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

from flodl.models.mlp import MLP
from flodl.steps.classification import Classification
from tests.bench import ddp

SPEEDS = (1.0, 0.4)
FORWARD_SECONDS = 0.025
BATCH = 64
HIDDEN = [512, 512]
JOB = [
    "trusted_targets=[tests.bench]",
    "step._target_=tests.bench.balance.Paced",
    "model=mlp",
    f"model.hidden={HIDDEN}",
    "dataset=synthetic",
    "scheduler=constant",
    "optim.lr=0.01",
    "eval.every_epochs=null",
    "eval.at_end=false",
    f"trainer.batch_size={BATCH}",
]


class Paced(Classification):
    """A classification step that takes as long as a larger model's would. forward_seconds: of a forward pass."""

    def __init__(self, *, label_smoothing: float = 0.0, forward_seconds: float = FORWARD_SECONDS) -> None:
        super().__init__(label_smoothing=label_smoothing)
        self.forward_seconds = forward_seconds

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        began = time.perf_counter()
        loss = super().__call__(model, batch)
        time.sleep(max(0.0, began + self.forward_seconds - time.perf_counter()))
        return loss


def flodl(mode: str, speeds: tuple[float, ...], samples: int, epochs: int, *more: str) -> Any:
    """result.json of one run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        run_in(Path(folder), mode, speeds, samples, epochs, *more)
        return json.loads(Path(folder, "run", "result.json").read_text())


def run_in(folder: Path, mode: str, speeds: tuple[float, ...], samples: int, epochs: int, *more: str) -> None:
    """One run, in the folder `run` of `folder`; ends this program with what the run said where it failed."""
    workers = f"cluster.workers=[{{host: localhost, local_devices: 'cpu:{len(speeds)}', speed: {list(speeds)}}}]"
    command = [sys.executable, "-m", "flodl", *JOB, f"elche={mode}", "cluster=rehearsal", workers]
    command += [f"dataset.num_samples={samples}", f"trainer.num_epochs={epochs}", *more, f"hydra.run.dir={folder}/run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=200, help="batches of an epoch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--modes", nargs="+", default=["cpu_sync", "cpu_cadence", "cpu_async"])
    args = parser.parse_args()
    turns = [_turn(args) for _ in range(args.turns)]
    for name in turns[0]:
        rates, parts = zip(*(turn[name] for turn in turns), strict=True)
        print(f"{name:<12} {median(rates):8.1f} samples/s  {median(parts):6.3f} x the sum of the solo rates"
              f"  ({min(parts):.3f} to {max(parts):.3f})")  # fmt: skip


def _turn(args: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Every contender once: samples/s, and that over the sum of the solo rates."""
    samples = args.batches * BATCH
    rates = {f"solo rank {r}": _solo(speed, samples // 4) for r, speed in enumerate(SPEEDS)}
    ideal = sum(rates.values())
    rates["torch DDP"] = _ddp(args.batches)
    for mode in args.modes:
        rates[mode] = _rate(flodl(mode, SPEEDS, samples, args.epochs))
    return {name: (rate, rate / ideal) for name, rate in rates.items()}


def _solo(speed: float, samples: int) -> float:
    return _rate(flodl("cpu_cadence", (speed,), samples, 2))


def _rate(result: Any) -> float:
    return float(result["samples_per_second"])


def _ddp(steps: int) -> float:
    torch.manual_seed(0)
    batch = (torch.randn(BATCH, 1, 8, 8), torch.randint(10, (BATCH,)))
    model = functools.partial(MLP, in_shape=(1, 8, 8), num_classes=10, hidden=HIDDEN)
    return ddp.samples_per_second(model, batch, Paced(), speeds=SPEEDS, steps=steps)


if __name__ == "__main__":
    main()
