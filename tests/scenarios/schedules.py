"""Random fault schedules: a small run of any mode, and whatever may go wrong in it, from one seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from flodl import drive
from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import BundleKept, Command, End, Event, SaveBegun
from flodl.decide.roster import Place
from flodl.sim import Costs, Fault, SpeedChange, VirtualWorld
from flodl.sim.collective import Contribution
from flodl.spec.job import JobSpec, MembershipConfig, TrainerConfig
from tests.scenarios.rigs import job_of, places_of

__all__ = ["Schedule", "check", "schedule_of"]

MODES = ("cpu_cadence", "cpu_async", "cpu_sync", "cpu_cadence", "cpu_async")
PHASES = ("FormGroup", "RunWindow", "Average", "Finish")
OF_REPLACEMENTS = ("stillborn", "unready", "foreign")


class Schedule:
    """One seed's run and its faults."""

    def __init__(self, seed: int, job: JobSpec, places: tuple[Place, ...], costs: Costs, faults: list[Fault]) -> None:
        self.seed, self.job, self.places, self.costs, self.faults = seed, job, places, costs, faults


def schedule_of(seed: int) -> Schedule:
    """The schedule of `seed`: 1 to 5 ranks, 1 to 3 epochs of 8 to 40 batches, 1 to 5 faults in any phase."""
    random = Random(seed)
    num_ranks = random.randint(1, 5)
    sizes = [random.choice((4, 4, 4, 8))] * num_ranks
    if random.random() < 0.25:
        sizes = [random.choice((2, 4, 6)) for _ in range(num_ranks)]
    elche: dict[str, object] = {"anchor": random.choice((1, 2, 4))}
    mode = random.choice(MODES)
    if mode == "cpu_cadence" and random.random() < 0.2:
        elche["average"] = "gradients"
    if mode != "cpu_sync" and random.random() < 0.2:
        elche["split"] = "equal"
    if mode == "cpu_sync" and random.random() < 0.5:
        elche["split"] = "proportional"
    if mode == "cpu_sync" and random.random() < 0.3:
        elche["average"] = "parameters"
    job = job_of(
        mode,
        elche=elche,
        trainer=TrainerConfig(num_epochs=random.randint(1, 3), batch_size=4),
        membership=_membership(random),
    )
    costs = Costs(
        ms_per_batch=tuple(random.uniform(1.0, 10.0) for _ in range(num_ranks)),
        averaging_ms=random.choice((0.5, 5.0, 40.0)),
        form_ms=random.choice((1.0, 20.0)),
        eval_ms=random.choice((1.0, 30.0)),
        save_ms=5.0,
        jitter=random.choice((0.0, 0.3)),
        num_samples=random.randint(32, 160),
        start_ms=random.choice((1.0, 20.0, 100.0)),
        seed=seed,
        changes=tuple(
            SpeedChange(rank=random.randrange(num_ranks), at_seconds=random.uniform(0, 0.3), ms=random.uniform(1, 20))
            for _ in range(random.randint(0, 2))
        ),
    )
    faults = [_fault(random, num_ranks) for _ in range(random.randint(1, 5))]
    if job.membership.rejoin:
        faults += [_fault_of_replacement(random, num_ranks) for _ in range(random.choice((0, 0, 1, 2)))]
    return Schedule(seed, job, places_of(sizes), costs, faults)


def _membership(random: Random) -> MembershipConfig:
    """Half of the runs restart their dead, soon enough for a run of half a second."""
    most = random.choice((None, None, None, 2, "60%"))
    if random.random() < 0.5:
        return MembershipConfig(max_failure=most)
    return MembershipConfig(max_failure=most, rejoin=True, max_restarts=random.randint(1, 3), timeout_scale=0.02)


def _fault_of_replacement(random: Random, num_ranks: int) -> Fault:
    """Something that strikes on the way back, or as soon as the rank is back."""
    if random.random() < 0.5:
        return Fault(kind=random.choice(OF_REPLACEMENTS), rank=random.randrange(num_ranks), nth=random.randint(1, 3))
    return Fault(
        kind="death",
        rank=random.randrange(num_ranks),
        on=random.choice(("Restart", "Restart", "FormGroup", "FormGroup", "RunWindow")),
        nth=random.randint(1, 4),
        after_ms=random.choice((0.0, 1.0, 25.0, 110.0)) * random.random(),
        notice_ms=random.choice((0.0, 5.0, 100.0)),
    )


