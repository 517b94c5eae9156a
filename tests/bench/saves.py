"""What saving every 20 rounds costs a run: `python -m tests.bench.saves [--turns 7] [--mode cpu_cadence]`.

Two CPU ranks with one thread each, resnet20, epochs of exactly 20 rounds. Each turn runs the same job twice, in
alternating order: with a bundle after every epoch, and without any. Time is the controller's, from the first window to
the last accepted round, so that nothing of a save is left out. Prints the median quotient and what one save takes: of
the training thread (the copy), from its order to the bundle in place, and of all processes' CPU time. Exit 1 where the
median is above 1.02.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from flodl.decide.messages import BundleKept, Command, Event, Finish, RunWindow, SaveBegun, WindowDone
from flodl.record.journal import read_journal

LIMIT = 1.02
ROUNDS, ANCHOR, BATCH = 20, 4, 16
SAMPLES = ROUNDS * 2 * ANCHOR * BATCH
JOB = (
    "cluster.workers=[{host: localhost, local_devices: 'cpu:2'}]",
    "model=resnet20",
    "dataset=synthetic",
    f"dataset.num_samples={SAMPLES}",
    f"trainer.batch_size={BATCH}",
    f"elche.anchor={ANCHOR}",
    f"elche.min_anchor={ANCHOR}",
    f"elche.max_anchor={ANCHOR}",
    "elche.split=equal",
    "eval=off",
)


class Save(NamedTuple):
    """One save beside training, in ms. copy: of the training thread. whole: from its order to the bundle in place."""

    copy: float
    whole: float


class Run(NamedTuple):
    """seconds: from the first window to the last accepted round. cpu: of all processes, start and end included."""

    seconds: float
    cpu: float
    rounds: int
    saves: list[Save]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--mode", default="cpu_cadence", choices=["cpu_cadence", "cpu_async", "cpu_sync"])
    args = parser.parse_args()
    quotients: list[float] = []
    cpu: list[float] = []
    saves: list[Save] = []
    for turn in range(args.turns):
        order = (1, None) if turn % 2 else (None, 1)
        done = {every: run(args.mode, args.epochs, every) for every in order}
        quotients.append(done[1].seconds / done[None].seconds)
        cpu.append((done[1].cpu - done[None].cpu) / len(done[1].saves) * 1000.0)
        saves += done[1].saves
        print(f"{done[1].seconds:.2f} s with {len(done[1].saves)} saves in {done[1].rounds} rounds, "
              f"{done[None].seconds:.2f} s without: {quotients[-1]:.4f}", flush=True)  # fmt: skip
    copy, whole = (median(times) for times in zip(*saves, strict=True))
    found = median(quotients)
    print(f"with / without saves: median {found:.4f}; one save: {copy:.1f} ms of the training thread, "
          f"{whole:.0f} ms until the bundle is in place, {median(cpu):.0f} ms of CPU time")  # fmt: skip
    return int(found > LIMIT)


def run(mode: str, epochs: int, every: int | None) -> Run:
    """The job, with a bundle after every so many epochs."""
    told = "null" if every is None else every
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "flodl", *JOB, f"elche.mode={mode}", f"trainer.num_epochs={epochs}"]
        command += [f"checkpoint.every_epochs={told}", f"hydra.run.dir={folder}/run"]
        began = _cpu_seconds()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
        return _measured(read_journal(Path(folder, "run", "journal.jsonl"))[1], _cpu_seconds() - began)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _measured(entries: list[tuple[Event, tuple[Command, ...]]], cpu: float) -> Run:
    windows = [(event.at, order) for event, orders in entries for order in orders if isinstance(order, RunWindow)]
    over = next(event.at for event, orders in entries if any(isinstance(order, Finish) for order in orders))
    rounds = max(order.rounds[-1].number for _, order in windows)
    return Run(over - windows[0][0], cpu, rounds, list(_saves(entries, over)))


def _saves(entries: list[tuple[Event, tuple[Command, ...]]], over: float) -> Iterator[Save]:
    """Those that were ordered before training was over."""
    ordered = {
        order.round: (event.at, order.rank)
        for event, orders in entries
        for order in orders
        if isinstance(order, SaveBegun) and event.at < over
    }
    kept = {event.round: event.at for event, _ in entries if isinstance(event, BundleKept)}
    copies = {(event.rank, event.round): event.callback_ms for event, _ in entries if isinstance(event, WindowDone)}
    for number, (at, rank) in ordered.items():
        after = min((round_ for who, round_ in copies if who == rank and round_ > number), default=None)
        if number in kept and after is not None:
            yield Save(copies[rank, after], (kept[number] - at) * 1000.0)


if __name__ == "__main__":
    sys.exit(main())
