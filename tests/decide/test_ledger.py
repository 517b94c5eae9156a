"""The ledger neither loses nor repeats a sample, whatever happens in whatever order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flodl.decide.ledger import Ledger, count_batches, cut_batches, merged, num_samples, take_batches, take_samples
from flodl.decide.messages import Range


def lists_of_ranges() -> st.SearchStrategy[list[Range]]:
    """Ranges of ascending epochs, not overlapping."""

    def build(pieces: list[tuple[int, int, int]]) -> list[Range]:
        edges: dict[int, int] = {}
        ranges: list[Range] = []
        for epoch, gap, length in sorted(pieces, key=lambda piece: piece[0]):
            start = edges.get(epoch, 0) + gap
            edges[epoch] = start + length
            ranges.append(Range(epoch, start, start + length))
        return ranges

    piece = st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 40))
    return st.lists(piece, max_size=6).map(build)


def test_a_batch_is_filled_across_ranges_of_one_epoch_and_short_only_at_its_end() -> None:
    ranges = [Range(0, 0, 5), Range(0, 20, 26), Range(1, 0, 9)]
    assert cut_batches(ranges, 4) == (
        (Range(0, 0, 4),),
        (Range(0, 4, 5), Range(0, 20, 23)),
        (Range(0, 23, 26),),
        (Range(1, 0, 4),),
        (Range(1, 4, 8),),
        (Range(1, 8, 9),),
    )


@given(lists_of_ranges(), st.integers(1, 9))
def test_cutting_keeps_every_sample_in_order_and_no_batch_mixes_epochs(ranges: list[Range], size: int) -> None:
    batches = cut_batches(ranges, size)
    flat = [(p.epoch, i) for p in ranges for i in range(p.start, p.stop)]
    assert [(p.epoch, i) for batch in batches for p in batch for i in range(p.start, p.stop)] == flat
    assert all(len({piece.epoch for piece in batch}) == 1 for batch in batches)
    assert all(num_samples(batch) <= size for batch in batches)
    assert len(batches) == count_batches(ranges, size)


@given(lists_of_ranges(), st.integers(1, 9), st.integers(0, 30))
def test_taking_batches_is_the_same_as_cutting_them(ranges: list[Range], size: int, batches: int) -> None:
    head, tail = take_batches(ranges, batches, size)
    assert cut_batches(head, size) == cut_batches(ranges, size)[:batches]
    assert cut_batches(tail, size) == cut_batches(ranges, size)[batches:]


@given(lists_of_ranges(), st.integers(0, 200))
def test_taking_samples_splits_and_loses_nothing(ranges: list[Range], samples: int) -> None:
    head, tail = take_samples(ranges, samples)
    assert num_samples(head) == min(samples, num_samples(ranges))
    assert num_samples(head) + num_samples(tail) == num_samples(ranges)
    assert merged([*head, *tail]) == merged(ranges)


def test_neighbours_are_joined_when_they_are_owed_again() -> None:
    assert merged([Range(0, 4, 8), Range(1, 0, 2), Range(0, 0, 4), Range(0, 9, 9)]) == [Range(0, 0, 8), Range(1, 0, 2)]


def test_samples_go_from_owed_to_out_to_trained_to_done() -> None:
    ledger = Ledger(epoch_samples=100, num_epochs=2)
    assert ledger.epoch == 0
    ledger.deal(0, 0, 30)
    assert (ledger.owed_samples(0), ledger.held_samples(0, 0)) == (70, 30)
    assert ledger.run(0, 2, 10) == [Range(0, 0, 20)]
    assert (ledger.trained_samples(0), ledger.samples_dealt, ledger.samples_done) == (20, 20, 0)
    ledger.accept()
    assert (ledger.trained_samples(0), ledger.samples_dealt, ledger.samples_done) == (0, 20, 20)
    assert not ledger.is_done(0)


def test_an_epoch_past_the_last_is_never_dealt() -> None:
    ledger = Ledger(epoch_samples=10, num_epochs=1)
    ledger.deal(0, 1, 5)
    ledger.deal(0, 0, 0)
    assert not ledger.held
    assert not ledger.is_done(1)
    ledger.deal(0, 0, 50)
    assert ledger.held == {0: [Range(0, 0, 10)]}
    ledger.run(0, 1, 10)
    ledger.accept()
    assert ledger.is_done(0)
    assert ledger.epoch is None


def test_what_a_dead_rank_trained_without_acceptance_is_owed_again() -> None:
    ledger = Ledger(epoch_samples=100, num_epochs=1)
    ledger.deal(0, 0, 40)
    ledger.deal(1, 0, 40)
    ledger.run(0, 1, 10)
    assert ledger.reclaim(0) == 40
    assert ledger.owed[0] == [Range(0, 0, 40), Range(0, 80, 100)]
    assert ledger.reclaim(0) == 0
    assert ledger.audit() == (0, 0)


def test_the_audit_sees_what_is_lost_and_what_is_there_twice() -> None:
    ledger = Ledger(epoch_samples=100, num_epochs=1)
    ledger.deal(0, 0, 40)
    ledger.held[0] = [Range(0, 0, 30)]
    assert ledger.audit() == (10, 0)
    ledger.held[0] = [Range(0, 0, 50)]
    assert ledger.audit() == (0, 10)
    ledger.owed[0] = []
    assert ledger.audit() == (50, 0)


@given(st.data())
def test_no_order_of_steps_loses_or_repeats_a_sample(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 7))
    ledger = Ledger(epoch_samples=data.draw(st.integers(1, 120)), num_epochs=2)
    steps = st.tuples(
        st.sampled_from(["deal", "recall", "run", "accept", "reclaim"]), st.integers(0, 2), st.integers(0, 40)
    )
    for step, rank, number in data.draw(st.lists(steps, max_size=40)):
        if step == "deal":
            ledger.deal(rank, number % 2, number)
        elif step == "recall":
            ledger.recall(rank, number)
        elif step == "run":
            ledger.run(rank, number, size)
        elif step == "accept":
            ledger.accept()
        else:
            ledger.reclaim(rank)
        assert ledger.audit() == (0, 0)
