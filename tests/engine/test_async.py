"""cpu_async in real processes: holds, overshoot, and a closed form that no timing may change."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from flodl.decide.ledger import cut_batches
from flodl.decide.messages import AveragingDone, Cut, Range, WindowDone
from flodl.engine.reading import permutation
from tests.engine import rig

BATCH = 4
ROUNDS = 8
QUOTAS = (3, 1)


class Counter(nn.Module):
    """A weight that a step moves by the batch's mean sample: what was trained can be read off it."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([value], dtype=torch.float64))

    @property
    def value(self) -> float:
        return float(self.weight.detach())


class PacedStep:
    """The gradient does not depend on the weight; each step takes a while."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, model: Counter, batch: tuple[Tensor, ...]) -> Tensor:
        time.sleep(self.seconds)
        return -(model.weight * batch[0].mean()).sum()


def data(samples: int) -> TensorDataset:
    return TensorDataset(torch.arange(samples, dtype=torch.float64))


def worth(ranges: list[Range], samples: int) -> list[float]:
    """By how much each batch of `ranges` moves the weight."""
    order = permutation(0, 0, samples)
    batches = cut_batches(ranges, BATCH)
    return [float(order[[p for piece in batch for p in range(piece.start, piece.stop)]].mean()) for batch in batches]


def dealt(rank: int) -> list[Range]:
    """Everything that a rank holds: a stretch of its own, long enough for all rounds."""
    width = (ROUNDS + 4) * sum(QUOTAS) * BATCH
    return [Range(0, rank * width, (rank + 1) * width)]


def script(rank: int, overshoot: int, rounds: int = ROUNDS) -> list[Any]:
    """Windows at planned points, each restating the rest of the rank's stretch."""
    start, stop = dealt(rank)[0].start, dealt(rank)[0].stop
    orders: list[Any] = [rig.form((0, 1))]
    for number in range(1, rounds + 1):
        first = start + (number - 1) * QUOTAS[rank] * BATCH
        last = number == rounds
        held = [(0, first, first + QUOTAS[rank] * BATCH if last else stop)]
        orders += [
            rig.window(number, QUOTAS[rank], held, max_overshoot=0 if last else min(overshoot, QUOTAS[rank])),
            rig.After(WindowDone, number),
            rig.average(number, QUOTAS, consensus=last),
            rig.After(AveragingDone, number),
        ]
    return [*orders, rig.finish()]


def run(overshoot: int, store: Path, paces: tuple[float, float], **options: Any) -> list[Any]:
    samples = dealt(1)[0].stop

    def work(rank: int) -> Any:
        link = rig.ScriptedLink(script(rank, overshoot), store)
        model = Counter(float(rank))
        rig.make_loop(
            rank,
            link,
            rule="elastic",
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
            step=PacedStep(paces[rank]),
            data=data(samples),
            batch_size=BATCH,
            **options,
        ).run()
        return model.value, [event.batches for event in link.told(WindowDone)], link.progress

    return rig.run_ranks(2, work)


def closed_form() -> float:
    """Each round adds the weighted mean of what the ranks did between its planned points; nothing else."""
    samples = dealt(1)[0].stop
    gains = [worth(dealt(rank), samples) for rank in (0, 1)]
    total = 0.0
    for number in range(ROUNDS):
        for rank, quota in enumerate(QUOTAS):
            total += quota / sum(QUOTAS) * sum(gains[rank][number * quota : (number + 1) * quota])
    return total


@pytest.mark.parametrize("overshoot", [0, 1, 3])
@pytest.mark.parametrize("paces", [(0.001, 0.003), (0.004, 0.001)], ids=["balanced", "inverted"])
def test_no_batch_is_lost_or_counted_twice_whatever_the_timing(
    overshoot: int, paces: tuple[float, float], tmp_path: Path
) -> None:
    answers = run(overshoot, tmp_path / "store", paces)
    for rank, (weight, batches, _) in enumerate(answers):
        assert batches == [QUOTAS[rank]] * ROUNDS
        assert weight == pytest.approx(closed_form(), rel=1e-12)


def test_elastic_blending_ends_with_the_exact_weighted_mean_on_every_rank(tmp_path: Path) -> None:
    answers = run(2, tmp_path / "store", (0.001, 0.001), alpha=0.5, beta=0.5)
    assert answers[0][0] == answers[1][0]


def alone(orders: list[Any], store: Path) -> tuple[rig.Record, float]:
    """What a rank said whose rounds are averaged with nobody, and its weight at the end."""

    def work(rank: int) -> tuple[rig.Record, float]:
        link = rig.ScriptedLink([rig.form((0,)), *orders], store)
        model = Counter()
        rig.make_loop(
            rank,
            link,
            rule="elastic",
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
            step=PacedStep(0.0),
            data=data(400),
            batch_size=BATCH,
        ).run()
        return link.record(), model.value

    return rig.run_ranks(1, work)[0]


def test_a_rank_runs_ahead_by_the_overshoot_and_is_then_held(tmp_path: Path) -> None:
    progress: list[int] = []

    def at_rest(link: rig.ScriptedLink) -> bool:
        """True once the rank has not moved for a while; by then it has run all it may: 2 and 3."""
        progress.append(link.progress)
        rests = len(progress) > 20 and len(set(progress[-20:])) == 1
        assert not rests or progress[-1] == 5
        return rests

    orders = [rig.window(1, 2, [(0, 0, 400)], max_overshoot=3), rig.After(WindowDone, 1), at_rest, rig.average(1, [1])]
    orders += [rig.After(AveragingDone, 1), rig.window(2, 4, [(0, 8, 400)]), rig.After(WindowDone, 2)]
    link, weight = alone([*orders, rig.average(2, [1]), rig.After(AveragingDone, 2), rig.finish()], tmp_path / "store")
    windows = link.told(WindowDone)
    assert [window.batches for window in windows] == [2, 4]
    assert windows[1].idle_ms > 0
    assert weight == pytest.approx(sum(worth([Range(0, 0, 24)], 400)))


def test_a_planned_point_already_passed_is_reported_at_once_with_what_was_really_run(tmp_path: Path) -> None:
    ran = rig.Reached(4)
    orders = [rig.window(1, 1, [(0, 0, 400)], max_overshoot=3), rig.After(WindowDone, 1), ran, rig.average(1, [1])]
    orders += [rig.After(AveragingDone, 1), rig.window(2, 2, [(0, 4, 400)]), rig.After(WindowDone, 2)]
    link, _ = alone([*orders, rig.average(2, [1]), rig.After(AveragingDone, 2), rig.finish()], tmp_path / "store")
    assert [window.batches for window in link.told(WindowDone)] == [1, 3]
    assert [window.round for window in link.told(WindowDone)] == [1, 2]


def test_a_cut_ends_the_window_and_the_running_ahead(tmp_path: Path) -> None:
    cut = Cut(to=(0,), reason="test")
    orders = [rig.window(1, 1000, [(0, 0, 400)], max_overshoot=5), rig.Reached(3), cut, rig.After(WindowDone, 1)]
    link, _ = alone([*orders, rig.average(1, [1]), rig.After(AveragingDone, 1), rig.finish()], tmp_path / "store")
    (window,) = link.told(WindowDone)
    assert 3 <= window.batches < 100
    assert link.progress == window.batches
