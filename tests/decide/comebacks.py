"""A coordinator whose dead come back: the steps on their way, for the tests of it."""

from __future__ import annotations

from typing import Any

from flodl.decide.messages import Alert, Command, FormGroup, Restart, RunWindow, TimeReached
from flodl.spec.cluster import ClusterSpec, ControllerSpec, HostSpec, JoinSpec
from flodl.spec.job import MembershipConfig
from tests.decide.hands import Hand, only

__all__ = ["READY_SECONDS", "alerts", "at_edge", "comes", "joining", "lose", "regroup", "three", "wait", "windows"]

READY_SECONDS = 50.0


def three(mode: str = "cpu_cadence", num_ranks: int = 3, **blocks: Any) -> Hand:
    """At work, with replacements."""
    controller = ControllerSpec(join=JoinSpec(timeout_seconds=READY_SECONDS))
    cluster = ClusterSpec(controller=controller, workers=(HostSpec(host="here"),))
    membership = blocks.pop("membership", MembershipConfig(rejoin=True))
    hand = Hand(mode, num_ranks, membership=membership, cluster=cluster, **blocks)
    hand.start()
    return hand


def wait(hand: Hand, seconds: float) -> tuple[Command, ...]:
    """So long nothing happens."""
    return hand.tell(TimeReached(at=hand.later(seconds * 1000.0)))


def regroup(hand: Hand, last_round: int) -> None:
    """All who live form the group, and hold that round."""
    for rank in hand.alive:
        hand.formed(rank, last_round)


def lose(hand: Hand, rank: int = 1, last_round: int = 0) -> None:
    """`rank` dies in a window, and the others have formed their group."""
    hand.died(rank)
    regroup(hand, last_round)


def comes(hand: Hand, rank: int = 1, incarnation: int = 1) -> None:
    """The pause is over, and the replacement is ready."""
    restart = only(Restart, wait(hand, 2.0**incarnation))
    assert (restart.rank, restart.incarnation) == (rank, incarnation)
    assert hand.ready(rank, incarnation=incarnation) == ()


def at_edge(hand: Hand) -> FormGroup:
    """The round that is under way ends, and who waits joins."""
    return only(FormGroup, hand.round())


def alerts(hand: Hand) -> list[str]:
    return [command.text for command in hand.said if isinstance(command, Alert)]


def windows(hand: Hand) -> dict[int, int]:
    """rank -> batches that it was just ordered to run."""
    return {c.to[0]: sum(one.batches for one in c.rounds) for c in hand.said if isinstance(c, RunWindow)}


def joining(num_ranks: int = 3, **blocks: Any) -> tuple[Hand, FormGroup]:
    """Rank 1 is about to take its place after round 2."""
    hand = three(num_ranks=num_ranks, **blocks)
    hand.round()
    lose(hand, last_round=1)
    comes(hand)
    return hand, at_edge(hand)
