"""A live run's journal tells the whole story: a fresh Coordinator that hears the same events gives the same orders."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl import drive, trainer
from flodl.record.journal import read_journal
from flodl.spec.codec import load_spec
from tests.e2e.command import LONG, command

SHORT = ("cluster=rehearsal", "model=mlp", "trainer.num_epochs=2", "hydra.run.dir=run")


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async", "cpu_sync"])
def test_a_live_journal_replays_to_the_same_commands(tmp_path: Path, mode: str) -> None:
    with command(tmp_path, *SHORT, f"elche={mode}") as run:
        assert run.end(90.0) == 0, run.output
        header, told = read_journal(tmp_path / "run" / "journal.jsonl")
        job = trainer.resolved(load_spec(tmp_path / "run" / "spec.json"), header.roster)
        again = list(drive.replay([event for event, _ in told], job, header.roster))
        assert again == [commands for _, commands in told]
        assert run.result["status"] == "done"
        assert run.result["epochs_done"] == 2
        assert run.result["mode"] == mode
        assert 0 < run.result["startup_seconds"] < 90


def test_one_device_trains_alone_through_the_same_door(tmp_path: Path) -> None:
    with command(tmp_path, "cluster=local", "model=mlp", "trainer.num_epochs=2", "hydra.run.dir=run") as run:
        assert run.end(90.0) == 0, run.output
        assert run.result["world_size"] == 1
        assert "checkpoints/weights.safetensors" in run.result["checkpoints"]


def test_the_controller_loads_no_torch_and_no_cuda(tmp_path: Path) -> None:
    with command(tmp_path, *LONG) as run:
        run.trains()
        loaded = Path(f"/proc/{run.process.pid}/maps").read_text()
        assert "libzmq" in loaded
        assert "libtorch" not in loaded
        assert "libcuda" not in loaded
        assert "libtorch" in Path(f"/proc/{run.rank(0)}/maps").read_text()
