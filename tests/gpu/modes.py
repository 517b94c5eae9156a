"""What the modes make of unequal GPUs: `python -m tests.gpu.modes`.

Every GPU but the first is slowed to 0.4 of its pace (rehearsal pace: each step sleeps). Printed per mode: utilisation
(the work done as a share of what the cards could do), samples/s, and loss per wall-second, (first - last training
loss) / wall seconds; and for each rank what its wall time went to. A resnet20 of eight times the usual width,
bfloat16, synthetic data, the same seed and number of epochs for all. That keeps a card busy: with less the host's
launching is what is timed, which varies by a tenth from window to window, and whoever is done first waits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flodl.probe.gpus import count_gpus
from flodl.record.metrics import read_metrics
from tests.gpu.place import headline

GPUS = count_gpus()
SLOW = 0.4
MODES = ("nccl_cadence", "cpu_async", "nccl_sync")
JOB = ("model=resnet20", "model.width=128", "dataset=synthetic", "dataset.num_samples=102400",
       "dataset.image_shape=[3,32,32]", "dataset.noise=4.0", "trainer.batch_size=512", "trainer.compile=false",
       "trainer.precision=bfloat16", "scheduler=constant", "optim.lr=0.05", "trainer.reports_per_epoch=4",
       "eval=off")  # fmt: skip


def words_of(mode: str, gpus: int) -> list[str]:
    """What is asked for: the first of so many GPUs at full pace."""
    speeds = [1.0] + [SLOW] * (gpus - 1)
    return [*JOB, f"elche={mode}", "cluster=local", f"cluster.workers.0.speed={speeds}"]


def train(mode: str, epochs: int, more: Sequence[str]) -> dict[str, Any]:
    """The result of one run, and its first and last training loss."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*words_of(mode, GPUS), f"trainer.num_epochs={epochs}", f"hydra.run.dir={folder}/run", *more]
        done = subprocess.run([sys.executable, "-m", "flodl", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")
        run = Path(folder, "run")
        result: dict[str, Any] = json.loads((run / "result.json").read_text())
        losses = [epoch.loss for epoch in read_metrics(run / "metrics.jsonl") if epoch.loss is not None]
        return result | {"first_loss": losses[0], "last_loss": losses[-1]}


def spent(rank: dict[str, Any], wall_seconds: float) -> str:
    """What a rank's time went to."""
    parts = ("compute", "data_wait", "averaging", "idle")
    shares = ", ".join(f"{part.replace('_', ' ')} {rank[f'{part}_seconds'] / wall_seconds:.1%}" for part in parts)
    return f"  rank {rank['rank']}: {rank['batches']} batches; {shares}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--set", nargs="+", default=[], help="overrides of one's own")
    args = parser.parse_args()
    if GPUS < 2:
        raise SystemExit(f"two GPUs are needed; {GPUS} here")
    print(headline("tests.gpu.modes"), flush=True)
    for mode in args.modes:
        result = train(mode, args.epochs, args.set)
        fall = result["first_loss"] - result["last_loss"]
        print(f"{mode}: utilisation {result['utilisation']:.3f}, {result['samples_per_second']:.0f} samples/s, "
              f"loss {result['first_loss']:.4f} to {result['last_loss']:.4f} in {result['wall_seconds']:.1f} s = "
              f"{fall / result['wall_seconds']:.4f} per second; anchor {result['anchor']}, "
              f"{result['rounds']} rounds")  # fmt: skip
        told = [spent(rank, result["wall_seconds"]) for rank in result["per_rank"]]
        print("\n".join(told), flush=True)


if __name__ == "__main__":
    main()
