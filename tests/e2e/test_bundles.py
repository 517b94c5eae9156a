"""Bundles in real runs: when they come, which stay, what is refused of them, and what a run says that has lost all."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch

from flodl.decide.messages import BundleKept, SaveBegun, WindowDone
from flodl.record.bundle import BundleStore
from tests.e2e.command import command
from tests.e2e.journals import audit, carried_out, end_of, journal, saves

MINUTES = 0.03  # 1.8 s
FAILED = 4  # and there is a bundle
REFUSED = 2
FEW = ("cluster.workers=[{host: localhost, local_devices: 'cpu:2'}]", "model=mlp", "eval=off", "elche=cpu_cadence")
FEW += ("trainer.batch_size=16", "trainer.limit_batches=4")


def of(folder: Path) -> BundleStore:
    return BundleStore(folder / "checkpoints")


def judged(folder: Path) -> list[float]:
    """The accuracies of rounds that were evaluated and saved."""
    evaluating: dict[int, int] = {}  # rank -> round
    found: dict[int, float] = {}
    kept: set[int] = set()
    for event, orders in journal(folder):
        if isinstance(event, BundleKept) and not event.error:
            kept.add(event.round)
        if isinstance(event, WindowDone) and event.rank in evaluating and event.callbacks:
            found[evaluating.pop(event.rank)] = event.callbacks[0].values["accuracy"]
        evaluating |= {order.rank: order.round for order in orders if isinstance(order, SaveBegun) and order.evaluates}
    return [value for number, value in found.items() if number in kept]


def test_saves_by_the_clock_the_best_stays_and_what_is_left_when_all_ranks_are_lost_says_so(tmp_path: Path) -> None:
    """Then another run goes on from it."""
    job = ("cluster=rehearsal", "model=mlp", "elche=cpu_cadence", "trainer.batch_size=4", "trainer.num_epochs=100000")
    job += ("checkpoint.every_epochs=null", f"checkpoint.every_minutes={MINUTES}", "checkpoint.keep=1")
    job += ("checkpoint.best.metric=accuracy", "hydra.run.dir=run")
    first = tmp_path / "run"
    with command(tmp_path, *job) as run:
        run.trains()
        run.until(lambda: [order.why for _, order in saves(first)].count("checkpoint") > 1)
        run.until(lambda: any(order.why == "best" for _, order in saves(first)))
        run.until(lambda: len(of(first).bundles()) > 1)
        for pid in [run.rank(number) for number in (0, 1)]:  # who is gone is counted no more
            os.kill(pid, signal.SIGKILL)
        assert run.end(60) == FAILED, run.output
    told = saves(first)
    by_clock = [at for at, order in told if order.why == "checkpoint"]
    assert all(later - earlier >= MINUTES * 60.0 for earlier, later in pairwise(by_clock))
    newest, *others = of(first).bundles()
    assert newest.meta.reason == "all_ranks_lost"
    assert of(first).fault(newest) is None
    figures = [bundle.meta.figures["accuracy"] for bundle in (newest, *others) if bundle.meta.figures]
    assert max(figures) == max(judged(first))
    assert len(others) <= 1
    assert not list(first.glob("checkpoints/.*.tmp"))  # of a save that the ranks took with them
    goal = f"trainer.num_epochs={newest.meta.epoch + 2}"
    carried_out(tmp_path, "task=resume", "run=run", goal, "eval=off", "hydra.run.dir=second")
    assert audit(tmp_path / "second") == (0, 0)
    assert end_of(tmp_path / "second").totals.epochs_done == newest.meta.epoch + 2


class Canary:
    """What a pickle could do."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, ("canary",)


def test_what_is_damaged_foreign_or_newer_is_refused_by_name_and_latest_valid_says_what_it_passes_over(
    tmp_path: Path,
) -> None:
    carried_out(tmp_path, *FEW, "trainer.num_epochs=60", "checkpoint.keep=null", "hydra.run.dir=first")
    newest, second, third, fourth, *_ = of(tmp_path / "first").bundles()
    model = newest.path("model")
    assert model is not None
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    torch.save(Canary(), second.meta_path)
    third.meta_path.write_text(third.meta_path.read_text().replace('"schema": 1', '"schema": 2'))
    resume = ("task=resume", "run=first", "trainer.num_epochs=62")
    with command(tmp_path, *resume, "hydra.run.dir=no") as run:
        assert run.end(60) == REFUSED, run.output
        told = " ".join(run.output.split())
    assert f"{model.name}: is damaged: its SHA-256 is " in told
    assert "checkpoint.resume=latest_valid takes the newest one that is whole" in told
    output = carried_out(tmp_path, *resume, "checkpoint.resume=latest_valid", "hydra.run.dir=second")
    told = [line for line in output.splitlines() if line.startswith("passed over: ")]
    words = (f"{model.name}: is damaged: its SHA-256", "is damaged: no JSON", "has schema 2, and this flodl reads 1")
    assert all(word in line for word, line in zip(words, told, strict=True))
    assert not (tmp_path / "canary").exists()
    assert f"going on from {fourth.meta_path}" in output
    assert audit(tmp_path / "second") == (0, 0)
    assert end_of(tmp_path / "second").totals.samples_done == 62 * 4 * 16
