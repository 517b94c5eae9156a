"""Who is alive, and when deaths end a run."""

from __future__ import annotations

import pytest

from flodl.decide.membership import Membership
from flodl.spec.job import MembershipConfig


def four() -> Membership:
    return Membership(alive=[0, 1, 2, 3])


def test_a_death_is_counted_once() -> None:
    ranks = four()
    assert ranks.die(2, "killed")
    assert not ranks.die(2, "again")
    assert (ranks.alive, ranks.dead, ranks.first_cause) == ([0, 1, 3], (2,), "killed")


def test_an_unknown_rank_neither_dies_nor_leaves() -> None:
    ranks = four()
    assert not ranks.die(9, "killed")
    assert not ranks.leave(9)
    assert ranks.first_cause == ""


def test_a_goodbye_is_never_a_death() -> None:
    ranks = four()
    assert ranks.leave(1)
    assert not ranks.die(1, "exit 0")
    assert not ranks.leave(1)
    assert ranks.dead == ()
    assert ranks.is_alive(0)
    assert not ranks.is_alive(1)


def test_the_first_cause_is_the_one_that_is_named() -> None:
    ranks = four()
    ranks.die(3, "out of memory")
    ranks.die(0, "connection lost")
    assert ranks.first_cause == "out of memory"
    assert ranks.dead == (0, 3)


def test_what_nobody_has_set_is_blamed_for_nothing() -> None:
    ranks = four()
    for rank in range(4):
        ranks.die(rank, "killed")
        assert "max_failure" not in ranks.is_spent(MembershipConfig().max_failure)


@pytest.mark.parametrize(
    ("max_failure", "deaths", "spent"),
    [
        (None, 3, False),
        (1, 0, False),
        (1, 1, True),
        (2, 1, False),
        (2, 2, True),
        ("50%", 1, False),
        ("50%", 2, True),
        ("25%", 1, True),
        ("100%", 3, False),
        (None, 4, True),
    ],
)
def test_max_failure_is_a_number_of_ranks_or_a_part_of_the_world(
    max_failure: int | str | None, deaths: int, spent: bool
) -> None:
    ranks = four()
    for rank in range(deaths):
        ranks.die(rank, "killed")
    assert bool(ranks.is_spent(max_failure)) is spent


def test_ranks_that_left_in_order_still_belong_to_the_world() -> None:
    ranks = four()
    ranks.leave(0)
    ranks.leave(1)
    ranks.die(2, "killed")
    assert ranks.is_spent("50%") == ""
    assert ranks.is_spent("25%") == "1 of 4 ranks died, membership.max_failure is 25%"
