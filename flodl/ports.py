"""The three doors between judgement and the world. Each has a second implementation that needs no hardware.

`World`     where ranks live: the live one (engine), virtual time (sim).
`FanOut`    how processes get onto hosts: this machine (engine), SSH (flodl_launch).
`Averager`  how replicas are combined: a process group (engine), one process that holds them all (tests).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from flodl.decide.messages import Command, Event

__all__ = ["AbandonedError", "Averager", "FanOut", "HostLaunch", "HostNotice", "World"]


class World(Protocol):
    """Where ranks live."""

    def next_event(self, timeout_seconds: float, deadline: float | None = None) -> Event | None:
        """The next event, stamped with this world's clock; None when none came in time.

        deadline: where no event comes before this moment of the clock, `TimeReached` is one.
        """
        ...

    def execute(self, command: Command) -> None:
        """Carry an order out. Returns at once; what comes of it comes as events."""
        ...

    def close(self) -> None:
        """End everything that this world started. Idempotent; bounded in time."""
        ...


class HostLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """What one host's agent is told to start.

    label: the host's name in the cluster. python: interpreter ("" : this one). path: working folder, first on
    sys.path ("" : here). env: variables of every rank of this host. ranks, devices: global numbers and device names
    ("cuda:0", "cpu"), same length. preload: modules that are loaded once, before ranks are forked. secret: what goes
    over standard input only (spec, keys, env_pass values).
    """

    label: str
    python: str = ""
    path: str = ""
    env: dict[str, str] = {}
    ranks: tuple[int, ...]
    devices: tuple[str, ...]
    threads: int = 1
    preload: tuple[str, ...] = ("flodl.engine.worker",)
    secret: bytes = b""


class HostNotice(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a host's agent says.

    kind: facts (the host's answer before anything starts) | started | line (a rank's output) | exit | gone (the
    agent itself ended) . rank: -1 where it concerns the host. text: line, cause or JSON facts. code: exit code,
    negative for a signal.
    """

    host: str
    kind: str
    rank: int = -1
    text: str = ""
    code: int = 0


class FanOut(Protocol):
    """How processes get onto hosts."""

    def start(self, hosts: Sequence[HostLaunch]) -> None:
        """Start one agent per host and through it one process per device. All or nothing: raises NotReady."""
        ...

    def poll(self, timeout_seconds: float) -> tuple[HostNotice, ...]:
        """What the agents said since the last call."""
        ...

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to one rank's process group; a rank that is gone is no error."""
        ...

    def close(self, grace_seconds: float) -> None:
        """End every rank and agent: TERM, then KILL after the grace. Idempotent."""
        ...


class AbandonedError(Exception):
    """An averaging belongs to a generation that is no longer current: its result does not count."""


class Averager(Protocol):
    """How replicas are combined. Vectors are flat, contiguous, of one length on all members.

    A contribution carries its own mass: vectors hold mass x values, the mass itself rides along as an element. So one
    plain sum is all that members need from each other, and a rank that is left out sends zeros without asking.
    """

    def form(self, generation: int, ranks: Sequence[int]) -> None:
        """Join a generation, in this order of ranks. What is under way in an older one ends in `AbandonedError`."""
        ...

    def combine(self, generation: int, round_number: int, vectors: Sequence[Any]) -> None:
        """Everybody's vectors become the members' sum, in place. `AbandonedError` once `generation` has passed."""
        ...

    def broadcast(self, generation: int, source: int, vectors: Sequence[Any]) -> None:
        """Everybody's vectors become those of rank `source`, in place."""
        ...

    def close(self) -> None:
        """Leave the group. Never blocks on a peer."""
        ...
