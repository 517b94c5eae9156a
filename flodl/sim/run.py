"""Run a job in virtual time: the same coordinator, another world, no hardware and no waiting."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flodl import drive
from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import Command, End, EpochEnded, Event
from flodl.decide.roster import Place
from flodl.decide.totals import EpochMetrics
from flodl.sim.costs import Costs, Fault, costs_of
from flodl.sim.world import VirtualWorld
from flodl.spec.job import JobSpec

__all__ = ["Simulated", "simulate"]


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulated run came to. journal: every event with what followed from it."""

    end: End
    epochs: tuple[EpochMetrics, ...]
    journal: tuple[tuple[Event, tuple[Command, ...]], ...]
    seconds: float


def simulate(
    job: JobSpec,
    roster: Sequence[Place],
    costs: Costs | None = None,
    faults: Sequence[Fault] = (),
    *,
    end_by: tuple[float, str] | None = None,
) -> Simulated:
    """Run `job` on `roster` in virtual time. costs: of the job's ``sim`` block unless given.

    end_by: seconds from the start by which the run has to be over, and the rule that says so.
    """
    journal: list[tuple[Event, tuple[Command, ...]]] = []
    world = VirtualWorld(job, roster, costs or costs_of(job, roster), faults)
    if end_by is not None:
        world.end_by(*end_by)
    end = drive.run(Coordinator(job, roster), world, [lambda event, commands: journal.append((event, commands))])
    world.close()
    return Simulated(
        end=end,
        epochs=tuple(c.metrics for _, commands in journal for c in commands if isinstance(c, EpochEnded)),
        journal=tuple(journal),
        seconds=world.now,
    )
