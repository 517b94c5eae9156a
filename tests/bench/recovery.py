"""From SIGKILL of one of four ranks to the next accepted round, beside torchrun's restart of a like script.

    python -m tests.bench.recovery [times]

Prints both medians. Exit 1 where flodl takes more than a second and one window (median of the times).
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flodl.decide.messages import AveragingDone, RankDied, RunWindow
from flodl.record.journal import read_journal
from tests.e2e.command import command

LIMIT_SECONDS = 1.0
STEP_SECONDS = 0.02
SLOW_STEP = f"""
import time
from flodl.steps.classification import Classification

class Step(Classification):
    def __call__(self, model, batch):
        time.sleep({STEP_SECONDS})
        return super().__call__(model, batch)
"""
SCRIPT = f"""
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
note = open(f"pid.{{rank}}", "w"); note.write(str(os.getpid())); note.close()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    time.sleep({STEP_SECONDS})
    model(torch.randn(16, 64)).sum().backward()
    optimizer.step(); optimizer.zero_grad()
    if rank == 0:
        with open("steps", "a") as file:
            file.write(f"{{time.monotonic()}}\\n")
"""


def flodl_seconds(folder: Path) -> tuple[float, float]:
    """(from SIGKILL to the next accepted round, the longest window before it)."""
    (folder / "slow_step.py").write_text(SLOW_STEP)
    job = ("cluster.workers=[{host: localhost, local_devices: 'cpu:4'}]", "elche=cpu_cadence", "model=mlp",
           "step._target_=slow_step.Step", "trainer.batch_size=16", "trainer.num_epochs=1000",
           "eval.every_epochs=null", "hydra.run.dir=run")  # fmt: skip
    with command(folder, *job) as run:
        run.trains()
        time.sleep(2.0)
        killed = time.monotonic()
        os.kill(run.rank(1), signal.SIGKILL)
        run.until(lambda: "going on with ranks" in run.output)
        time.sleep(2.0)
        _, told = read_journal(folder / "run/journal.jsonl")
    died = next(event.at for event, _ in told if isinstance(event, RankDied))
    accepted = [
        event.at
        for event, said in told
        if isinstance(event, AveragingDone) and any(isinstance(order, RunWindow) for order in said)
    ]
    before = [at for at in accepted if at < killed][1:]
    window = max(later - earlier for earlier, later in itertools.pairwise(before))
    return min(at for at in accepted if at > died) - killed, window


def torchrun_seconds(folder: Path) -> float:
    """From SIGKILL to the next step after the restart."""
    (folder / "script.py").write_text(SCRIPT)
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", "--max-restarts=3",
            "script.py"]  # fmt: skip
    with subprocess.Popen(argv, cwd=folder, env=environ, stderr=subprocess.DEVNULL, start_new_session=True) as run:
        try:
            _await(lambda: len(_steps(folder)) > 50)
            killed = time.monotonic()
            os.kill(int((folder / "pid.1").read_text()), signal.SIGKILL)
            _await(lambda: _steps(folder)[-1] > killed + 0.5 and _restarted(folder, killed))
            return min(at for at in _steps(folder) if at > _gap(folder, killed)) - killed
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(30)


def _restarted(folder: Path, killed: float) -> bool:
    return _gap(folder, killed) > 0.0 and _steps(folder)[-1] > _gap(folder, killed)


def _gap(folder: Path, killed: float) -> float:
    """The last step before the longest pause after the kill; 0 while there is none."""
    steps = [at for at in _steps(folder) if at > killed - 1.0]
    pauses = [(later - earlier, earlier) for earlier, later in itertools.pairwise(steps)]
    longest, begun = max(pauses, default=(0.0, 0.0))
    return begun if longest > 0.5 else 0.0


def _steps(folder: Path) -> list[float]:
    try:
        return [float(line) for line in (folder / "steps").read_text().splitlines() if line]
    except OSError:
        return []


def _await(reached, seconds: float = 300.0) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > end:
            raise SystemExit(f"not within {seconds} s")
        time.sleep(0.05)


def main(times: int) -> int:
    """0 when all is well."""
    ours: list[tuple[float, float]] = []
    theirs: list[float] = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            ours.append(flodl_seconds(Path(one)))
            theirs.append(torchrun_seconds(Path(other)))
    seconds, window = (statistics.median(column) for column in zip(*ours, strict=True))
    print(
        f"flodl: next accepted round {seconds:.2f} s after SIGKILL (worst {max(ours)[0]:.2f} s, window {window:.2f} s)"
    )
    print(f"torchrun: next step {statistics.median(theirs):.2f} s after SIGKILL, from the script's beginning")
    return 0 if seconds <= LIMIT_SECONDS + window else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
