"""Elastic averaging on two hosts over SSH: `python -m tests.bench.hosts_easgd [--alpha 0.6] [--epochs 20]`.

A lab of two hosts, one rank each, the second at 0.4 of its speed, digits with a perceptron. Prints per epoch the
training loss, the consensus's test loss and accuracy, and its distance: ||replica - mean|| / ||mean|| at the epoch's
last averaging, the farthest rank's. Beside it cpu_async with its own correction instead of the elastic center.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from flodl.record.metrics import read_metrics
from tests.bench.hosts_balance import desk_of_lab
from tests.engine.live import ROOT, found_in

SPEEDS = (1.0, 0.4)
JOB = ["model=mlp", "dataset=digits", "trainer.batch_size=8", "optim.lr=0.02", "elche=cpu_async", "cluster=lab"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alpha", type=float, default=0.6)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    with desk_of_lab(SPEEDS) as desk:
        for alpha in (args.alpha, None):
            told = "null" if alpha is None else str(alpha)
            _train(desk, [*JOB, f"elche.easgd_alpha={told}", f"trainer.num_epochs={args.epochs}"])


def _train(desk: Path, job: list[str]) -> None:
    run = desk / job[-2]
    command = [sys.executable, "-m", "flodl", *job, f"hydra.run.dir='{run}'"]
    env = os.environ | {"PYTHONPATH": found_in(ROOT)}
    done = subprocess.run(command, cwd=desk, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    print(job[-2])
    for epoch in read_metrics(run / "metrics.jsonl"):
        figures = ", ".join(f"test {name} {value:.4f}" for name, value in epoch.eval.items())
        print(
            f"  epoch {epoch.epoch + 1}: loss {epoch.loss:.4f}, {figures}, distance {epoch.divergence:.4f}", flush=True
        )


if __name__ == "__main__":
    main()
