"""Who judges the runs is judged: the oracle gives the closed form, and whatever is left behind is seen."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from flodl.decide.messages import Average, AveragingDone, GroupFormed, Range, Round, RunWindow, WindowDone
from flodl.engine.reading import permutation
from tests.chaos.leaks import Sweep
from tests.chaos.oracle import Told, learnt

BATCH, SAMPLES = 4, 16


def window(rank: int, number: int, start: int, stop: int, **more: object) -> RunWindow:
    rounds = (Round(number, (stop - start) // BATCH, 0, SAMPLES),)
    return RunWindow(
        to=(rank,), generation=1, rounds=rounds, ranges=(Range(0, start, stop),), epoch=0, reason="", **more
    )  # type: ignore[arg-type]


def done(rank: int, number: int, samples: int) -> WindowDone:
    return WindowDone(
        at=0.0, rank=rank, generation=1, round=number, batches=samples // BATCH, samples=samples, timed_batches=1,
        timed_ms=1.0, compute_ms=1.0,
    )  # fmt: skip


def averaged(rank: int, number: int, generation: int = 1, nonfinite: str = "") -> AveragingDone:
    return AveragingDone(
        at=0.0, rank=rank, generation=generation, round=number, divergence=0.0, exposed_ms=0.0, duration_ms=0.0,
        nonfinite=nonfinite,
    )  # fmt: skip


def average(ranks: tuple[int, ...], masses: tuple[float, ...], generation: int = 1) -> Average:
    return Average(to=ranks, generation=generation, round=1, masses=masses, reason="")


START = (averaged(0, 0), (window(0, 1, 0, 12), window(1, 1, 12, 16)))
REPORTS = [(done(0, 1, 12), ()), (done(1, 1, 4), (average((0, 1), (12.0, 4.0)),))]


def positions(told: Told) -> np.ndarray:
    """The weights in the order of the epoch, in parts of what a batch alone would give."""
    return learnt(told, SAMPLES, BATCH, rate=1.0).weights[permutation(0, 0, SAMPLES)] * BATCH


def test_replicas_are_weighed_by_their_samples() -> None:
    told = [START, *REPORTS, (averaged(0, 1), ()), (averaged(1, 1), ())]
    np.testing.assert_allclose(positions(told), [0.75] * 12 + [0.25] * 4)


def test_a_round_that_nobody_holds_counts_as_it_was_repeated() -> None:
    formed = GroupFormed(at=0.0, rank=0, generation=2, last_round=0)
    told = [START, *REPORTS, (formed, (average((0,), (12.0,), 2),)), (averaged(0, 1, 2), ())]
    np.testing.assert_allclose(positions(told), [1.0] * 12 + [0.0] * 4)


def test_a_round_that_is_never_held_is_none_and_what_is_not_finite_has_no_weight() -> None:
    assert not positions([START, *REPORTS]).any()
    told = [START, *REPORTS, (averaged(0, 1, nonfinite="weight"), ()), (averaged(1, 1), ())]
    np.testing.assert_allclose(positions(told), [0.0] * 12 + [1.0] * 4)


def test_rounds_of_a_grant_count_up_to_the_last_that_was_finished() -> None:
    rounds = (Round(1, 1, 0, 8), Round(2, 1, 8, 8))
    orders = tuple(
        RunWindow(to=(rank,), generation=1, rounds=rounds, ranges=(Range(0, start, start + 8),), alone=True, epoch=0,
                  reason="")
        for rank, start in ((0, 0), (1, 8))
    )  # fmt: skip
    told = [(averaged(0, 0), orders), (GroupFormed(at=0.0, rank=0, generation=2, last_round=1), ())]
    np.testing.assert_allclose(positions(told), [0.5] * 4 + [0.0] * 4 + [0.5] * 4 + [0.0] * 4)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("run", "tmp"):
        (tmp_path / name).mkdir()
    return tmp_path / "run", tmp_path / "tmp"


def test_nothing_is_left_where_nothing_is(places: tuple[Path, Path]) -> None:
    assert Sweep(*places).left() == []


def test_whatever_is_left_is_named(places: tuple[Path, Path]) -> None:
    sweep, (folder, tmp) = Sweep(*places), places
    ended = threading.Event()
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        threading.Thread(target=ended.wait, name="flodl-left").start()
        sockets = [socket.socket() for _ in range(20)]
        (folder / ".x.tmp").touch()
        (tmp / "anything").touch()
        sweep.look()
        own = Path("/dev/shm") / f"test_{child.pid}_left"
        own.touch()
        try:
            left = "; ".join(sweep.left())
        finally:
            own.unlink()
            ended.set()
            for one in sockets:
                one.close()
            child.communicate(b"")
    for named in (f"process {child.pid}", "thread flodl-left", "descriptors", own.name, ".x.tmp", "anything"):
        assert named in left
