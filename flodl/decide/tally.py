"""The tally: what accepted rounds add up to, per rank, per epoch and for the run. Figures count at acceptance only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from flodl.decide.messages import WindowDone
from flodl.decide.roster import Place
from flodl.decide.rounds import Order
from flodl.decide.totals import EpochMetrics, RankEpoch, RankTotals, RunTotals, Scalar

__all__ = ["EpochSums", "Intervals", "Outcome", "RankSums", "Tally"]

_RATE_MEMORY = 0.8  # weight of the past in the shown samples/s


class RankSums(msgspec.Struct, kw_only=True):
    """What one rank did."""

    batches: int = 0
    samples: int = 0
    skipped_batches: int = 0
    compute_ms: float = 0.0
    data_wait_ms: float = 0.0
    averaging_ms: float = 0.0
    idle_ms: float = 0.0
    loss_sum: float | None = 0.0
    peak_memory_bytes: int = 0

    def add(self, more: WindowDone | RankSums, averaging_ms: float) -> None:
        """One window more, or a whole epoch."""
        self.batches += more.batches
        self.samples += more.samples
        self.skipped_batches += more.skipped_batches
        self.compute_ms += more.compute_ms
        self.data_wait_ms += more.data_wait_ms
        self.averaging_ms += averaging_ms
        self.idle_ms += more.idle_ms
        if self.loss_sum is not None:
            self.loss_sum = None if more.loss_sum is None else self.loss_sum + more.loss_sum
        self.peak_memory_bytes = max(self.peak_memory_bytes, more.peak_memory_bytes)


class EpochSums(msgspec.Struct, kw_only=True):
    """One epoch so far."""

    ranks: dict[int, RankSums] = {}
    scalars: dict[str, Scalar] = {}
    rounds: int = 0
    divergence: float = 0.0
    learning_rate: float = 0.0

    def add(self, done: WindowDone, averaging_ms: float) -> None:
        """One rank's window more. Ranks come in ascending order: of scalars kept as "last" the highest one's stands."""
        if done.rank not in self.ranks:
            self.ranks[done.rank] = RankSums()
        self.ranks[done.rank].add(done, averaging_ms)
        for name, scalar in done.scalars.items():
            before = self.scalars.get(name)
            self.scalars[name] = scalar if before is None else before.merged(scalar)
        if done.batches:
            self.learning_rate = done.learning_rate

    @property
    def samples(self) -> int:
        """Samples of all ranks."""
        return sum(sums.samples for sums in self.ranks.values())

    @property
    def loss(self) -> float | None:
        """Mean loss per sample; None where a batch's loss was not finite."""
        return _mean([sums.loss_sum for sums in self.ranks.values()], self.samples)


def _sum(parts: Sequence[float | None]) -> float | None:
    """The sum of what is finite through and through; None where one part was not (a diverged run is not told as 0)."""
    known = [part for part in parts if part is not None]
    return sum(known, 0.0) if len(known) == len(parts) else None


def _mean(parts: Sequence[float | None], samples: int) -> float | None:
    total = _sum(parts)
    return None if total is None else total / max(1, samples)


