"""A real card: what fits, what precision and compiling it gets, and float16's scale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from flodl.probe.gpus import count_gpus
from tests.engine.live import ROOT

pytestmark = pytest.mark.skipif(count_gpus() < 1, reason="needs a GPU")
ALONE = "cluster.workers=[{host: localhost, local_devices: [0]}]"

CRAMPED = """
import torch
from flodl.steps.classification import Classification

class Step(Classification):
    def __init__(self, megabytes, label_smoothing=0.0):
        super().__init__(label_smoothing=label_smoothing)
        free, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction(megabytes * 2**20 / total)
"""


def run(folder: Path, *overrides: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """(result, output) of a command on the first GPU."""
    command = [sys.executable, "-m", "flodl", ALONE, *overrides, "hydra.run.dir=run"]
    (folder / "cramped.py").write_text(CRAMPED)
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=280, check=False, env=_environment()
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads((folder / "run" / "result.json").read_text()), done.stdout + done.stderr


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "COLUMNS": "250"}


WIDE = ("model=resnet20", "dataset=synthetic", "dataset.image_shape=[3,32,32]", "dataset.num_samples=4096",
        "trainer.batch_size=1024", "trainer.num_epochs=1", "trainer.compile=false", "trainer.precision=float32",
        "step._target_=cramped.Step", "loader.resident=false", "loader.num_workers=0", "eval=off")  # fmt: skip


LARGE = ("+step.megabytes=100", "trainer.batch_size=4", "dataset.num_samples=8", "dataset.num_eval=1",
         "dataset.image_shape=[3,512,512]")  # fmt: skip


def test_a_batch_that_does_not_fit_is_done_in_slices_and_the_run_says_so(tmp_path: Path) -> None:
    result, said = run(tmp_path, *WIDE, "+step.megabytes=700")
    assert (result["status"], result["samples_done"]) == ("done", 4096)
    assert "out of memory with 1024 samples at a time; the batch is done again in slices of 512" in said


def test_a_sample_that_does_not_fit_is_refused_with_card_need_and_free_memory(tmp_path: Path) -> None:
    result, said = run(tmp_path, *WIDE, *LARGE, code=5)
    assert result["status"] == "failed"
    assert "one sample of a batch does not fit: NVIDIA" in said
    assert "GiB are free" in said


def test_a_model_that_does_not_fit_is_refused_in_words(tmp_path: Path) -> None:
    _, said = run(tmp_path, *WIDE, "+step.megabytes=24", "trainer.batch_size=4", "model.width=256", code=3)
    assert "out of memory outside of a batch's forward and backward pass: NVIDIA" in said


def test_auto_is_bfloat16_compiled_on_a_card_that_can(tmp_path: Path) -> None:
    result, said = run(tmp_path, "model=resnet20", "dataset=digits", "trainer.num_epochs=3")
    assert "; bfloat16, compiled" in said
    assert result["train_loss"] < 2.3
    names = load_file(tmp_path / "run" / "checkpoints" / "weights.safetensors")
    assert not [name for name in names if "_orig_mod" in name]


def test_float16_skips_what_overflows_and_learns(tmp_path: Path) -> None:
    job = ("model=mlp", "dataset=digits", "trainer.num_epochs=8", "trainer.compile=false", "optim.lr=0.05")
    result, said = run(tmp_path, *job, "trainer.precision=float16")
    assert "; float16" in said
    assert result["eval"]["accuracy"] > 0.85


def test_deterministic_runs_give_the_same_bits(tmp_path: Path) -> None:
    job = ("model=resnet20", "dataset=digits", "trainer.num_epochs=2", "trainer.compile=false",
           "trainer.deterministic=true")  # fmt: skip
    found = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        run(tmp_path / name, *job)
        found.append(load_file(tmp_path / name / "run" / "checkpoints" / "weights.safetensors"))
    assert all(found[0][name].equal(found[1][name]) for name in found[0])
