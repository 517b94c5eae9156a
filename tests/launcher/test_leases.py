"""Hosts are lent out once at a time, and every arm of a cluster gets as many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hydra_plugins.flodl_ssh._leases import Leases

HOSTS = ("a", "b", "c", "d", "e")


def test_leases_are_equal_disjoint_and_in_the_order_of_the_cluster() -> None:
    leases = Leases(2)
    first, second = leases.take(HOSTS), leases.take(HOSTS)
    assert (first, second) == (("a", "b"), ("c", "d"))
    assert leases.take(HOSTS) is None
    leases.give_back(("c", "d"))
    assert leases.take(HOSTS) == ("c", "d"), "the one whose agents are warm"


def test_with_fewer_hosts_than_arms_each_gets_one() -> None:
    leases = Leases(4)
    assert [leases.take(("a", "b")) for _ in range(3)] == [("a",), ("b",), None]


def test_a_task_without_a_cluster_is_limited_by_number_alone() -> None:
    leases = Leases(2)
    assert [leases.take(()) for _ in range(3)] == [(), (), None]


@given(
    most=st.integers(1, 5),
    clusters=st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True), min_size=1, max_size=12),
    ends=st.data(),
)
def test_no_host_is_ever_lent_twice_and_every_arm_gets_its_turn(
    most: int, clusters: list[list[str]], ends: st.DataObject
) -> None:
    leases, waiting, running = Leases(most), list(clusters), []
    while waiting or running:
        for hosts in tuple(waiting):
            lease = leases.take(hosts)
            if lease is not None:
                waiting.remove(hosts)
                assert set(lease) <= set(hosts)
                assert len(lease) == max(1, len(hosts) // most)
                running.append(lease)
        lent = [host for lease in running for host in lease]
        assert len(lent) == len(set(lent))
        assert 1 <= len(running) <= most
        leases.give_back(running.pop(ends.draw(st.integers(0, len(running) - 1))))
