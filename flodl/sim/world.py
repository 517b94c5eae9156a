"""The other world: virtual clock, one heap of things to come, ranks that train by sleeping, faults from a list.

Links keep the order of a rank's messages, as ZeroMQ does; a doubled message may come at any later time. A rank that
is frozen does nothing; one that was declared dead while frozen comes back and is not believed. Where a rank is started
again, nothing that its earlier process says or does counts any more.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from flodl.decide.messages import (
    BundleKept,
    CallbackName,
    CallbackResult,
    Command,
    Dismiss,
    EndBy,
    Event,
    RankDied,
    RankReady,
    RankSuspected,
    Restart,
    SaveBegun,
    StopRequested,
    TimeReached,
)
from flodl.decide.roster import Place
from flodl.errors import RunFailed
from flodl.sim.collective import Contribution, Meetings
from flodl.sim.costs import Costs, Fault
from flodl.sim.rank import VirtualRank
from flodl.spec.job import JobSpec

__all__ = ["VirtualWorld"]

FORMATION = "formation"
KILLED, SILENT = "killed by SIGKILL", "silent for too long"
NOBODY = -1  # the incarnation of a rank that has no process
PLANNED = ("callback", "duplicate", "late", "stillborn", "unready", "foreign")  # kinds that wait for an occasion
SUSPECTED_PART = 5.0 / 30.0  # of the time after which a silent rank is dead


class VirtualWorld:
    """Implements the port `World`, and `Surroundings` for its ranks. Seeded, so that a run repeats itself."""

    def __init__(self, job: JobSpec, roster: Sequence[Place], costs: Costs, faults: Sequence[Fault] = ()) -> None:
        self.now = 0.0
        self.ranks = {place.rank: VirtualRank(self, place) for place in roster}
        self.dead: set[int] = set()
        self._places = {place.rank: place for place in roster}
        self._incarnations = dict.fromkeys(self.ranks, 0)
        self._costs = costs
        self._random = Random(costs.seed)
        self._meetings = Meetings(self._random)
        self._heap: list[tuple[float, int, Callable[[], Event | None]]] = []
        self._num_pushed = self._num_evals = 0
        self._arrives: dict[tuple[int, str], float] = {}
        self._frozen_until: dict[int, float] = {}
        self._ordered: dict[str, int] = {}
        self._faults = tuple(faults)
        self._poisoned: set[int] = set()
        self._saving: SaveBegun | None = None
        self._first_step = set(self.ranks)
        self._speeds = {rank: _speeds(costs, rank) for rank in self.ranks}
        self._fail_callbacks = {(fault.rank, fault.callback) for fault in faults if fault.kind == "callback"}
        for place in roster:
            self.send(place.rank, _ready(place, costs))
        for fault in faults:
            if not fault.on and fault.kind not in PLANNED:
                self._push(fault.at_seconds, lambda fault=fault: self._strike(fault))

    # ------------------------------------------------------------------------------------------------- World

    def next_event(self, timeout_seconds: float, deadline: float | None = None) -> Event | None:
        """The next event, `TimeReached` where none comes before the deadline.

        Raises RunFailed when nothing is left to happen: that run would wait for ever.
        """
        while self._heap:
            if deadline is not None and self._heap[0][0] > deadline:
                self.now = max(self.now, deadline)
                return TimeReached(at=self.now)
            at, _, happen = heapq.heappop(self._heap)
            self.now = max(self.now, at)
            event = happen()
            if event is not None:
                self._give_up(event)
                return msgspec.structs.replace(event, at=self.now)
        raise RunFailed("nothing is left to happen and the run is not over: a deadlock")

    def execute(self, command: Command) -> None:
        """Put the command on the links of the ranks that it is for; faults that wait for it strike."""
        if isinstance(command, SaveBegun):
            self._saving = command
        name = type(command).__name__
        self._ordered[name] = self._ordered.get(name, 0) + 1
        for rank in getattr(command, "to", ()):
            self._deliver(rank, command)
        if isinstance(command, Restart | Dismiss):
            self._end(command.rank)
            self._incarnations[command.rank] = NOBODY
        if isinstance(command, Restart):
            self._start(command.rank, command.incarnation)
        for fault in self._faults:
            if fault.on == name and fault.nth == self._ordered[name]:
                self._push(self.now + fault.after_ms / 1000.0, lambda fault=fault: self._strike(fault))

    def end_by(self, seconds_left: float, rule: str) -> None:
        """Tell that the run has to be over in so many seconds from now."""
        self._push(self.now, lambda: EndBy(at=0.0, seconds_left=seconds_left, rule=rule))

    def close(self) -> None:
        """Nothing of this world is real."""
        self._heap.clear()

    # ------------------------------------------------------------------------------------------- Surroundings

    def send(self, rank: int, event: Event) -> None:
        at = self._arrival(rank, "up")
        self._push_of(rank, at, lambda: event)
        for fault in self._faults:
            if fault.rank == rank and fault.kind == "duplicate":
                self._push_of(rank, at + self._random.random() * fault.lasts_ms / 1000.0, lambda: event)

    def after(self, rank: int, seconds: float, what: str) -> None:
        self._push_of(rank, self.now + seconds, lambda: self._wake(rank, getattr(self.ranks[rank], what)))

    def meet(self, rank: int, generation: int, name: str, members: tuple[int, ...], what: Contribution) -> None:
        lasts = self._costs.form_ms if name == FORMATION else self._costs.averaging_ms * (len(members) > 1)
        key = (generation, f"{name} of {members[0]}" if name == FORMATION else name)  # ranks may form groups alone
        meeting = self._meetings.arrive(key, members, what, self.now, self._jittered(lasts) / 1000.0)
        if meeting is not None:
            for member, at in sorted(meeting.ends_at.items()):
                self._push_of(member, at, lambda member=member: self._wake(member, lambda: self._met(key, member)))

    def step_ms(self, rank: int) -> float:
        speeds = self._speeds[rank]
        while len(speeds) > 1 and speeds[1][0] <= self.now:
            speeds.pop(0)
        extra = self._costs.first_batch_ms if rank in self._first_step else 0.0
        self._first_step.discard(rank)
        return self._jittered(speeds[0][1]) + extra

    def callback(self, rank: int, name: CallbackName) -> CallbackResult:
        seconds = (self._costs.eval_ms if name == "eval" else self._costs.save_ms) / 1000.0
        if (rank, name) in self._fail_callbacks:
            return CallbackResult(name=name, ok=False, error="a planned fault", seconds=seconds)
        values: dict[str, float] = {}
        if name == "eval":
            values = {"accuracy": self._costs.accuracy[min(self._num_evals, len(self._costs.accuracy) - 1)]}
            self._num_evals += 1
        return CallbackResult(name=name, ok=True, values=values, seconds=seconds)

    def keep(self, rank: int, number: int) -> None:
        error = "a planned fault" if (rank, "save") in self._fail_callbacks else ""
        kept = BundleKept(at=0.0, rank=rank, round=number, error=error)
        at = self.now + self._jittered(self._costs.save_ms + self._costs.link_ms) / 1000.0
        self._push_of(rank, at, lambda: None if rank in self.dead else kept)

    def is_poisoned(self, rank: int) -> bool:
        poisoned = rank in self._poisoned
        self._poisoned.discard(rank)
        return poisoned

    def blend_ms(self) -> float:
        return self._jittered(self._costs.blend_ms)

    def divergence(self) -> float:
        return self._jittered(self._costs.divergence)

    # ----------------------------------------------------------------------------------------------- inside

    def _push(self, at: float, happen: Callable[[], Event | None]) -> None:
        self._num_pushed += 1
        heapq.heappush(self._heap, (at, self._num_pushed, happen))

    def _push_of(self, rank: int, at: float, happen: Callable[[], Event | None]) -> None:
        """Something of a rank's present process: with that one it is void."""
        mine = self._incarnations[rank]
        self._push(at, lambda: happen() if self._incarnations[rank] == mine else None)

    def _end(self, rank: int) -> None:
        """The rank's process ends, where it has not yet."""
        if rank not in self.dead:
            self.dead.add(rank)
            self._meetings.lose(rank, self.now)

    def _give_up(self, event: Event) -> None:
        """Word comes of every save: that it has ended, or that whoever sent it is lost."""
        saving = self._saving
        if saving is None or getattr(event, "rank", None) != saving.rank:
            return
        if isinstance(event, RankDied):
            gone = BundleKept(at=0.0, rank=saving.rank, round=saving.round, error="it is gone")
            self._push(self.now, lambda: gone)
        if isinstance(event, RankDied | BundleKept):
            self._saving = None

    def _start(self, rank: int, incarnation: int) -> None:
        """Another process for the rank, and what is planned for it."""
        self._incarnations[rank] = incarnation
        self._frozen_until.pop(rank, None)
        kinds = {fault.kind for fault in self._faults if fault.rank == rank and incarnation <= fault.nth}
        at = self.now + self._jittered(self._costs.start_ms) / 1000.0
        if "stillborn" in kinds:
            self._push_of(rank, at, lambda: _died(rank, KILLED, incarnation))
        elif "unready" not in kinds:
            self._push_of(rank, at, lambda: self._born(rank, incarnation, "foreign" if "foreign" in kinds else ""))

    def _born(self, rank: int, incarnation: int, model: str) -> Event:
        self.dead.discard(rank)
        self.ranks[rank] = VirtualRank(self, self._places[rank])
        ready = _ready(self._places[rank], self._costs)
        return msgspec.structs.replace(ready, incarnation=incarnation, fingerprint=model or ready.fingerprint)

    def _jittered(self, ms: float) -> float:
        return ms * (1.0 + self._costs.jitter * (2.0 * self._random.random() - 1.0)) if self._costs.jitter else ms

    def _wake(self, rank: int, happen: Callable[[], None]) -> None:
        """Let a rank do something, unless it is dead; when it is frozen, afterwards."""
        if rank in self.dead:
            return
        thaws = self._frozen_until.get(rank, 0.0)
        if thaws > self.now:
            self._push_of(rank, thaws, lambda: self._wake(rank, happen))
        else:
            happen()

    def _arrival(self, rank: int, way: str) -> float:
        """When the next message of a rank's link arrives: after those before it."""
        at = self.now + self._jittered(self._costs.link_ms) / 1000.0
        for fault in self._faults:
            if fault.rank == rank and fault.kind == "late":
                at += self._random.random() * fault.lasts_ms / 1000.0
        at = max(at, self._arrives.get((rank, way), 0.0))
        self._arrives[rank, way] = at
        return at

    def _deliver(self, rank: int, command: Command) -> None:
        receiver = self.ranks[rank]
        self._push_of(rank, self._arrival(rank, "down"), lambda: self._wake(rank, lambda: receiver.receive(command)))

    def _met(self, key: tuple[int, str], rank: int) -> None:
        generation, name = key
        result = self._meetings.deliver(key, rank)
        if result is None:
            return
        member = self.ranks[rank]
        if name.startswith(FORMATION):
            source = member.source
            member.formed(generation, member if source is None else self.ranks[source])
        else:
            member.averaged(generation, int(name.removeprefix("round ")), result)

    def _strike(self, fault: Fault) -> Event | None:
        rank, incarnation = fault.rank, self._incarnations[fault.rank]
        match fault.kind:
            case "stop":
                return StopRequested(at=0.0, reason="a planned stop")
            case "nonfinite":
                self._poisoned.add(rank)
            case "stall":
                self._frozen_until[rank] = self.now + fault.lasts_ms / 1000.0
                suspected = fault.notice_ms / 1000.0 * SUSPECTED_PART
                if fault.lasts_ms / 1000.0 >= suspected:
                    self._push(self.now + suspected, lambda: _suspected(rank, suspected))
                if fault.lasts_ms >= fault.notice_ms:
                    self._push(self.now + fault.notice_ms / 1000.0, lambda: _died(rank, SILENT, incarnation))
            case _:
                if rank not in self.dead and not self.ranks[rank].has_left:
                    self._end(rank)
                    self._push(self.now + fault.notice_ms / 1000.0, lambda: _died(rank, KILLED, incarnation))
        return None


def _suspected(rank: int, seconds: float) -> Event:
    return RankSuspected(at=0.0, rank=rank, silent_seconds=seconds)


def _died(rank: int, cause: str, incarnation: int) -> Event:
    return RankDied(at=0.0, rank=rank, cause=cause, incarnation=incarnation)


def _speeds(costs: Costs, rank: int) -> list[tuple[float, float]]:
    """(from second, ms per batch) of a rank, in order."""
    changes = sorted((change.at_seconds, change.ms) for change in costs.changes if change.rank == rank)
    return [(0.0, costs.ms_per_batch[rank]), *changes]


def _ready(place: Place, costs: Costs) -> RankReady:
    return RankReady(
        at=0.0,
        rank=place.rank,
        host=place.host,
        device=place.device,
        num_samples=costs.num_samples,
        data_signature="virtual",
        fingerprint="virtual",
        num_parameters=1,
        batch_size=place.batch_size,
    )
