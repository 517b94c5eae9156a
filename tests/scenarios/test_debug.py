"""Shortened and repeatable runs in virtual time, in every mode."""

from __future__ import annotations

from typing import Any

import pytest

from flodl.decide.messages import Average, RunWindow
from flodl.sim.costs import Costs
from flodl.sim.run import Simulated, simulate
from flodl.spec.debug import DebugConfig
from flodl.spec.job import TrainerConfig
from tests.scenarios.rigs import job_of, places_of

MODES = ("cpu_sync", "cpu_cadence", "cpu_async", "nccl_sync", "nccl_cadence")
SIZES = (10, 10, 5)


def run(mode: str, *, ms: tuple[float, ...] = (10.0, 25.0, 40.0), seed: int = 0, **blocks: Any) -> Simulated:
    costs = Costs(ms_per_batch=ms, num_samples=1200, jitter=0.2, seed=seed)
    return simulate(job_of(mode, **blocks), places_of(SIZES), costs)


def plan(run: Simulated) -> list[Any]:
    """What each rank was told to train, in order, and how each round was weighed."""
    told: list[Any] = []
    for _, commands in run.journal:
        for command in commands:
            if isinstance(command, RunWindow):
                told.append((command.to, command.rounds))
            elif isinstance(command, Average):
                told.append((command.round, command.masses))
    return sorted(told, key=str)


@pytest.mark.parametrize("mode", MODES)
def test_limit_batches_shortens_every_epoch(mode: str) -> None:
    trainer = TrainerConfig(batch_size=10, num_epochs=2, limit_batches=13)
    ended = run(mode, trainer=trainer)
    assert ended.end.status == "done"
    assert [epoch.samples for epoch in ended.epochs] == [130, 130]
    assert ended.end.totals.samples_done == 260


@pytest.mark.parametrize("mode", MODES)
def test_a_run_of_two_windows_has_the_shortest_ones(mode: str) -> None:
    ended = run(mode, trainer=TrainerConfig(batch_size=10), debug=DebugConfig(max_windows=2))
    assert (ended.end.status, ended.end.exit_code) == ("stopped", 0)
    assert "debug.max_windows=2" in ended.end.reason
    orders = [command for _, commands in ended.journal for command in commands if isinstance(command, RunWindow)]
    assert len(orders) == 2 * len(SIZES)
    slowest = [order for order in orders if order.to == (2,)]
    assert slowest[0].rounds[0].batches <= 1


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "cpu_async"])
def test_no_measured_time_decides_anything_in_a_deterministic_run(mode: str) -> None:
    trainer = TrainerConfig(batch_size=10, num_epochs=3, deterministic=True)
    runs = [run(mode, ms=ms, seed=seed, trainer=trainer) for seed, ms in enumerate([(10, 25, 40), (30, 9, 10)])]
    assert plan(runs[0]) == plan(runs[1])
    measured = [run(mode, ms=ms, trainer=TrainerConfig(batch_size=10)) for ms in [(10, 25, 40), (30, 9, 10)]]
    assert plan(measured[0]) != plan(measured[1])
