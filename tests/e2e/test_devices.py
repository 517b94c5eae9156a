"""What devices may differ in, and the runs that look for faults: whole commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.e2e.command import command
from tests.engine.live import ROOT

MODES = ("cpu_sync", "cpu_cadence", "cpu_async")
SMALL = ("model=mlp", "model.hidden=[32]", "dataset=digits", "optim.lr=0.05")
UNEVEN = "cluster.workers=[{{host: localhost, local_devices: 'cpu:1', nccl_socket_ifname: lo, overrides: {0}}}, \
{{host: 127.0.0.1, local_devices: 'cpu:1', nccl_socket_ifname: lo, overrides: {1}}}]"


def run(folder: Path, *arguments: str) -> Any:
    """(result, output) of a command that ends well."""
    folder.mkdir(exist_ok=True)
    with command(folder, *arguments, "hydra.run.dir=run") as started:
        assert started.end(240.0) == 0, started.output
        return started.result, started.output


def journal(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Events and commands of a kind, from the run's journal."""
    found: list[dict[str, Any]] = []
    for line in (folder / "run" / "journal.jsonl").read_text().splitlines():
        entry = json.loads(line)
        items = [entry.get("event"), *entry.get("commands", [])]
        found += [item for item in items if isinstance(item, dict) and item.get("type") == kind]
    return found


def test_a_rank_in_bfloat16_beside_one_in_float32_learns_as_well(tmp_path: Path) -> None:
    job = (*SMALL, "elche=cpu_cadence", "trainer.num_epochs=8", "cluster=rehearsal")
    mixed, said = run(tmp_path / "mixed", *job, UNEVEN.format("{precision: bfloat16}", "{precision: float32}"))
    plain, _ = run(tmp_path / "plain", *job, UNEVEN.format("{}", "{}"))
    assert "bfloat16: rank 0; float32: rank 1" in said
    assert plain["eval"]["accuracy"] > 0.85
    assert mixed["eval"]["accuracy"] == pytest.approx(plain["eval"]["accuracy"], abs=0.04)


@pytest.mark.parametrize("mode", MODES)
def test_smoke_runs_two_windows_averages_and_evaluates_on_every_rank(mode: str, tmp_path: Path) -> None:
    result, _ = run(tmp_path, *SMALL, "debug=smoke", f"elche={mode}", "cluster=rehearsal")
    assert result["status"] == "stopped"
    assert "debug.max_windows=2" in result["reason"]
    windows = Counter(order["to"][0] for order in journal(tmp_path, "RunWindow"))
    assert windows == {0: 2, 1: 2}
    evaluated = [event["rank"] for event in journal(tmp_path, "Goodbye") for done in event["callbacks"]
                 if done["name"] == "eval" and done["ok"]]  # fmt: skip
    assert sorted(evaluated) == [0, 1]
    assert result["wall_seconds"] < 60.0


def test_overfit_brings_the_loss_of_one_batch_near_0(tmp_path: Path) -> None:
    result, _ = run(tmp_path, *SMALL, "debug=overfit", "cluster=rehearsal")
    assert result["status"] == "stopped"
    assert "stop.target: train_loss" in result["reason"]
    assert result["train_loss"] <= 0.01


@pytest.mark.parametrize("mode", MODES[:2])
def test_deterministic_runs_give_the_same_bits(mode: str, tmp_path: Path) -> None:
    job = (*SMALL, f"elche={mode}", "cluster=rehearsal", "trainer.deterministic=true", "trainer.num_epochs=3")
    weights = []
    for turn in ("first", "second"):
        run(tmp_path / turn, *job)
        weights.append(load_file(tmp_path / turn / "run" / "checkpoints" / "weights.safetensors"))
    first, second = weights
    assert first.keys() == second.keys()
    assert all(first[name].equal(second[name]) for name in first)


def test_a_debugger_stops_inside_the_step_of_a_run_in_process(tmp_path: Path) -> None:
    (tmp_path / "own_step.py").write_text(
        "from flodl.steps.classification import Classification\n"
        "class Step(Classification):\n"
        "    calls = 0\n"
        "    def __call__(self, model, batch):\n"
        "        Step.calls += 1\n"
        "        if Step.calls == 2:\n"
        "            breakpoint()\n"
        "        return super().__call__(model, batch)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "flodl", *SMALL, "debug=inprocess", "cluster=rehearsal", "trainer.num_epochs=1",
         "step._target_=own_step.Step", "hydra.run.dir=run"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"},
        input="p 'shape', tuple(batch[0].shape)\np 'calls', self.calls\nc\n",
        capture_output=True,
        text=True,
        timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "('shape', (64, 1, 8, 8))" in done.stdout
    assert "('calls', 2)" in done.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["status"], result["world_size"]) == ("done", 1)
    assert (tmp_path / "run" / "checkpoints" / "weights.safetensors").exists()


def test_an_error_in_process_ends_the_run_in_words(tmp_path: Path) -> None:
    with command(tmp_path, *SMALL, "debug=inprocess", "model.in_shape=[1, 5, 5]", "hydra.run.dir=run") as started:
        assert started.end(120.0) in (3, 5), started.output
        assert "mat1 and mat2" in started.output
        assert started.result["status"] == "failed"


def test_an_interrupt_in_process_ends_the_run_as_one(tmp_path: Path) -> None:
    job = (*SMALL, "debug=inprocess", "trainer.num_epochs=100000", "eval=off", "hydra.run.dir=run")
    with command(tmp_path, *job) as started:
        started.until(lambda: "epoch " in started.output)
        started.signal(signal.SIGINT)
        assert started.end(30.0) == 130, started.output
        assert started.result["status"] == "interrupted"
