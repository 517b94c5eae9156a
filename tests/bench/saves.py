"""What saving every 20 rounds costs a run: `python -m tests.bench.saves [--turns 7] [--mode cpu_cadence]`.

Two CPU ranks with one thread each, resnet20, epochs of 5 rounds, a bundle after every second epoch. So what a save
costs is measured within one run, beside rounds of the same minute: an epoch in which a save is under way against the
two beside it. (Two runs, one with saves and one without, differ by more than that for other reasons.) Time is the
controller's, so that nothing of a save is left out. Prints the median, what it is of the time of 20 rounds, and what
one save takes: of the training thread (the copy), and from its order to the bundle in place. Exit 1 above 2 %.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from flodl.decide.messages import BundleKept, Command, Event, Finish, RunWindow, SaveBegun, WindowDone
from flodl.record.journal import read_journal

LIMIT = 0.02
EVERY = 20  # rounds between two saves, of which a save's share is told
ROUNDS, ANCHOR, BATCH = 5, 4, 16
SAMPLES = ROUNDS * 2 * ANCHOR * BATCH
SETTLED = 4  # epochs until quotas and caches are
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
    """In ms. extra: of each epoch with a save, how much longer it took than its neighbours. rounds: EVERY of them."""

    extra: list[float]
    rounds: float
    saves: list[Save]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--mode", default="cpu_cadence", choices=["cpu_cadence", "cpu_async", "cpu_sync"])
    args = parser.parse_args()
    runs: list[Run] = []
    for _ in range(args.turns):
        runs.append(run(args.mode, args.epochs))
        extra, rounds, saves = runs[-1]
        print(f"{len(saves)} saves: {median(extra):.1f} ms each, {EVERY} rounds: {rounds:.0f} ms", flush=True)
    extra = sorted(value for one in runs for value in one.extra)
    rounds = median(one.rounds for one in runs)
    copy, whole = (median(times) for times in zip(*(save for one in runs for save in one.saves), strict=True))
    error = 1.25 * (extra[int(0.84 * len(extra))] - extra[int(0.16 * len(extra))]) / 2 / len(extra) ** 0.5
    share = median(extra) / rounds
    print(f"a save every {EVERY} rounds adds {share:.2%} (+- {error / rounds:.2%}): {median(extra):.1f} ms; "
          f"{copy:.1f} ms of the training thread, {whole:.0f} ms until the bundle is in place")  # fmt: skip
    return int(share > LIMIT)


def run(mode: str, epochs: int) -> Run:
    """The job once."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "flodl", *JOB, f"elche.mode={mode}", f"trainer.num_epochs={epochs}"]
        command += ["checkpoint.every_epochs=2", f"hydra.run.dir={folder}/run"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
        return _measured(read_journal(Path(folder, "run", "journal.jsonl"))[1])


def _measured(entries: list[tuple[Event, tuple[Command, ...]]]) -> Run:
    begun: dict[int, float] = {}
    saving: set[int] = set()
    for event, orders in entries:
        for order in orders:
            if isinstance(order, RunWindow):
                begun.setdefault(order.epoch, event.at * 1000.0)
            elif isinstance(order, SaveBegun):
                saving.add(order.epoch)
    over = next(event.at for event, orders in entries if any(isinstance(order, Finish) for order in orders))
    took = {epoch: end - begin for (epoch, begin), (_, end) in pairwise(sorted(begun.items()))}
    settled = range(SETTLED, max(took))
    extra = [took[n] - (took[n - 1] + took[n + 1]) / 2 for n in settled if n in saving]
    rounds = median(took[n] for n in settled if n not in saving) * EVERY / ROUNDS
    return Run(extra, rounds, list(_saves(entries, over)))


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
