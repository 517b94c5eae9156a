"""Who is suspected and who is dead, from what was last heard. Times in seconds, limits of a run at scale 1."""

from __future__ import annotations

import msgspec
import pytest

from flodl.decide.messages import FormGroup, RankDied, RankSuspected, RunWindow
from flodl.decide.timeouts import Timeouts
from flodl.decide.vigil import Sighting, Vigil

LIMITS = Timeouts()
WINDOW = RunWindow(to=(0,), generation=1, rounds=(), ranges=(), epoch=0, reason="a test")
GROUP = FormGroup(to=(0,), generation=2, ranks=(0,), reason="a test")


class Watch:
    """A vigil over ranks that are heard each second until something befalls them."""

    def __init__(self, *hosts: str) -> None:
        self.vigil = Vigil(LIMITS, dict(enumerate(hosts)))
        self.seen = {rank: Sighting(0.0, 0, "train") for rank in range(len(hosts))}
        self.now = 0.0
        self.told: list[RankSuspected | RankDied] = []

    def beat(self, rank: int, activity: str = "train", *, moves: bool = True) -> None:
        self.seen[rank] = Sighting(self.now, self.seen[rank].progress + moves, activity)

    def second(self) -> list[RankSuspected | RankDied]:
        """The next second's beats are in; what is said then."""
        said = self.vigil.judge(self.now, self.seen)
        self.told += said
        self.now += 1.0
        return said

    def deaths(self) -> dict[int, float]:
        return {event.rank: event.at for event in self.told if isinstance(event, RankDied)}


def test_ranks_that_are_heard_are_left_alone_for_hours() -> None:
    watch = Watch("a", "b")
    for _ in range(10_000):
        watch.beat(0)
        watch.beat(1, "wait", moves=False)
        assert watch.second() == []


def test_a_silent_rank_is_suspected_once_and_dead_after_the_limit() -> None:
    watch = Watch("a", "b")
    for _ in range(40):
        watch.beat(0)
        watch.second()
    suspected, died = watch.told
    assert isinstance(suspected, RankSuspected)
    assert (suspected.rank, suspected.at) == (1, 6.0)
    assert isinstance(died, RankDied)
    assert (died.rank, died.cause) == (1, "nothing was heard from it for 31.0 s")
    assert LIMITS.dead <= died.at <= LIMITS.dead + 2 * LIMITS.heartbeat


def test_ten_short_flaps_evict_nobody_and_each_is_told() -> None:
    watch = Watch("a", "b")
    for _ in range(10):
        for second in range(20):
            watch.beat(0)
            if second >= 10:
                watch.beat(1)
            watch.second()
    assert watch.deaths() == {}
    assert [event.rank for event in watch.told] == [1] * 10


def test_ranks_of_a_lost_host_die_in_one_verdict_though_their_last_beats_differ() -> None:
    watch = Watch("a", "b", "b", "b")
    watch.seen[2] = Sighting(1.0, 0, "train")
    watch.seen[3] = Sighting(0.5, 0, "train")
    for _ in range(40):
        watch.beat(0)
        said = watch.second()
        if any(isinstance(event, RankDied) for event in said):
            assert [event.rank for event in said] == [1, 2, 3]
            assert all("its host is lost" in event.cause for event in said if isinstance(event, RankDied))
            assert all(event.can_return for event in said if isinstance(event, RankDied)), "all may hang"
    assert set(watch.deaths()) == {1, 2, 3}
    assert max(watch.deaths().values()) <= LIMITS.dead + 2 * LIMITS.heartbeat


def test_a_silent_rank_beside_a_living_one_of_its_host_is_no_lost_host() -> None:
    watch = Watch("a", "a")
    for _ in range(35):
        watch.beat(0)
        watch.second()
    (died,) = [event for event in watch.told if isinstance(event, RankDied)]
    assert "host" not in died.cause


def test_a_training_rank_that_counts_nothing_is_dead_after_the_limit_and_those_who_wait_for_it_are_innocent() -> None:
    watch = Watch("a", "b", "c")
    watch.vigil.window(1, 2.0)
    for _ in range(100):
        watch.beat(0, "wait", moves=False)
        watch.beat(1, "train", moves=False)
        watch.beat(2, "average", moves=False)
        watch.second()
    (rank, at), *others = watch.deaths().items()
    assert (rank, others) == (1, [])
    assert LIMITS.step <= at <= LIMITS.step + 2 * LIMITS.heartbeat


def test_long_windows_have_a_long_limit() -> None:
    watch = Watch("a")
    for _ in range(9):
        watch.vigil.window(0, 20.0)
    for _ in range(250):
        watch.beat(0, "train", moves=False)
        watch.second()
    assert 200.0 <= watch.deaths()[0] <= 202.0


