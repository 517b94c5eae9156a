"""Batches are what the ranges say, in the order that every host agrees on, however many processes read them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from flodl.decide.ledger import cut_batches
from flodl.decide.messages import Range
from flodl.engine.data import Batch, Feed, Loading
from flodl.engine.reading import permutation
from flodl.errors import FlodlError
from tests.engine.listed import Listed, N

CPU = torch.device("cpu")

MakeFeed = Callable[..., Feed]


def tensors(length: int = N) -> TensorDataset:
    return TensorDataset(torch.arange(length), torch.arange(length) * 10.0)


@pytest.fixture(params=[0, 1, 2], ids=["no process", "one process", "two processes"])
def feed(request: pytest.FixtureRequest) -> Iterator[MakeFeed]:
    """Makes feeds of (dataset, batch_size), read by the test's own process or by others."""
    made: list[Feed] = []

    def make(dataset: Any, batch_size: int = 4, *, num_workers: int = request.param) -> Feed:
        loading = Loading(num_workers=num_workers)
        sizes = {"batch_size": batch_size, "num_positions": N}
        made.append(Feed(dataset, seed=7, device=CPU, loading=loading, **sizes))
        return made[-1]

    yield make
    for one in made:
        one.close()


def drained(source: Feed) -> list[Batch]:
    batches: list[Batch] = []
    while (batch := source.next()) is not None:
        batches.append(batch)
    return batches


def plain(batch: Batch) -> Any:
    """Everything of a batch but who read it."""
    columns = {name: torch.stack(v).tolist() if name == "noise" else v.tolist() for name, v in batch.inputs.items()}
    return batch.epoch, batch.first_position, batch.samples, {**columns, "reader": None}


@pytest.mark.parametrize("dataset", [tensors(), Listed()], ids=["in memory", "sample by sample"])
def test_batches_are_the_positions_of_the_ranges(feed: MakeFeed, dataset: Any) -> None:
    source = feed(dataset)
    source.restate([Range(0, 2, 5), Range(0, 10, 13), Range(1, 0, 4)])
    order0, order1 = permutation(7, 0, N), permutation(7, 1, N)
    wanted = [[*order0[2:5], order0[10]], [*order0[11:13]], [*order1[0:4]]]
    batches = drained(source)
    found = [b.inputs["label"].tolist() if isinstance(b.inputs, dict) else b.inputs[0].tolist() for b in batches]
    assert found == [[int(i) for i in batch] for batch in wanted]
    assert [(b.epoch, b.first_position, b.samples) for b in batches] == [(0, 2, 4), (0, 11, 2), (1, 0, 4)]


def test_a_restated_list_replaces_what_was_held(feed: MakeFeed) -> None:
    source = feed(tensors())
    source.restate([Range(0, 0, 8)])
    assert source.next() is not None
    source.restate([Range(0, 12, 16)])
    assert [b.first_position for b in drained(source)] == [12]


def test_batches_that_were_run_already_are_skipped_in_a_restated_list(feed: MakeFeed) -> None:
    source = feed(tensors())
    source.restate([Range(0, 0, 6), Range(0, 10, 16)], skip=2)
    assert [(b.first_position, b.samples) for b in drained(source)] == [(12, 4)]


def test_the_feed_tells_how_many_batches_it_holds(feed: MakeFeed) -> None:
    source = feed(tensors())
    source.restate([Range(0, 0, 10)])
    assert len(source) == 3
    source.next()
    assert len(source) == 2


def test_nothing_held_gives_nothing(feed: MakeFeed) -> None:
    assert feed(tensors()).next() is None


def test_a_range_beyond_the_epoch_is_refused(feed: MakeFeed) -> None:
    with pytest.raises(ValueError, match="an epoch has 20 positions"):
        feed(tensors()).restate([Range(0, 16, 24)])


def test_an_epoch_comes_out_the_same_for_every_world_size(feed: MakeFeed) -> None:
    def samples(*shares: list[Range]) -> list[int]:
        found: list[int] = []
        for share in shares:
            source = feed(tensors())
            source.restate(share)
            found += [int(i) for b in drained(source) for i in b.inputs[0]]
        return sorted(found)

    assert (
        samples([Range(3, 0, N)]) == samples([Range(3, 0, 12)], [Range(3, 12, 16)], [Range(3, 16, N)]) == list(range(N))
    )


