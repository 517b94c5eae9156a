"""What averaging 100 MB beside training costs a step: `python -m tests.bench.overlap` (cpu_async, two paced ranks).

Every step notes when it began; the journal tells when each round ran on each rank. Printed are the median step of the
same rank while a round ran and while none did, and what training was held for rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

FORWARD_SECONDS = 0.7  # every forward pass is filled up to that: a sleep of about 4 x the compute in every step
WIDTH = 5000  # 5000 x 5000 float32 parameters: 100 MB


class Wide(nn.Sequential):
    """100 MB of parameters, little arithmetic."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 10))


class TimedStep:
    """Cross entropy that notes when each step began, in a file per process."""

    def __init__(self, folder: str) -> None:
        self._file = Path(folder)

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        if model.training:
            with (self._file / f"{os.getpid()}.steps").open("a") as notes:
                notes.write(f"{time.monotonic()}\n")
        began = time.monotonic()
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        time.sleep(max(0.0, began + FORWARD_SECONDS - time.monotonic()))
        return loss


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _train(folder)
        events = [event for line in Path(folder, "run", "journal.jsonl").read_text().splitlines()[1:]
                  for event in (json.loads(line).get("event"),) if event]  # fmt: skip
        result = json.loads(Path(folder, "run", "result.json").read_text())
        for rank, notes in enumerate(_by_rank(Path(folder), events)):
            rounds = [(e["at"] - e["duration_ms"] / 1000, e["at"]) for e in events if _is_round(e, rank)]
            _tell(rank, notes, rounds, result["per_rank"][rank])


def _train(folder: str) -> None:
    job = ["elche=cpu_async", "elche.max_anchor=10", "dataset=synthetic", "dataset.num_samples=1920", "eval=off",
           "trainer.batch_size=16", "trainer.num_epochs=1", "scheduler=constant", "optim.lr=0.001", "optim.momentum=0",
           "optim.nesterov=false", "model._target_=tests.bench.overlap.Wide", "~model.in_shape", "~model.num_classes",
           "~model.depth", "~model.width", "step._target_=tests.bench.overlap.TimedStep", "~step.label_smoothing",
           f"+step.folder={folder}", f"hydra.run.dir={folder}/run",
           "cluster.workers=[{host: localhost, local_devices: 'cpu:2'}]"]  # fmt: skip
    command = [sys.executable, "-m", "flodl", *job]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def _is_round(event: dict[str, Any], rank: int) -> bool:
    return event["type"] == "AveragingDone" and event["rank"] == rank


def _by_rank(folder: Path, events: list[dict[str, Any]]) -> list[list[float]]:
    """Each rank's notes: processes are told apart by how many steps they ran."""
    files = [[float(line) for line in path.read_text().split()] for path in folder.glob("*.steps")]
    counts = [sum(e["batches"] for e in events if e["type"] == "WindowDone" and e["rank"] == r) for r in range(2)]
    return sorted(files, key=lambda notes: min(range(2), key=lambda r: abs(counts[r] - len(notes))))


def _tell(rank: int, notes: list[float], rounds: list[tuple[float, float]], totals: dict[str, Any]) -> None:
    beside, alone = [], []
    for began, ended in list(pairwise(notes))[5:]:
        is_beside = any(start < ended and began < stop for start, stop in rounds)
        (beside if is_beside else alone).append(ended - began)
    print(
        f"rank {rank}: step {median(alone) * 1000:.0f} ms alone, {median(beside) * 1000:.0f} ms beside a round: "
        f"{median(beside) / median(alone) - 1:+.1%} ({len(alone)} and {len(beside)} steps); rounds take "
        f"{median(stop - start for start, stop in rounds) * 1000:.0f} ms; exposed in all "
        f"{totals['averaging_seconds']:.2f} s of {notes[-1] - notes[0]:.0f} s"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
