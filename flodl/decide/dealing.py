"""Dealing: who gets which samples for the next rounds, and what is held ahead of them.

Rules of this room: a rank's window lies in one epoch; an epoch's end is no barrier (the next epoch's first ranges go
out, ahead, with its final window); what a rank may have started already (`pinned`) is never recalled; everything else
may be, simply by restating what the rank holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from math import gcd

import msgspec

from flodl.decide.ledger import Ledger, num_samples, samples_of, stretches
from flodl.decide.messages import Range, Round
from flodl.decide.split import by_ratios, equal, final_window, largest_remainder

__all__ = ["Plan", "Request", "plan"]

_Table = list[tuple[dict[int, int], int]]  # rounds to come: samples per rank, and how many rounds in a row are so


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be dealt.

    quotas: batches per living rank and round. batch_sizes: samples per batch. pinned: batches at the head of a rank's
    list that it may have run already. num_rounds: at most this many rounds in one order. first_round: number of the
    first. reserved: True where every rank owns a share of the epoch (equal split, ratios) instead of drawing from a
    common stock. ratios: shares of the ranks, in order of rank; None: equal. overshoot: batches that a rank may run
    past its planned point. tail: batches per rank (1 unless told) below which what an epoch has left is no window of
    its own, but goes out with the one before it.
    """

    quotas: Mapping[int, int]
    batch_sizes: Mapping[int, int]
    first_round: int
    pinned: Mapping[int, int] = {}
    num_rounds: int = 1
    reserved: bool = False
    ratios: tuple[float, ...] | None = None
    overshoot: int = 0
    tail: Mapping[int, int] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The next rounds. final: they finish the epoch's stock.

    rounds, batches, ranges, epochs, overshoot: per rank. batches: of all these rounds. overshoot: batches that the
    rank may run past its planned point.
    """

    epoch: int
    final: bool
    rounds: dict[int, tuple[Round, ...]]
    batches: dict[int, int]
    ranges: dict[int, tuple[Range, ...]]
    epochs: dict[int, int]
    overshoot: dict[int, int]


def plan(ledger: Ledger, request: Request) -> Plan | None:
    """Deal the next rounds out of `ledger` (which is changed). None when the run has no samples left."""
    epoch = ledger.epoch
    if epoch is None:
        return None
    ledger.open(epoch)
    astray = _astray(ledger, request, epoch)
    ranks = tuple(rank for rank in sorted(request.quotas) if rank not in astray)
    for rank in ranks:
        _recall_other_epochs(ledger, rank, epoch)
    table = (_reserved_rounds if request.reserved else _common_rounds)(ledger, request, epoch, ranks)
    final = not ledger.owed_samples(epoch) and all(
        ledger.held_samples(rank, epoch) == sum([row[rank] * times for row, times in table]) for rank in ranks
    )
    if final:
        _deal_next_epoch(ledger, request, epoch + 1, ranks)
    if astray:  # cpu_async alone, where an order is one round
        table = [({**(table[0][0] if table else {}), **astray}, 1)]
    return _stated(ledger, request, epoch, table, final=final)


def _astray(ledger: Ledger, request: Request, epoch: int) -> dict[int, int]:
    """Ranks that may have begun a later epoch than `epoch` (it came back after a death): rank -> samples begun.

    Their window is what they may have begun, so that no window mixes epochs.
    """
    found: dict[int, int] = {}
    for rank, pinned in sorted(request.pinned.items()):
        held = ledger.held.get(rank)
        if pinned and held and held[0].epoch != epoch and rank in request.quotas:
            found[rank] = samples_of(held, pinned, request.batch_sizes[rank])
            ledger.recall(rank, found[rank])
    return found


def _recall_other_epochs(ledger: Ledger, rank: int, epoch: int) -> None:
    """Take back what `rank` holds of later epochs: `epoch` is not over."""
    held = ledger.held.get(rank, [])
    if held and held[-1].epoch != epoch:
        ledger.recall(rank, num_samples(takewhile(lambda piece: piece.epoch == epoch, held)))


def _pinned_samples(ledger: Ledger, request: Request, ranks: Sequence[int]) -> dict[int, int]:
    """Samples that ranks may have run already; ranks that cannot have are left out."""
    found: dict[int, int] = {}
    for rank in ranks:
        pinned = request.pinned.get(rank, 0)
        if pinned:
            found[rank] = samples_of(ledger.held.get(rank, []), pinned, request.batch_sizes[rank])
    return found


def _unit(request: Request) -> int:
    """Samples that are dealt as one: the batch size where all ranks have the same."""
    return gcd(*request.batch_sizes.values())


# ------------------------------------------------------------------------------------------ from a common stock


def _common_rounds(ledger: Ledger, request: Request, epoch: int, ranks: Sequence[int]) -> _Table:
    """Deal windows from the epoch's stock."""
    if not ranks:
        return []
    sizes, pinned = request.batch_sizes, _pinned_samples(ledger, request, ranks)
    wanted = {rank: request.quotas[rank] * sizes[rank] for rank in ranks}
    first = {rank: max(samples, pinned.get(rank, 0)) for rank, samples in wanted.items()} if pinned else wanted
    held = {rank: ledger.held_samples(rank, epoch) for rank in ranks}
    left = ledger.owed_samples(epoch) + sum(held.values())
    tail = sum([request.tail.get(rank, 1) * sizes[rank] for rank in ranks])
    a_round = sum(wanted.values())
    num_whole = 0
    if left >= sum(first.values()) + tail:
        num_whole = min(request.num_rounds, 1 + (left - a_round - tail) // a_round)
    table = [(wanted, num_whole)] if num_whole else []
    left -= num_whole * a_round
    if left > 0 and num_whole < request.num_rounds:
        table.append((_final_row(wanted, {} if num_whole else pinned, left, _unit(request)), 1))
        left = 0
    totals = {rank: sum([row[rank] * times for row, times in table]) for rank in ranks}
    targets = {rank: total + max(wanted[rank], total) for rank, total in totals.items()}
    if left and _fill(ledger, epoch, targets, held):
        return table
    _deal_windows(ledger, epoch, totals, pinned, is_final=left == 0)
    if left:
        _share_ahead(ledger, epoch, targets, _unit(request))
    return table


def _final_row(wanted: Mapping[int, int], pinned: Mapping[int, int], left: int, unit: int) -> dict[int, int]:
    """All that is left of an epoch, by largest remainder, in samples; nobody gets less than it may have run."""
    ranks = sorted(wanted)
    units = -(-left // unit)
    shares = dict(zip(ranks, final_window([wanted[rank] // unit for rank in ranks], units), strict=True))
    spare = {rank: shares[rank] - pinned.get(rank, 0) // unit for rank in ranks}
    for rank in ranks:
        while spare[rank] < 0:
            donor = max(ranks, key=lambda other: (spare[other], -other))
            for who, change in ((donor, -1), (rank, 1)):
                spare[who] += change
                shares[who] += change
    row = {rank: shares[rank] * unit for rank in ranks}
    row[max(rank for rank in ranks if row[rank])] -= units * unit - left  # a broken unit is one rank's short batch
    return row


def _deal_windows(
    ledger: Ledger, epoch: int, totals: Mapping[int, int], pinned: Mapping[int, int], *, is_final: bool
) -> None:
    """Give every rank its windows; others' unstarted tails are recalled where the stock does not suffice."""
    missing = {rank: samples - ledger.held_samples(rank, epoch) for rank, samples in totals.items()}
    if is_final or sum(max(0, samples) for samples in missing.values()) > ledger.owed_samples(epoch):
        for rank, samples in totals.items():
            ledger.recall(rank, max(samples, pinned.get(rank, 0)))
    for rank, samples in missing.items():
        ledger.deal(rank, epoch, samples)


def _fill(ledger: Ledger, epoch: int, targets: Mapping[int, int], held: Mapping[int, int]) -> bool:
    """Fill every rank up to its target, in samples. False, and nothing is dealt, where the stock does not suffice."""
    missing = {rank: target - held[rank] for rank, target in targets.items() if target > held[rank]}
    if sum(missing.values()) > ledger.owed_samples(epoch):
        return False
    for rank, samples in missing.items():
        ledger.deal(rank, epoch, samples)
    return True


def _share_ahead(ledger: Ledger, epoch: int, targets: Mapping[int, int], unit: int) -> None:
    """What is left of an epoch is held ahead in proportion to what is missing to the targets."""
    missing = {rank: max(0, target - ledger.held_samples(rank, epoch)) for rank, target in targets.items()}
    shares = largest_remainder(list(missing.values()), ledger.owed_samples(epoch) // unit)
    for rank, share in zip(missing, shares, strict=True):
        ledger.deal(rank, epoch, share * unit)


# ----------------------------------------------------------------------------------------- from a share of one's own


def _reserved_rounds(ledger: Ledger, request: Request, epoch: int, ranks: Sequence[int]) -> _Table:
    """Every rank works off its own share of the epoch; who has run out of it takes part with nothing."""
    _reserve(ledger, request, epoch, ranks)
    wanted = {rank: request.quotas[rank] * request.batch_sizes[rank] for rank in ranks}
    left: dict[int, int] = {rank: ledger.held_samples(rank, epoch) for rank in ranks}
    table: _Table = []
    more = request.num_rounds
    while more and any(left.values()):
        row = {rank: min(left[rank], wanted[rank]) for rank in ranks}
        times = min(more, *[left[rank] // samples for rank, samples in row.items() if samples])
        table.append((row, times))
        left = {rank: left[rank] - samples * times for rank, samples in row.items()}
        more -= times
    return table


def _reserve(ledger: Ledger, request: Request, epoch: int, ranks: Sequence[int]) -> None:
    """Share all that is owed of `epoch` out, equally or by the user's ratios."""
    ledger.open(epoch)
    unit = _unit(request)
    units = -(-ledger.owed_samples(epoch) // unit)
    if not units or not ranks:
        return
    shares = by_ratios([request.ratios[r] for r in ranks], units) if request.ratios else equal(len(ranks), units)
    for rank, share in zip(ranks, shares, strict=True):
        ledger.deal(rank, epoch, share * unit)


# --------------------------------------------------------------------------------------------------- both


def _deal_next_epoch(ledger: Ledger, request: Request, epoch: int, ranks: Sequence[int]) -> None:
    """An epoch's end is no barrier: the next one's first ranges are held ahead of its final window."""
    if epoch >= ledger.num_epochs:
        return
    if request.reserved:
        _reserve(ledger, request, epoch, ranks)
        return
    ledger.open(epoch)
    targets = {rank: request.quotas[rank] * request.batch_sizes[rank] for rank in ranks}
    if not _fill(ledger, epoch, targets, dict.fromkeys(ranks, 0)):
        _share_ahead(ledger, epoch, targets, _unit(request))


def _stated(ledger: Ledger, request: Request, epoch: int, table: _Table, *, final: bool) -> Plan:
    """The plan in words of the wire."""
    sizes = request.batch_sizes
    ranks = sorted(request.quotas)
    heads = _heads(ledger.samples_dealt, request.first_round, table)
    columns = {rank: tuple([-(-row.get(rank, 0) // sizes[rank]) for row, _ in table]) for rank in ranks}
    # Ranks with the same batches share their rounds.
    listed = {
        column: tuple([Round(number, column[row], before, whole) for number, row, before, whole in heads])
        for column in set(columns.values())
    }
    rounds = {rank: listed[column] for rank, column in columns.items()}
    sums = {column: sum([one.batches for one in shared]) for column, shared in listed.items()}
    batches = {rank: sums[column] for rank, column in columns.items()}
    held = {rank: ledger.held.get(rank, []) for rank in ranks}
    return Plan(
        epoch=epoch,
        final=final,
        rounds=rounds,
        batches=batches,
        ranges={rank: tuple(ranges) for rank, ranges in held.items()},
        epochs={rank: held[rank][0].epoch if batches[rank] else epoch for rank in ranks},
        overshoot=_overshoots(request, batches, held) if request.overshoot else dict.fromkeys(ranks, 0),
    )


def _heads(before: int, number: int, table: _Table) -> list[tuple[int, int, int, int]]:
    """Per round: its number, its row in the table, samples before it, its samples."""
    heads: list[tuple[int, int, int, int]] = []
    for index, (row, times) in enumerate(table):
        together = sum(row.values())
        for _ in range(times):
            heads.append((number, index, before, together))
            number, before = number + 1, before + together
    return heads


def _overshoots(request: Request, batches: Mapping[int, int], held: Mapping[int, Sequence[Range]]) -> dict[int, int]:
    """Whole batches, all of one epoch, that lie ready behind each rank's window; at most what is allowed.

    A rank that is past its planned point already plans from where it is, so that all it may have run comes first.
    """
    found: dict[int, int] = {}
    for rank, ranges in held.items():
        size, before = request.batch_sizes[rank], max(batches[rank], request.pinned.get(rank, 0))
        if sum(stretches(ranges)[:1]) >= (before + request.overshoot) * size:  # the common case: one epoch holds it all
            found[rank] = request.overshoot
            continue
        found[rank] = min(request.overshoot, _ahead(ranges, samples_of(ranges, before, size)) // size)
    return found


def _ahead(ranges: Sequence[Range], samples: int) -> int:
    """Samples of one epoch that follow the first `samples`."""
    for length in stretches(ranges):
        if samples < length:
            return length - samples
        samples -= length
    return 0
