"""The control plane: how many messages a round costs, and what a replayed journal says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest

from flodl import drive
from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import Average, AveragingDone, Command, Event, RunWindow, WindowDone
from flodl.sim import Costs, Fault, Simulated, simulate
from flodl.spec.job import TrainerConfig
from tests.scenarios.rigs import job_of, places_of

MODES = ("cpu_cadence", "cpu_async", "cpu_sync")
COSTS = Costs(ms_per_batch=(10.0, 25.0, 14.0), num_samples=3000, jitter=0.2)


def run(mode: str, faults: Iterable[Fault] = ()) -> Simulated:
    job = job_of(mode, trainer=TrainerConfig(num_epochs=3, batch_size=10))
    return simulate(job, places_of([10] * 3), COSTS, tuple(faults))


@pytest.mark.parametrize("mode", MODES)
def test_a_round_costs_at_most_two_messages_each_way_per_rank(mode: str) -> None:
    up: Counter[tuple[int, int]] = Counter()
    down: Counter[tuple[int, int]] = Counter()
    for event, commands in run(mode).journal:
        if isinstance(event, WindowDone | AveragingDone):
            up[event.rank, event.round] += 1
        for command in commands:
            if isinstance(command, RunWindow | Average):
                number = command.round if isinstance(command, Average) else command.rounds[-1].number
                down.update((rank, number) for rank in command.to)
    assert max(up.values()) <= 2
    assert max(down.values()) <= 2
    assert up.keys() == down.keys(), "every order is answered"


def test_evaluations_cost_no_message_of_their_own() -> None:
    others = {"RankReady", "GroupFormed", "WindowDone", "AveragingDone", "Goodbye", "BundleKept"}
    done = run("cpu_cadence")
    assert {type(event).__name__ for event, _ in done.journal} == others
    assert done.end.totals.eval == {"accuracy": 0.9}


FAULTS = (
    Fault(kind="death", rank=1, on="Average", nth=4, after_ms=1.0),
    Fault(kind="duplicate", rank=0, lasts_ms=100.0),
    Fault(kind="late", rank=2, lasts_ms=5.0),
)


@pytest.mark.parametrize("mode", MODES)
def test_a_replayed_journal_gives_the_same_commands_also_after_the_wire(mode: str) -> None:
    done = run(mode, FAULTS)
    assert done.end.status in ("done", "degraded")
    events = [event for event, _ in done.journal]
    wired = msgspec.json.decode(msgspec.json.encode(events), type=list[Event])
    job = job_of(mode, trainer=TrainerConfig(num_epochs=3, batch_size=10))
    assert list(drive.replay(wired, job, places_of([10] * 3))) == [commands for _, commands in done.journal]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_mind_restored_in_the_middle_goes_on_as_the_old_one(mode: str, part: float) -> None:
    done = run(mode, FAULTS)
    job = job_of(mode, trainer=TrainerConfig(num_epochs=3, batch_size=10))
    middle = int(len(done.journal) * part)
    old, fresh = Coordinator(job, places_of([10] * 3)), Coordinator(job, places_of([10] * 3))
    for event, _ in done.journal[:middle]:
        old.handle(event)
    fresh.restore(json.loads(json.dumps(old.snapshot())))
    said: list[tuple[Command, ...]] = [fresh.handle(event) for event, _ in done.journal[middle:]]
    assert said == [commands for _, commands in done.journal[middle:]]


@pytest.mark.parametrize("mode", MODES)
def test_every_command_carries_a_reason_and_survives_the_wire(mode: str) -> None:
    for _, commands in run(mode, FAULTS).journal:
        for command in commands:
            assert command.reason
            assert msgspec.json.decode(msgspec.json.encode(command), type=Command) == command


def test_the_same_seed_gives_the_same_run() -> None:
    assert run("cpu_async", FAULTS) == run("cpu_async", FAULTS)