def _fault(random: Random, num_ranks: int) -> Fault:
    kind = random.choice(("death", "death", "death", "stall", "stop", "duplicate", "late", "callback", "nonfinite"))
    if kind == "stop" and random.random() < 0.5:
        kind = "death"
    by_phase = random.random() < 0.6 and kind not in ("duplicate", "late", "callback")
    lasts = random.choice((5.0, 50.0, 500.0))
    return Fault(
        kind=kind,
        rank=random.randrange(num_ranks),
        at_seconds=random.uniform(0.0, 0.6),
        on=random.choice(PHASES) if by_phase else "",
        nth=random.randint(1, 12),
        after_ms=random.choice((0.0, 0.1, 1.0, 10.0, 40.0)) * random.random(),
        notice_ms=200.0 if kind == "stall" else random.choice((0.0, 5.0, 100.0)),
        lasts_ms=lasts,
        callback=random.choice(("eval", "save")),
    )


def check(schedule: Schedule) -> End:
    """Run a schedule: no deadlock, the ledger exact after every event, every bundle and the survivors' consensus hold
    what the ledger says."""
    coordinator = Coordinator(schedule.job, schedule.places)
    world = VirtualWorld(schedule.job, schedule.places, schedule.costs, schedule.faults)
    books = _Books(schedule)
    begun: dict[int, int] = {}  # round -> samples done when it was to be saved

    def audit(event: Event, commands: Sequence[Command]) -> None:
        assert coordinator.audit() == (0, 0), f"seed {schedule.seed}: (lost, dup) = {coordinator.audit()}"
        if isinstance(event, BundleKept) and not event.error:
            history = world.ranks[event.rank].consensus
            saved = {number: parts for number, parts in history.items() if number <= event.round}
            books.hold(saved, begun[event.round], f"the bundle of round {event.round}")
        for command in commands:
            if isinstance(command, SaveBegun):
                begun[command.round] = coordinator.view().samples_done
                waiting = coordinator.fixed["state"]["ledger"]["trained"]
                assert not waiting, f"seed {schedule.seed}: round {command.round} is saved with {waiting} beside it"

    end = drive.run(coordinator, world, [audit])
    if end.totals.rounds and end.status != "failed":
        _hold_against_ledger(schedule, world, end, books)
    return end


class _Books:
    """What replicas hold, against the ledger."""

    def __init__(self, schedule: Schedule) -> None:
        self._seed = schedule.seed
        self._is_poisoned = any(fault.kind == "nonfinite" for fault in schedule.faults)

    def hold(self, history: Mapping[int, Sequence[Contribution]], done: int, what: str) -> None:
        """It contains `done` samples, each once."""
        seen = Counter(
            (piece.epoch, position)
            for contributions in history.values()
            for contribution in contributions
            for piece in contribution.ranges
            for position in range(piece.start, piece.stop)
        )
        said = f"seed {self._seed}: {what}"
        assert max(seen.values(), default=1) == 1, f"{said}: a sample counts twice"
        assert self._is_poisoned or len(seen) == done, f"{said} holds {len(seen)} samples, the ledger {done}"


def _hold_against_ledger(schedule: Schedule, world: VirtualWorld, end: End, books: _Books) -> None:
    """Every rank that left in order holds the same rounds, and they contain what the ledger calls done, once. (All may
    be gone without a goodbye once the last bundle is in place.)"""
    left = [rank for rank in world.ranks.values() if rank.has_left and rank.rank not in end.totals.dead_ranks]
    seed, histories = f"seed {schedule.seed}", [rank.consensus for rank in left]
    assert histories or len(end.totals.dead_ranks) == len(world.ranks), f"{seed}: nobody left in order"
    assert all(history == histories[0] for history in histories), f"{seed}: replicas differ"
    done = end.totals.samples_done
    if histories:
        books.hold(histories[0], done, "the consensus")
    if end.status in ("done", "degraded"):
        whole = schedule.job.trainer.num_epochs * (schedule.costs.num_samples // 4 * 4)
        assert done == whole, f"{seed}: {done} of {whole} samples"