def test_random_samples_are_the_same_in_whichever_batch_they_are_read(feed: MakeFeed) -> None:
    def noise(batch_size: int, epoch: int) -> dict[int, float]:
        source = feed(Listed(), batch_size)
        source.restate([Range(epoch, 0, N)])
        return {
            int(label): tuple(float(column[i]) for column in b.inputs["noise"])  # type: ignore[misc]
            for b in drained(source)
            for i, label in enumerate(b.inputs["label"])
        }

    assert noise(4, 0) == noise(5, 0)
    assert noise(4, 0) != noise(4, 1)
    assert len(set(noise(4, 0).values())) == N


def test_a_feed_cuts_the_same_batches_as_the_ledger(feed: MakeFeed) -> None:
    held = [Range(0, 3, 3), Range(0, 0, 6), Range(0, 10, 11), Range(0, 12, 20), Range(1, 4, 5), Range(1, 0, 4)]
    source = feed(tensors())
    for skip in range(7):
        source.restate(held, skip=skip)
        cut = cut_batches(held, 4)[skip:]
        assert len(source) == len(cut)
        found = [(b.epoch, b.first_position, b.samples) for b in drained(source)]
        assert found == [(pieces[0].epoch, pieces[0].start, sum(map(len, pieces))) for pieces in cut]


def test_who_reads_a_batch_changes_nothing_of_it(feed: MakeFeed) -> None:
    ranges = [Range(0, 0, N), Range(1, 0, 9)]
    source, alone = feed(Listed()), feed(Listed(), num_workers=0)
    source.restate(ranges)
    alone.restate(ranges)
    assert [plain(batch) for batch in drained(source)] == [plain(batch) for batch in drained(alone)]


def test_lists_that_are_restated_at_any_time_give_the_same_batches(feed: MakeFeed) -> None:
    source, alone = feed(Listed(seconds=0.0001)), feed(Listed(), num_workers=0)
    dice = random.Random(3)
    held: list[Range] = []
    for _ in range(60):
        match dice.randrange(3):
            case 0:  # the tail is recalled, and something else is dealt
                held = [*held[: dice.randrange(len(held) + 1)], piece(dice)]
            case 1:  # everything is another list
                held = [piece(dice) for _ in range(dice.randrange(4))]
            case _:  # the same again, parted differently
                held = [half for one in held for half in halves(one)]
        skip = dice.randrange(3)
        source.restate(held, skip=skip)
        alone.restate(held, skip=skip)
        for _ in range(dice.randrange(6)):
            assert len(source) == len(alone)
            batch, wanted = source.next(), alone.next()
            assert (batch and plain(batch)) == (wanted and plain(wanted))


def piece(dice: random.Random) -> Range:
    start = dice.randrange(N - 1)
    return Range(dice.randrange(2), start, dice.randrange(start + 1, N + 1))


def halves(whole: Range) -> list[Range]:
    middle = (whole.start + whole.stop) // 2
    return [Range(whole.epoch, whole.start, middle), Range(whole.epoch, middle, whole.stop)]


def test_what_reading_raises_is_told_where_the_batch_would_have_been_trained(feed: MakeFeed) -> None:
    source = feed(Listed(broken=int(permutation(7, 0, N)[9])))
    source.restate([Range(0, 0, N)])
    assert [batch.first_position for batch in (source.next(), source.next()) if batch] == [0, 4]
    with pytest.raises(FlodlError, match=f"sample {permutation(7, 0, N)[9]} cannot be read: OSError: a torn file"):
        source.next()


def test_a_broken_sample_that_was_recalled_is_not_told(feed: MakeFeed) -> None:
    source = feed(Listed(broken=int(permutation(7, 0, N)[1])))
    source.restate([Range(0, 0, 4), Range(0, 4, 8)])
    source.restate([Range(0, 4, 8)])
    assert [batch.first_position for batch in drained(source)] == [4]
