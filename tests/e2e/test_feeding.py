"""The whole command with a data set of one's own that is random: no number comes twice, and all come again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.command import Command, command
from tests.engine.live import alive, wait_gone

SAMPLES, BATCH, EPOCHS, RANKS = 256, 8, 2, 2
GONE_SECONDS = 5.0
MODULE = """
import os, random
import numpy as np, torch
from flodl.datasets.splits import Splits

def numbers():
    return [int(torch.randint(2**62, ())), int(np.random.randint(2**62)), random.getrandbits(62)]

class Noise(torch.utils.data.Dataset):
    def __len__(self):
        return 256
    def signature(self):
        return "a sample tells who read it"
    def __getitem__(self, index):
        return {"x": torch.zeros(1, 8, 8), "y": index % 10, "drawn": torch.tensor([index, os.getpid(), *numbers()])}

def noise(image_shape, num_classes):
    return Splits(train=Noise())

def step(model, batch):
    with open(f"steps.{os.getpid()}", "a") as file:
        print("batch", 0, 0, *numbers(), file=file)
        for row in batch["drawn"].tolist():
            print("sample", *row, file=file)
    return torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"])
"""
CHOICES = {
    "dataset": "_target_: mine.noise\nimage_shape: [1, 8, 8]\nnum_classes: 10\n",
    "step": "_target_: mine.step\n_partial_: true\n",
}
JOB = (
    "cluster=rehearsal",
    "elche=cpu_cadence",
    "model=mlp",
    "dataset=mine",
    "step=mine",
    "eval=off",
    f"trainer.batch_size={BATCH}",
    "hydra.run.dir=run",
)

Drawn = dict[tuple[str, int, tuple[int, ...]], int]


def project(folder: Path) -> Path:
    """A project with a data set and a step of its own."""
    folder.mkdir()
    (folder / "mine.py").write_text(MODULE)
    for group, text in CHOICES.items():
        (folder / "conf" / group).mkdir(parents=True)
        (folder / "conf" / group / "mine.yaml").write_text(text)
    return folder


def drawn(folder: Path, *more: str) -> Drawn:
    """What a run drew for each sample and each batch that it trained, and the process that drew it (batches: 0)."""
    with command(project(folder), *JOB, f"trainer.num_epochs={EPOCHS}", *more) as run:
        assert run.end(120.0) == 0, run.output
    files = sorted(folder.glob("steps.*"))
    assert len(files) == RANKS
    found: Drawn = {}
    for line in (line for file in files for line in file.read_text().splitlines()):
        kind, index, reader, *numbers = line.split()
        found[kind, int(index), tuple(map(int, numbers))] = int(reader)
    return found


def loaders_of(run: Command, rank: int) -> list[int]:
    """The loader processes of a rank: they share its session."""
    return [pid for pid in run.family if pid != rank and alive(pid) and os.getsid(pid) == rank]


@pytest.fixture(scope="module")
def by_workers(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    return drawn(tmp_path_factory.mktemp("first") / "project", "loader.num_workers=2")


def test_all_random_numbers_of_two_ranks_two_workers_and_two_epochs_differ(by_workers: Drawn) -> None:
    samples = [numbers for kind, _, numbers in by_workers if kind == "sample"]
    batches = [numbers for kind, _, numbers in by_workers if kind == "batch"]
    assert (len(samples), len(batches)) == (SAMPLES * EPOCHS, SAMPLES // BATCH * EPOCHS)
    assert len({reader for reader in by_workers.values() if reader}) == RANKS * 2
    for source in zip(*samples, *batches, strict=False):
        assert len(set(source)) == len(source)
    everything = [number for numbers in (*samples, *batches) for number in numbers]
    assert len(set(everything)) == len(everything)


def test_a_second_run_draws_the_same_whoever_reads(by_workers: Drawn, tmp_path: Path) -> None:
    alone = drawn(tmp_path / "alone", "++cluster.workers.0.overrides.num_workers=0")
    assert set(alone) == set(by_workers)
    assert len({reader for reader in alone.values() if reader}) == RANKS  # the ranks themselves


def test_no_loader_process_is_left_of_a_rank_that_is_killed(tmp_path: Path) -> None:
    with command(project(tmp_path / "project"), *JOB, "trainer.num_epochs=100000", "membership.max_failure=1") as run:
        run.trains()
        rank = run.rank(1)
        loaders = loaders_of(run, rank)
        assert len(loaders) == 2
        os.kill(rank, signal.SIGKILL)
        wait_gone(loaders, GONE_SECONDS)
        assert run.end(30.0) == 4
        wait_gone(run.family, GONE_SECONDS)


def test_a_run_that_is_stopped_leaves_no_loader_process(tmp_path: Path) -> None:
    with command(project(tmp_path / "project"), *JOB, "trainer.num_epochs=100000") as run:
        run.trains()
        for loader in loaders_of(run, run.rank(0)):
            os.kill(loader, signal.SIGTERM)  # as a signal to the rank's group would
        run.signal(signal.SIGTERM)
        assert run.end(30.0) == 75, run.output
        wait_gone(run.family, GONE_SECONDS)
        assert run.result["status"] == "interrupted"


def test_a_sample_that_cannot_be_read_is_named_with_its_data_set(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    broken = MODULE.replace("        return {", "        assert index != 77, 'a torn file'\n        return {")
    (folder / "mine.py").write_text(broken)
    with command(folder, *JOB) as run:
        assert run.end(120) != 0
        assert "dataset=mine.noise: sample 77 cannot be read: AssertionError: a torn file" in run.output
