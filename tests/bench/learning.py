"""What the shipped models learn on the rehearsal rig: `python -m tests.bench.learning [lenet gpt autoencoder rnn]`.

Each is one run of the whole command, two CPU ranks at 1.0 and 0.4, one thread each. Prints every epoch's training and
evaluation figures and what is to be beaten: for lenet an accuracy of 0.90, for the models of text a bigram model's
loss on the same evaluation blocks, for the autoencoder half the loss of giving back the mean image.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flodl.datasets.mnist import fashion_mnist
from flodl.datasets.python_stdlib import python_stdlib
from flodl.record.metrics import read_metrics
from tests.engine.live import ROOT, found_in

REHEARSAL = ["elche=cpu_cadence", "cluster=rehearsal", "optim=adamw"]
RUNS = {
    "lenet": ["experiment=fashion_lenet"],
    "gpt": ["experiment=text_gpt"],
    "autoencoder": [
        *REHEARSAL, "model=conv_autoencoder", "dataset=fashion_mnist", "step=reconstruction", "trainer.num_epochs=3",
    ],
    "rnn": [
        *REHEARSAL, "model=char_rnn", "dataset=python_stdlib", "step=language_model", "trainer.num_epochs=4",
        "trainer.limit_batches=150", "trainer.batch_size=32", "trainer.max_grad_norm=1.0",
    ],
}  # fmt: skip


def bigram_loss(train: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor], vocab_size: int) -> float:
    """Cross entropy, in nats, of a bigram model with one count added to each pair, fitted on train."""
    pairs = train[0].long().flatten() * vocab_size + train[1].long().flatten()
    counts = torch.bincount(pairs, minlength=vocab_size**2).view(vocab_size, vocab_size).double() + 1
    log_p = (counts / counts.sum(dim=1, keepdim=True)).log()
    return -log_p[held[0].long().flatten(), held[1].long().flatten()].mean().item()


def mean_image_loss(data: dict[str, Any]) -> float:
    """Half the mean squared error, over the evaluation images, of giving back the training images' mean."""
    splits = fashion_mnist(**data)
    return (splits.eval.tensors[0] - splits.train.tensors[0].mean(dim=0)).square().mean().item() / 2


def text_loss(data: dict[str, Any]) -> float:
    """`bigram_loss` on the data of a run of text."""
    splits = python_stdlib(**data)
    return bigram_loss(splits.train.tensors, splits.eval.tensors, data["vocab_size"])


# metric, what is to be beaten (from the data set's arguments), and whether it is the more the better.
GOALS: dict[str, tuple[str, Callable[[dict[str, Any]], float], bool]] = {
    "lenet": ("accuracy", lambda _: 0.90, True),
    "gpt": ("loss", text_loss, False),
    "autoencoder": ("loss", mean_image_loss, False),
    "rnn": ("loss", text_loss, False),
}


def run(name: str, *more: str) -> bool:
    """Train; print the curve and the goal. True where it is reached."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "flodl", *RUNS[name], *more, "hydra.run.dir=run"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": found_in(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        epochs = read_metrics(Path(folder) / "run" / "metrics.jsonl")
        result = json.loads((Path(folder) / "run" / "result.json").read_text())
        data = json.loads((Path(folder) / "run" / "spec.json").read_text())["job"]["dataset"]
    for metrics in epochs:
        figures = ", ".join(f"{key} {value:.4f}" for key, value in sorted(metrics.eval.items()))
        print(f"{name}: epoch {metrics.epoch + 1}: train loss {metrics.loss:.4f}; evaluated: {figures}")
    metric, goal_of, more_is_better = GOALS[name]
    goal = goal_of({key: value for key, value in data.items() if not key.startswith("_")})
    found = result["eval"][metric]
    print(f"{name}: {metric} {found:.4f} after {result['wall_seconds']:.0f} s; to be beaten: {goal:.4f}")
    return found >= goal if more_is_better else found < goal


def main() -> int:
    """Exit code 1 where a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(RUNS), metavar="RUN")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an override for all of them")
    asked = parser.parse_args()
    reached = [run(name, *asked.set) for name in asked.names]
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