def test_before_its_first_window_a_rank_may_compile_for_as_long_as_it_likes() -> None:
    watch = Watch("a")
    for _ in range(5000):
        watch.beat(0, "train", moves=False)
        assert watch.second() == []


@pytest.mark.parametrize("other", ["has ended its own", "waits within its own"])
def test_a_first_window_has_a_limit_once_others_wait_for_its_end(other: str) -> None:
    watch = Watch("a", "b")
    for second in range(1000):
        if second == 500 and other == "has ended its own":
            watch.vigil.window(0, 2.0)
        waits = second >= 500
        watch.beat(0, "train" if not waits else "wait" if other == "has ended its own" else "average", moves=not waits)
        watch.beat(1, moves=second < 3)
        watch.second()
    assert watch.deaths() == {1: 500.0 + LIMITS.stall + 1.0}
    (died,) = [event for event in watch.told if isinstance(event, RankDied)]
    assert died.cause == "it made no progress for 301.0 s in its first window, and others wait for it"


def test_a_callback_has_a_limit_of_its_own() -> None:
    watch = Watch("a")
    watch.vigil.window(0, 1.0)
    for _ in range(int(LIMITS.callback) + 5):
        watch.beat(0, "callback", moves=False)
        watch.second()
    assert LIMITS.callback < watch.deaths()[0] <= LIMITS.callback + 2


def test_who_waits_for_orders_and_owes_a_window_never_began_it_and_is_dead_after_what_a_group_may_take() -> None:
    watch = Watch("a", "b", "c")
    for rank in range(3):
        watch.vigil.order(rank, 0.0, WINDOW)
    watch.vigil.window(0, 1.0)
    limit = LIMITS.stall + LIMITS.collective
    for second in range(int(2 * limit)):
        if second == 100:
            watch.vigil.order(1, watch.now, GROUP)
        watch.beat(0, "wait", moves=False)
        watch.beat(1, "wait", moves=False)
        watch.beat(2)
        watch.second()
    assert watch.deaths() == {1: 100.0 + limit + 1.0}
    (died,) = [event for event in watch.told if isinstance(event, RankDied)]
    assert died.cause == f"it was sent a window and has not begun it for {limit + 1:.1f} s"


def test_a_grant_is_owed_no_longer_than_its_generation_lasts_and_nobody_is_hurried_while_a_group_forms() -> None:
    watch = Watch("a", "b", "c")
    watch.vigil.order(0, 0.0, msgspec.structs.replace(WINDOW, alone=True))
    watch.vigil.order(1, 0.0, WINDOW)
    for rank in range(2):
        watch.vigil.order(rank, 1.0, GROUP)
    for _ in range(2000):
        watch.beat(0, "wait", moves=False)  # for its part in the end, while another one evaluates
        watch.beat(1, "group", moves=False)  # for who evaluates
        watch.beat(2, "callback")
        assert watch.second() == []


def test_who_was_never_heard_and_who_was_released_is_not_watched() -> None:
    watch = Watch("a", "b")
    del watch.seen[0]
    watch.vigil.release(1)
    watch.vigil.window(1, 1.0)
    for _ in range(50):
        assert watch.second() == []


@pytest.mark.parametrize("seconds", [0.0, 4.9])
def test_a_short_silence_is_no_news(seconds: float) -> None:
    watch = Watch("a")
    assert watch.vigil.judge(seconds, watch.seen) == []


def test_a_rank_that_is_back_is_watched_anew_and_its_first_window_has_a_limit() -> None:
    watch = Watch("a", "b")
    watch.vigil.window(1, 2.0)
    watch.vigil.release(1)
    watch.vigil.watch(1)
    for _ in range(400):
        watch.beat(0)
        watch.beat(1, moves=False)
        watch.second()
    assert watch.deaths() == {1: LIMITS.stall + 1.0}


def test_a_loop_of_ones_own_may_take_hours_and_is_judged_only_while_others_wait_for_it() -> None:
    watch = Watch("a", "b", "c")
    for _ in range(8000):
        watch.beat(0, "loop", moves=False)
        watch.beat(1, "loop", moves=False)
        watch.beat(2, "loop")
        assert watch.second() == []
    began = watch.now
    while not watch.deaths():
        watch.beat(0, "average", moves=False)
        watch.beat(1, "loop", moves=False)
        watch.beat(2, "loop", moves=int(watch.now) % 100 == 0)  # slow, and comes on
        watch.second()
    assert list(watch.deaths()) == [1]
    assert LIMITS.stall < watch.deaths()[1] - began <= LIMITS.stall + 2
    died = watch.told[-1]
    assert isinstance(died, RankDied)
    assert "while others waited for it in an averaging" in died.cause
