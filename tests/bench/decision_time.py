"""How long the coordinator thinks: `python -m tests.bench.decision_time [ranks]`.

Prints median, 99th percentile and longest decision per kind of event for each mode in virtual time, in milliseconds of
this thread's processor time; "(a whole round)" are the decisions that accept a round and order windows for all ranks.
Exit 1 where their median is 1 ms or more in a mode.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict

from flodl import drive
from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import Command, Event, RunWindow
from flodl.sim import Costs, VirtualWorld
from flodl.spec.job import TrainerConfig
from tests.scenarios.rigs import job_of, places_of

LIMIT_MS = 1.0
WHOLE_ROUND = "(a whole round)"


class Timed(Coordinator):
    """A coordinator with a stop watch."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.took_ms: dict[str, list[float]] = defaultdict(list)

    def handle(self, event: Event) -> tuple[Command, ...]:
        began = time.thread_time()
        commands = super().handle(event)
        took_ms = (time.thread_time() - began) * 1000.0
        self.took_ms[type(event).__name__].append(took_ms)
        if any(isinstance(command, RunWindow) for command in commands):
            self.took_ms[WHOLE_ROUND].append(took_ms)
        return commands


def measure(mode: str, num_ranks: int) -> dict[str, list[float]]:
    """Milliseconds of every decision of one virtual run, by event."""
    job = job_of(mode, trainer=TrainerConfig(num_epochs=3, batch_size=8))
    places = places_of([8] * num_ranks)
    costs = Costs(
        ms_per_batch=tuple(5.0 + rank % 7 for rank in range(num_ranks)), num_samples=8 * 200 * num_ranks, jitter=0.1
    )
    coordinator = Timed(job, places)
    drive.run(coordinator, VirtualWorld(job, places, costs))
    return coordinator.took_ms


def main(num_ranks: int) -> int:
    """Print the table; 0 when every mode's whole rounds are, by their median, within the limit."""
    over = 0
    print(f"{num_ranks} ranks: milliseconds per decision")
    print(f"{'mode':<12} {'event':<16} {'count':>7} {'median':>8} {'p99':>8} {'longest':>8}")
    for mode in ("cpu_cadence", "cpu_async", "cpu_sync"):
        took = measure(mode, num_ranks)
        everything = [ms for name, listed in took.items() if name[0] != "(" for ms in listed]
        for name, listed in [*sorted(took.items()), ("all", everything)]:
            ordered = sorted(listed)
            p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
            median = statistics.median(ordered)
            print(f"{mode:<12} {name:<16} {len(ordered):>7} {median:>8.3f} {p99:>8.3f} {ordered[-1]:>8.3f}")
        over += statistics.median(took[WHOLE_ROUND]) >= LIMIT_MS
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 64))
