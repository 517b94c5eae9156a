"""The whole command on this machine's GPUs: forked ranks get their card, every mode trains, NCCL and gloo alike."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flodl.probe.gpus import count_gpus

GPUS = count_gpus()
JOB = ["model=mlp", "dataset=digits", "trainer.num_epochs=3", "elche.max_anchor=20"]


def run(folder: Path, *overrides: str) -> dict[str, object]:
    command = [sys.executable, "-m", "flodl", *JOB, *overrides, f"hydra.run.dir={folder}/run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, object] = json.loads((folder / "run" / "result.json").read_text())
    return result


@pytest.mark.skipif(GPUS < 1, reason="needs a GPU")
def test_one_gpu_trains_alone(tmp_path: Path) -> None:
    result = run(tmp_path, "cluster.workers=[{host: localhost, local_devices: [0]}]")
    assert (result["status"], result["world_size"], result["epochs_done"]) == ("done", 1, 3)


@pytest.mark.skipif(GPUS < 2, reason=f"needs two GPUs: {GPUS} here")
@pytest.mark.parametrize("mode", ["auto", "nccl_sync", "nccl_cadence", "cpu_sync", "cpu_cadence", "cpu_async"])
def test_all_gpus_train_in_every_mode(mode: str, tmp_path: Path) -> None:
    result = run(tmp_path, f"elche={mode}")
    assert (result["status"], result["world_size"], result["epochs_done"]) == ("done", GPUS, 3)


@pytest.mark.skipif(GPUS < 1, reason="needs a GPU")
@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async"])
def test_two_ranks_share_one_gpu_where_the_cpu_averages(mode: str, tmp_path: Path) -> None:
    hosts = ", ".join(
        f"{{host: {name}, local_devices: [0], nccl_socket_ifname: lo}}" for name in ("localhost", "127.0.0.1")
    )
    result = run(tmp_path, f"elche={mode}", f"cluster.workers=[{hosts}]")
    assert (result["status"], result["world_size"]) == ("done", 2)