class Intervals(msgspec.Struct, kw_only=True):
    """What the epoch under way had come to when its last part was told. told: parts that are over."""

    epoch: int = -1
    told: int = 0
    samples: int = 0
    loss_sum: float | None = 0.0
    wall_seconds: float = 0.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the mind knows beside the tally when it sums a run up."""

    epochs_done: int
    samples_done: int
    anchor: int
    phase: str
    eval: dict[str, float]
    dead_ranks: tuple[int, ...]
    restarts: dict[int, int] = {}


class Tally(msgspec.Struct, kw_only=True):
    """All sums. epochs: those that are open. ranks: what each rank did in the others. started, accepted: first
    window's start and newest acceptance, seconds of the controller's clock. paused_seconds: what evaluation and saves
    took out of the time between."""

    started: float = 0.0
    accepted: float = 0.0
    paused_seconds: float = 0.0
    epoch_began: float = 0.0
    rounds: int = 0
    exposed_ms: float = 0.0
    divergence: float = 0.0
    train_loss: float | None = None
    rate: float = 0.0
    shares: dict[int, float] = {}
    epochs: dict[int, EpochSums] = {}
    ranks: dict[int, RankSums] = {}

    def begin(self, at: float) -> None:
        """The first window starts."""
        self.started = self.accepted = at

    def go_on(self, at: float) -> None:
        """The first window of a run that goes on starts: what it took so far, it took until now."""
        self.started, self.accepted, self.paused_seconds = at - self.wall_seconds, at, 0.0

    @property
    def batches(self) -> int:
        """Of all ranks, so far."""
        parts = (self.ranks, *(epoch.ranks for epoch in self.epochs.values()))
        return sum(sums.batches for part in parts for sums in part.values())

    @property
    def wall_seconds(self) -> float:
        """First window's start to the newest acceptance, less evaluation and saves."""
        return max(0.0, self.accepted - self.started - self.paused_seconds)

    def accept(self, order: Order, at: float, paused_seconds: float) -> None:
        """The order's last round is accepted."""
        before = self.wall_seconds
        self.accepted = at
        self.paused_seconds += paused_seconds
        num_rounds = order.number - order.first + 1
        self.rounds += num_rounds
        self.divergence = order.divergence
        exposed = order.exposed_ms
        self.exposed_ms += max(exposed.values(), default=0.0)
        for number in {order.epoch, *order.epochs.values()} - set(self.epochs):
            self.epochs[number] = EpochSums()
        for rank, exposed_ms in exposed.items():
            done = order.reports[rank]
            self.epochs[order.epochs.get(rank, order.epoch)].add(done, exposed_ms)
        epoch = self.epochs[order.epoch]
        epoch.rounds += num_rounds
        epoch.divergence = self.divergence
        self._show(order, self.wall_seconds - before)

    def _show(self, order: Order, seconds: float) -> None:
        """What the terminal shows of this order: rate, loss, shares."""
        samples = sum([done.samples for done in order.reports.values()])
        if not samples:
            return
        self.train_loss = _mean([done.loss_sum for done in order.reports.values()], samples)
        self.shares = {rank: done.samples / samples for rank, done in sorted(order.reports.items())}
        if seconds > 0.0:
            now = samples / seconds
            self.rate = now if not self.rate else _RATE_MEMORY * self.rate + (1.0 - _RATE_MEMORY) * now

    def close_epoch(self, number: int, *, samples: int, anchor: int, phase: str) -> EpochMetrics:
        """An epoch's last sample is done: its figures, which are forgotten here. Its evaluation is still to come."""
        sums = self.epochs.pop(number, EpochSums())
        self.ranks = _together(self.ranks, sums.ranks)
        wall = self.wall_seconds - self.epoch_began
        self.epoch_began = self.wall_seconds
        if sums.samples:
            self.train_loss = sums.loss
        batches = max(1, sum(rank.batches for rank in sums.ranks.values()))
        return EpochMetrics(
            epoch=number,
            loss=sums.loss,
            wall_seconds=wall,
            samples=samples,
            samples_per_second=_rate(samples, wall),
            scalars={name: scalar.result for name, scalar in sorted(sums.scalars.items())},
            eval={},
            rounds=sums.rounds,
            anchor=anchor,
            phase=phase,
            divergence=sums.divergence,
            learning_rate=sums.learning_rate,
            ranks=tuple(_rank_epoch(rank, part, wall, batches) for rank, part in sorted(sums.ranks.items())),
        )

    def totals(self, places: Sequence[Place], outcome: Outcome) -> RunTotals:
        """The whole run."""
        rate = _rate(outcome.samples_done, self.wall_seconds)
        ranks = _together(self.ranks, *(epoch.ranks for epoch in self.epochs.values()))
        ideal = sum((_rate(sums.samples, sums.compute_ms / 1000.0) for sums in ranks.values()), 0.0)
        return RunTotals(
            epochs_done=outcome.epochs_done,
            samples_done=outcome.samples_done,
            rounds=self.rounds,
            wall_seconds=self.wall_seconds,
            samples_per_second=rate,
            ideal_samples_per_second=ideal,
            utilisation=rate / ideal if ideal > 0.0 else 0.0,
            anchor=outcome.anchor,
            phase=outcome.phase,
            averaging_seconds_exposed=self.exposed_ms / 1000.0,
            divergence_last=self.divergence,
            train_loss=self.train_loss,
            eval=outcome.eval,
            dead_ranks=outcome.dead_ranks,
            restarts=outcome.restarts,
            ranks=tuple(_rank_totals(place, ranks) for place in places),
        )


def _together(*parts: Mapping[int, RankSums]) -> dict[int, RankSums]:
    """Each rank's sums over all parts."""
    whole: dict[int, RankSums] = {}
    for part in parts:
        for rank, sums in part.items():
            whole.setdefault(rank, RankSums()).add(sums, sums.averaging_ms)
    return whole


def _rate(samples: int, seconds: float) -> float:
    return samples / seconds if seconds > 0.0 else 0.0


def _rank_epoch(rank: int, sums: RankSums, wall_seconds: float, batches: int) -> RankEpoch:
    return RankEpoch(
        rank=rank,
        batches=sums.batches,
        samples=sums.samples,
        skipped_batches=sums.skipped_batches,
        samples_per_second=_rate(sums.samples, wall_seconds),
        batch_share=sums.batches / batches,
        compute_ms=sums.compute_ms,
        data_wait_ms=sums.data_wait_ms,
        averaging_ms=sums.averaging_ms,
        idle_ms=sums.idle_ms,
    )


def _rank_totals(place: Place, ranks: Mapping[int, RankSums]) -> RankTotals:
    sums = ranks.get(place.rank, RankSums())
    return RankTotals(
        rank=place.rank,
        host=place.host,
        device=place.device,
        batches=sums.batches,
        samples=sums.samples,
        compute_seconds=sums.compute_ms / 1000.0,
        data_wait_seconds=sums.data_wait_ms / 1000.0,
        averaging_seconds=sums.averaging_ms / 1000.0,
        idle_seconds=sums.idle_ms / 1000.0,
        peak_memory_bytes=sums.peak_memory_bytes,
    )
