"""Three hosts of unequal speed over SSH: `python -m tests.bench.hosts_balance`.

A lab of three hosts, one rank each, at 1.0, 0.6 and 0.4 of its speed; every step is filled up to a fixed time, so that
the cores of this machine are not the limit. Prints each mode's utilisation: what the run did per second, of what its
ranks did per second of their own compute.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.balance import JOB
from tests.engine.live import ROOT, found_in
from tests.lab.lab import Lab

SPEEDS = (1.0, 0.6, 0.4)
SAMPLES = 64 * 240


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--modes", nargs="+", default=["cpu_cadence", "cpu_async"])
    args = parser.parse_args()
    with desk_of_lab(SPEEDS) as desk:
        for mode in args.modes:
            found = train(desk, mode, args.epochs)
            rates = ", ".join(f"{rank['samples'] / found['wall_seconds']:.0f}" for rank in found["per_rank"])
            print(f"{mode:<12} utilisation {found['utilisation']:.3f}, {found['samples_per_second']:.0f} samples/s "
                  f"({rates} by rank), {found['rounds']} rounds, anchor {found['anchor']}", flush=True)  # fmt: skip


@contextmanager
def desk_of_lab(speeds: Sequence[float]) -> Iterator[Path]:
    """A folder to work in whose cluster=lab is a lab's hosts, one CPU rank each, at these parts of their speed."""
    with Lab(len(speeds)) as lab, tempfile.TemporaryDirectory() as folder:
        desk = Path(folder)
        (desk / "conf" / "cluster").mkdir(parents=True)
        cluster = lab.cluster()
        for worker, speed in zip(cluster["workers"], speeds, strict=True):
            worker.update(path=str(ROOT), local_devices="cpu:1", speed=speed)
        lab.write_cluster(desk / "conf" / "cluster" / "lab.yaml", cluster)
        yield desk


def train(desk: Path, mode: str, epochs: int) -> Any:
    """result.json of one run over the lab's hosts."""
    command = [sys.executable, "-m", "flodl", "cluster=lab", f"elche={mode}", *JOB]
    command += [f"dataset.num_samples={SAMPLES}", f"trainer.num_epochs={epochs}", f"hydra.run.dir={desk}/{mode}"]
    env = os.environ | {"PYTHONPATH": found_in(ROOT)}
    done = subprocess.run(command, cwd=desk, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return json.loads((desk / mode / "result.json").read_text())


if __name__ == "__main__":
    main()
