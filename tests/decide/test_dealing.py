"""Dealing: windows of one epoch, ranges ahead, recalls, final windows, equal shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.decide.dealing import Plan, Request, plan
from flodl.decide.ledger import Ledger, cut_batches, num_samples
from flodl.decide.messages import Range, Round


def request(quotas: list[int], *, size: int = 10, **changes: object) -> Request:
    values: dict[str, object] = {
        "quotas": dict(enumerate(quotas)),
        "batch_sizes": dict.fromkeys(range(len(quotas)), size),
        "first_round": 1,
    } | changes
    return Request(**values)  # type: ignore[arg-type]


def dealt(ledger: Ledger, asked: Request) -> Plan:
    found = plan(ledger, asked)
    assert found is not None
    assert ledger.audit() == (0, 0)
    return found


def run_all(ledger: Ledger, found: Plan, size: int = 10) -> None:
    """Everybody runs what was planned, and it is accepted."""
    for rank, rounds in found.rounds.items():
        ledger.run(rank, sum(one.batches for one in rounds), size)
    ledger.accept()


def batches(found: Plan) -> list[list[int]]:
    """Per rank, the batches of each round."""
    return [[one.batches for one in found.rounds[rank]] for rank in sorted(found.rounds)]


def test_a_rank_holds_its_window_and_as_much_again_ahead() -> None:
    found = dealt(Ledger(epoch_samples=1000, num_epochs=1), request([5, 2]))
    assert found.rounds == {0: (Round(1, 5, 0, 70),), 1: (Round(1, 2, 0, 70),)}
    assert {rank: num_samples(ranges) for rank, ranges in found.ranges.items()} == {0: 100, 1: 40}
    assert (found.final, found.epochs) == (False, {0: 0, 1: 0})


def test_unused_ranges_stay_when_the_quota_changes() -> None:
    ledger = Ledger(epoch_samples=1000, num_epochs=1)
    first = dealt(ledger, request([5, 2]))
    run_all(ledger, first)
    second = dealt(ledger, request([1, 8], first_round=2))
    assert second.ranges[0][0] == Range(0, 50, 100), "rank 0 keeps what it held ahead"
    assert second.rounds[0] == (Round(2, 1, 70, 90),)


def test_samples_before_counts_what_windows_were_dealt_over_the_whole_run() -> None:
    ledger = Ledger(epoch_samples=70, num_epochs=3)
    first = dealt(ledger, request([5, 2]))
    assert first.final
    run_all(ledger, first)
    assert dealt(ledger, request([5, 2], first_round=2)).rounds[1] == (Round(2, 2, 70, 70),)


@pytest.mark.parametrize(
    ("owed", "windows"),
    [(720, [49, 13, 10]), (1060, [73, 18, 15]), (200, [14, 3, 3]), (50, [3, 1, 1]), (30, [2, 1, 0]), (10, [1, 0, 0])],
)
def test_the_final_window_hands_out_all_that_is_owed_by_largest_remainder(owed: int, windows: list[int]) -> None:
    found = dealt(Ledger(epoch_samples=owed, num_epochs=1), request([71, 18, 15]))
    assert batches(found) == [[window] for window in windows]
    assert found.final


@pytest.mark.parametrize(
    ("owed", "tail", "windows"),
    [
        (150, {}, [10, 5]),
        (150, {0: 4, 1: 2}, [15]),  # five are fewer than six
        (160, {0: 4, 1: 2}, [10, 6]),
        (110, {0: 4, 1: 2}, [11]),
        (250, {0: 4, 1: 2}, [10, 15]),
    ],
)
def test_a_rest_that_is_too_short_goes_out_with_the_window_before_it(
    owed: int, tail: dict[int, int], windows: list[int]
) -> None:
    ledger, found = Ledger(epoch_samples=owed, num_epochs=1), list[int]()
    while (planned := plan(ledger, request([7, 3], tail=tail))) is not None:
        found.append(sum(planned.batches.values()))
        run_all(ledger, planned)
    assert found == windows


def test_the_next_epochs_first_ranges_go_out_with_the_final_window() -> None:
    found = dealt(Ledger(epoch_samples=70, num_epochs=2), request([5, 2]))
    assert found.final
    assert found.ranges == {0: (Range(0, 0, 50), Range(1, 0, 50)), 1: (Range(0, 50, 70), Range(1, 50, 70))}


def test_the_runs_last_window_holds_nothing_ahead_and_allows_no_overshoot() -> None:
    found = dealt(Ledger(epoch_samples=70, num_epochs=1), request([5, 2], overshoot=3))
    assert found.final
    assert found.ranges == {0: (Range(0, 0, 50),), 1: (Range(0, 50, 70),)}
    assert found.overshoot == {0: 0, 1: 0}


def test_unstarted_tails_are_recalled_when_others_need_them() -> None:
    ledger = Ledger(epoch_samples=200, num_epochs=1)
    first = dealt(ledger, request([8, 1]))  # rank 0 holds 16 batches, rank 1 two, two are owed
    run_all(ledger, first)
    second = dealt(ledger, request([1, 7], first_round=2))
    assert batches(second) == [[1], [7]]


def test_overshoot_is_what_lies_ready_in_one_epoch() -> None:
    ledger = Ledger(epoch_samples=140, num_epochs=2)
    first = dealt(ledger, request([5, 2], overshoot=3))
    assert first.overshoot == {0: 3, 1: 2}
    run_all(ledger, first)
    final = dealt(ledger, request([5, 2], first_round=2, overshoot=3))
    assert final.final
    assert final.overshoot == {0: 3, 1: 2}, "into the next epoch, which is the next window's"


def test_a_batch_that_may_have_been_run_is_never_recalled() -> None:
    ledger = Ledger(epoch_samples=100, num_epochs=1)
    first = dealt(ledger, request([3, 1], overshoot=3))
    run_all(ledger, first)
    begun = ledger.held[0][0]
    final = dealt(ledger, request([1, 9], first_round=2, pinned=first.overshoot))
    assert final.ranges[0][0].start == begun.start
    assert num_samples(final.ranges[0]) >= 10 * first.overshoot[0]


def test_a_rank_that_began_the_next_epoch_finishes_what_it_began_when_the_old_one_comes_back() -> None:
    ledger = Ledger(epoch_samples=70, num_epochs=2)
    first = dealt(ledger, request([3, 2, 2], overshoot=2))
    for rank in (0, 1):
        ledger.run(rank, first.rounds[rank][0].batches, 10)
    ledger.accept()
    ledger.reclaim(2)  # its window of epoch 0 is owed again, the others may have begun epoch 1
    both = Request(quotas={0: 3, 1: 2}, batch_sizes={0: 10, 1: 10}, first_round=2, pinned=first.overshoot)
    second = dealt(ledger, both)
    assert (second.epoch, second.epochs, second.final) == (0, {0: 1, 1: 1}, False)
    assert batches(second) == [[2], [2]]
    run_all(ledger, second)
    third = dealt(ledger, Request(quotas={0: 3, 1: 2}, batch_sizes={0: 10, 1: 10}, first_round=3))
    assert (third.epoch, third.epochs, third.final) == (0, {0: 0, 1: 0}, True)


def test_a_lone_rank_astray_leaves_the_old_epoch_to_the_others() -> None:
    ledger = Ledger(epoch_samples=40, num_epochs=2)
    ledger.open(1)
    ledger.deal(0, 1, 20)
    found = dealt(ledger, request([2, 4], pinned={0: 1, 1: 0}))
    assert (found.epoch, found.epochs) == (0, {0: 1, 1: 0})
    assert batches(found) == [[1], [4]]
    assert found.final


@pytest.mark.parametrize("reserved", [False, True])
def test_where_all_ranks_are_astray_the_old_epoch_waits_for_one_round(reserved: bool) -> None:
    ledger = Ledger(epoch_samples=40, num_epochs=2)
    ledger.open(1)
    for rank in (0, 1):
        ledger.deal(rank, 1, 20)
    asked = request([2, 4], pinned={0: 1, 1: 2}, reserved=reserved)
    found = dealt(ledger, asked)
    assert (found.epoch, found.epochs, found.final) == (0, {0: 1, 1: 1}, False)
    assert batches(found) == [[1], [2]]


def test_ranges_of_a_later_epoch_that_nobody_began_are_recalled() -> None:
    ledger = Ledger(epoch_samples=40, num_epochs=2)
    ledger.open(1)
    ledger.deal(0, 0, 10)
    ledger.deal(0, 1, 20)
    found = dealt(ledger, request([1, 1]))
    assert {piece.epoch for piece in found.ranges[0]} == {0}
    assert ledger.owed[1] == [Range(1, 0, 40)]


def test_equal_shares_are_owned_for_the_whole_epoch_and_idle_ranks_take_part_with_nothing() -> None:
    ledger = Ledger(epoch_samples=100, num_epochs=1)
    found = dealt(ledger, request([2, 1], reserved=True, num_rounds=100))
    assert found.ranges == {0: (Range(0, 0, 50),), 1: (Range(0, 50, 100),)}
    assert batches(found) == [[2, 2, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert [one.samples for one in found.rounds[0]] == [30, 30, 20, 10, 10]
    assert [one.samples_before for one in found.rounds[1]] == [0, 30, 60, 80, 90]
    assert [one.number for one in found.rounds[1]] == [1, 2, 3, 4, 5]


def test_a_grant_never_crosses_an_epoch() -> None:
    ledger = Ledger(epoch_samples=40, num_epochs=2)
    found = dealt(ledger, request([1, 1], reserved=True, num_rounds=50))
    assert found.final
    assert batches(found) == [[1, 1], [1, 1]]
    assert found.ranges[0] == (Range(0, 0, 20), Range(1, 0, 20)), "the next epoch's share is there already"


def test_a_grant_from_the_common_stock_ends_with_the_final_row() -> None:
    found = dealt(Ledger(epoch_samples=100, num_epochs=1), request([2, 1], num_rounds=50))
    assert batches(found) == [[2, 2, 3], [1, 1, 1]]


def test_partition_ratios_share_an_epoch_out() -> None:
    found = dealt(Ledger(epoch_samples=100, num_epochs=1), request([1, 1], reserved=True, ratios=(0.7, 0.3)))
    assert [num_samples(found.ranges[rank]) for rank in (0, 1)] == [70, 30]


def test_all_zero_ratios_are_equal() -> None:
    found = dealt(Ledger(epoch_samples=100, num_epochs=1), request([1, 1], reserved=True, ratios=(0.0, 0.0)))
    assert [num_samples(found.ranges[rank]) for rank in (0, 1)] == [50, 50]


def test_a_range_dealt_again_to_another_batch_size_may_end_in_a_short_batch() -> None:
    ledger = Ledger(epoch_samples=50, num_epochs=1)
    found = dealt(ledger, request([1, 1], batch_sizes={0: 20, 1: 12}))
    assert sum(num_samples(ranges) for ranges in found.ranges.values()) == 50
    assert found.final
    for rank, size in ((0, 20), (1, 12)):
        assert len(cut_batches(found.ranges[rank], size)) == found.rounds[rank][0].batches


def test_there_is_nothing_to_plan_when_all_is_done() -> None:
    ledger = Ledger(epoch_samples=20, num_epochs=1)
    run_all(ledger, dealt(ledger, request([1, 1])))
    assert plan(ledger, request([1, 1], first_round=2)) is None


@given(st.data())
def test_any_run_of_plans_deals_every_sample_exactly_once(data: st.DataObject) -> None:
    num_ranks = data.draw(st.integers(1, 4))
    sizes = {rank: data.draw(st.sampled_from([2, 4, 6]), label="size") for rank in range(num_ranks)}
    ledger = Ledger(epoch_samples=4 * data.draw(st.integers(1, 60)), num_epochs=data.draw(st.integers(1, 3)))
    reserved = data.draw(st.booleans())
    overshoot = 0 if reserved else data.draw(st.integers(0, 4))
    pinned: dict[int, int] = {}
    number, seen = 1, 0
    for _ in range(2000):
        found = plan(
            ledger,
            Request(
                quotas={rank: data.draw(st.integers(1, 9)) for rank in range(num_ranks)},
                batch_sizes=sizes,
                first_round=number,
                pinned=pinned,
                num_rounds=1 if overshoot else data.draw(st.integers(1, 5)),
                reserved=reserved,
                overshoot=overshoot,
                tail={rank: data.draw(st.integers(1, 12), label="tail") for rank in range(num_ranks)},
            ),
        )
        assert ledger.audit() == (0, 0)
        if found is None:
            break
        assert found.rounds[0][0].samples_before == seen
        for rank, rounds in found.rounds.items():
            planned = sum(one.batches for one in rounds)
            ran = max(planned, data.draw(st.integers(0, pinned.get(rank, 0))))
            trained = ledger.run(rank, ran, sizes[rank])
            assert len({piece.epoch for piece in trained}) <= 1
            seen += num_samples(trained)
        number += len(found.rounds[0])
        pinned = found.overshoot
        ledger.accept()
    assert ledger.epoch is None
    assert ledger.samples_done == ledger.epoch_samples * ledger.num_epochs
