"""A coordinator in one hand: says what ranks would say, one event at a time, and keeps the orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from flodl.decide.coordinator import Coordinator
from flodl.decide.ledger import num_samples, take_batches
from flodl.decide.messages import (
    Average,
    AveragingDone,
    BundleKept,
    CallbackResult,
    Command,
    End,
    Event,
    Finish,
    FormGroup,
    Goodbye,
    GroupFormed,
    RankDied,
    RankFailed,
    RankReady,
    RunWindow,
    SaveBegun,
    StopRequested,
    WindowDone,
)
from flodl.spec.job import TrainerConfig
from tests.scenarios.rigs import job_of, places_of

__all__ = ["Hand", "leave", "only"]

C = TypeVar("C")


def only(kind: type[C], commands: Sequence[Command]) -> C:
    """The one command of a kind."""
    found = [command for command in commands if isinstance(command, kind)]
    assert len(found) == 1, f"{len(found)} {kind.__name__} in {commands}"
    return found[0]


class Hand:
    """A coordinator, and the answers of its ranks (10 ms per batch unless told otherwise)."""

    def __init__(
        self, mode: str = "cpu_cadence", num_ranks: int = 2, *, num_samples: int = 4000, **blocks: Any
    ) -> None:
        sizes = blocks.pop("batch_sizes", [10] * num_ranks)
        blocks.setdefault("trainer", TrainerConfig(num_epochs=2, batch_size=10))
        self.num_parameters = blocks.pop("num_parameters", 7)
        self.job = job_of(mode, **blocks)
        self.places = places_of(sizes)
        self.coordinator = Coordinator(self.job, self.places)
        self.num_samples = num_samples
        self.now = 0.0
        self.orders: dict[int, RunWindow] = {}
        self.generation = 0
        self.said: tuple[Command, ...] = ()
        self.save: SaveBegun | None = None
        self.finishes: dict[int, Finish] = {}

    def tell(self, event: Event) -> tuple[Command, ...]:
        """Hand an event in; LOST and DUP stay 0."""
        self.said = self.coordinator.handle(event)
        for command in self.said:
            if isinstance(command, RunWindow):
                self.orders |= dict.fromkeys(command.to, command)
            if isinstance(command, Finish):
                self.finishes |= dict.fromkeys(command.to, command)
            if isinstance(command, SaveBegun):
                self.save = command
            if isinstance(command, FormGroup):
                self.generation = command.generation
        assert self.coordinator.audit() == (0, 0)
        return self.said

    def later(self, ms: float = 1.0) -> float:
        """A moment later, in seconds."""
        self.now += ms / 1000.0
        return self.now

    def ready(self, rank: int, **changes: Any) -> tuple[Command, ...]:
        facts: dict[str, Any] = {
            "num_samples": self.num_samples,
            "data_signature": "data",
            "fingerprint": "model",
            "num_parameters": self.num_parameters,
            "batch_size": self.places[rank].batch_size if rank < len(self.places) else 10,
        } | changes
        return self.tell(RankReady(at=self.later(), rank=rank, host="here", device="cpu", **facts))

    def formed(
        self, rank: int, last_round: int = 0, *, digest: str = "start", generation: int | None = None
    ) -> tuple[Command, ...]:
        return self.tell(
            GroupFormed(
                at=self.later(),
                rank=rank,
                generation=self.generation if generation is None else generation,
                last_round=last_round,
                digest=digest,
            )
        )

    def start(self) -> tuple[Command, ...]:
        """All ranks ready and formed: the first windows are ordered."""
        for place in self.places:
            self.ready(place.rank)
        for place in self.places:
            self.formed(place.rank)
        return self.said

    def report(self, rank: int, *, ms: float = 10.0, batches: int | None = None, **changes: Any) -> WindowDone:
        """What `rank` would say at the end of the window that it was ordered last."""
        order = self.orders[rank]
        ran = sum(one.batches for one in order.rounds) if batches is None else batches
        size = self.places[rank].batch_size
        samples = num_samples(take_batches(order.ranges, ran, size)[0])
        facts: dict[str, Any] = {
            "generation": self.generation,
            "round": order.rounds[-1].number,
            "batches": ran,
            "samples": samples,
            "timed_batches": ran,
            "timed_ms": ms * ran,
            "compute_ms": ms * ran,
            "loss_sum": 0.5 * samples,
            "learning_rate": 0.1,
        } | changes
        return WindowDone(at=self.later(), rank=rank, **facts)

    def done(self, rank: int, **changes: Any) -> tuple[Command, ...]:
        return self.tell(self.report(rank, **changes))

    def averaged(self, rank: int, **changes: Any) -> tuple[Command, ...]:
        facts: dict[str, Any] = {
            "generation": self.generation,
            "round": self.orders[rank].rounds[-1].number,
            "divergence": 0.01,
            "exposed_ms": 2.0,
            "duration_ms": 2.0,
        } | changes
        return self.tell(AveragingDone(at=self.later(), rank=rank, **facts))

    def round(self, *, ms: Sequence[float] | None = None, **changes: Any) -> tuple[Command, ...]:
        """One whole round of all living ranks: reports, averaging, results."""
        alive = self.alive
        for rank in alive:
            self.done(rank, ms=10.0 if ms is None else ms[rank], **changes)
        if any(isinstance(command, Average) for command in self.said):
            for rank in alive:
                self.averaged(rank)
        return self.said

    def goodbye(self, rank: int, *, failed: Sequence[str] = ()) -> tuple[Command, ...]:
        """`rank` leaves and tells what came of the callbacks that it was told to do last."""
        names = self.finishes[rank].callbacks if rank in self.finishes else ()
        results = tuple(
            CallbackResult(
                name=name, ok=name not in failed, values={"accuracy": 0.5} if name == "eval" else {}, error="full"
            )
            for name in names
        )
        if "save" in names and "save" not in failed:
            self.kept()
        return self.tell(Goodbye(at=self.later(), rank=rank, callbacks=results))

    def kept(self, error: str = "") -> tuple[Command, ...]:
        """The record tells what came of the save that was ordered last."""
        assert self.save is not None
        return self.tell(BundleKept(at=self.later(), rank=self.save.rank, round=self.save.round, error=error))

    def died(self, rank: int, cause: str = "killed by SIGKILL") -> tuple[Command, ...]:
        return self.tell(RankDied(at=self.later(), rank=rank, cause=cause))

    def failed(self, rank: int, kind: Any, message: str = "no such file") -> tuple[Command, ...]:
        return self.tell(RankFailed(at=self.later(), rank=rank, kind=kind, message=message))

    def stop(self, reason: str = "SIGINT", **changes: Any) -> tuple[Command, ...]:
        return self.tell(StopRequested(at=self.later(), reason=reason, **changes))

    @property
    def alive(self) -> list[int]:
        dead = self.coordinator.view().dead_ranks
        return [place.rank for place in self.places if place.rank not in dead]


def leave(hand: Hand) -> End:
    """The saver goes, then the others."""
    saver = only(Finish, hand.said).to[0]
    hand.goodbye(saver)
    for rank in hand.alive:
        if rank != saver:
            hand.goodbye(rank)
    return only(End, hand.said)
