"""What the probe tells of this machine's GPUs is what nvidia-smi tells, and ranks get the card that they are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from flodl.probe.gpus import MIB, see_gpus
from flodl.steps.classification import Classification

GPUS = see_gpus().gpus
JOB = ("model=mlp", "dataset=digits", "eval=off", "debug=smoke", "trusted_targets=[tests.gpu]",
       "step._target_=tests.gpu.test_probe.Telling")  # fmt: skip

pytestmark = pytest.mark.skipif(not GPUS, reason="needs a GPU")


class Telling(Classification):
    """A step that writes down on which card it is computed."""

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        uuid = torch.cuda.get_device_properties(batch[0].device).uuid
        Path(os.environ["FLODL_TEST_CARDS"], f"GPU-{uuid}").touch()
        return super().__call__(model, batch)


def asked(fields: str) -> list[list[str]]:
    """nvidia-smi's answer, a row per installed GPU."""
    words = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout
    return [[field.strip() for field in line.split(",")] for line in said.splitlines()]


def test_cards_are_those_of_nvidia_smi_in_the_order_of_the_bus() -> None:
    rows = asked("index,uuid,name,memory.total,pci.bus_id")
    by_uuid = {row[1]: row for row in rows}
    for gpu in GPUS:
        index, _, name, memory, _ = by_uuid[gpu.uuid]
        assert (gpu.installed_index, gpu.name) == (int(index), name)
        assert abs(gpu.memory_total_bytes - int(memory) * MIB) <= MIB
    places = [by_uuid[gpu.uuid][4] for gpu in GPUS]
    assert places == sorted(places)


def test_nvml_and_nvidia_smi_are_heard_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as where nvidia-ml-py is not installed
    by_smi = see_gpus().gpus
    assert [(gpu.uuid, gpu.name, gpu.capability) for gpu in by_smi] == [
        (gpu.uuid, gpu.name, gpu.capability) for gpu in GPUS
    ]


@pytest.mark.parametrize("index", range(len(GPUS)))
def test_a_rank_computes_on_the_card_that_its_number_means(index: int, tmp_path: Path) -> None:
    cards = tmp_path / "cards"
    cards.mkdir()
    workers = f"cluster.workers=[{{host: localhost, local_devices: [{index}]}}]"
    words = [sys.executable, "-m", "flodl", *JOB, workers, f"hydra.run.dir={tmp_path}/run"]
    environment = {**os.environ, "FLODL_TEST_CARDS": str(cards)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [card.name for card in cards.iterdir()] == [GPUS[index].uuid]
    (seat,) = json.loads((tmp_path / "run" / "journal.jsonl").read_text().splitlines()[0])["roster"]
    assert seat["uuid"] == GPUS[index].uuid
