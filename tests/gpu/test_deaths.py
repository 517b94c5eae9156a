"""Ranks that die or hang inside NCCL collectives: the others are set free at once, save, and leave nothing behind.

With two GPUs the survivor is alone, which under NCCL ends the run with a save; with three and more the others re-form
and repeat the round.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flodl.probe.gpus import count_gpus
from flodl.record.bundle import BundleStore
from tests.e2e.command import Command, children, command
from tests.engine.live import wait_gone

GPUS = count_gpus()
TERMS = 20
JOB = ("cluster=local", "model=resnet20", "dataset=synthetic", "dataset.num_samples=51200", "trainer.batch_size=256",
       "dataset.image_shape=[3,32,32]", "trainer.compile=false", "eval=off", "hydra.run.dir=run")  # fmt: skip
SLICED = ("trainer.micro_batch=8",)  # a batch is more launches than a GPU's queue takes: its thread hangs with it
# 512 MiB of parameters: an averaging takes long enough that signals hit it.
WIDE = ("cluster=local", "model=mlp", "model.hidden=[8192, 8192, 8192]", "dataset=digits", "trainer.batch_size=8",
        "trainer.precision=float32", "trainer.compile=false", "eval=off", "elche.anchor=2", "elche.max_anchor=2",
        "hydra.run.dir=run")  # fmt: skip

pytestmark = pytest.mark.skipif(GPUS < 2, reason=f"needs two GPUs: {GPUS} here")


def used_mebibytes() -> list[int]:
    """Memory in use on every card, as the driver says."""
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return [int(line) for line in subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()]


@pytest.fixture(autouse=True)
def nothing_is_left_on_the_cards() -> Iterator[None]:
    before = used_mebibytes()
    yield
    end = time.monotonic() + 5.0
    while (after := used_mebibytes()) != before and time.monotonic() < end:
        time.sleep(0.2)
    assert after == before


def windows(run: Command) -> int:
    """Windows that were done so far."""
    journal = run.folder / "run" / "journal.jsonl"
    return journal.read_bytes().count(b'"WindowDone"') if journal.exists() else 0


def trains(run: Command, more: int) -> None:
    """Wait until so many more windows were done; remember everything that was started."""
    goal = windows(run) + more
    run.until(lambda: windows(run) >= goal, 120.0)
    run.family = children(run.process.pid)


def bundle_is_whole(run: Command) -> bool:
    store = BundleStore(run.folder / "run" / "checkpoints", "model", 2, None)
    newest = store.newest()
    return newest is not None and store.fault(newest) is None


@pytest.mark.row(3)
@pytest.mark.parametrize(
    ("mode", "number", "limit", "more"),
    [
        ("nccl_cadence", signal.SIGKILL, 5.0, ()),
        ("nccl_sync", signal.SIGKILL, 5.0, ()),
        ("nccl_sync", signal.SIGKILL, 5.0, SLICED),
        ("nccl_cadence", signal.SIGSTOP, 12.0, ()),
        ("nccl_sync", signal.SIGSTOP, 12.0, SLICED),
    ],
)
def test_who_is_left_is_set_free_and_saves_or_goes_on(
    mode: str, number: signal.Signals, limit: float, more: tuple[str, ...], tmp_path: Path
) -> None:
    scale = "membership.timeout_scale=0.2"  # who is silent is dead after 6 s
    with command(tmp_path, *JOB, *more, f"elche={mode}", scale, "trainer.num_epochs=100000", gpus=True) as run:
        trains(run, 6 * GPUS)
        os.kill(run.rank(GPUS - 1), number)
        struck = time.monotonic()
        if GPUS == 2:
            assert run.end() == 4, run.output
            assert time.monotonic() - struck < limit
            assert "NCCL cannot go on alone" in run.output
        else:
            run.until(lambda: "died" in run.output, limit)
            trains(run, 6 * GPUS)
            run.signal(signal.SIGINT)
            assert run.end() == 75, run.output
        wait_gone(run.family, 5.0)
        assert run.result["dead_ranks"] == [GPUS - 1]
        assert bundle_is_whole(run)


@pytest.mark.parametrize("number", range(TERMS))
def test_a_signal_during_a_large_averaging_is_no_error_of_nccl(number: int, tmp_path: Path) -> None:
    with command(tmp_path, *WIDE, "elche=nccl_cadence", "trainer.num_epochs=100000", gpus=True) as run:
        trains(run, 2 * GPUS)
        time.sleep(0.02 * number)
        run.signal(signal.SIGTERM)
        assert run.end() == 75, run.output
        assert "NCCL" not in run.output.partition("averag")[2], run.output
        wait_gone(run.family, 5.0)
        assert bundle_is_whole(run)
