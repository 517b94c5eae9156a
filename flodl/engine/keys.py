"""CURVE key pairs: one for the controller and one per rank, made for one run and thrown away with it.

Keys never reach argv, the environment, a file or a log: they travel to a host over its agent's standard input, and
their `repr` says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import zmq

__all__ = ["KeyPair", "RunKeys", "make_keys", "make_pair"]


class KeyPair(msgspec.Struct, frozen=True, kw_only=True):
    """One side's CURVE keys, each 40 characters of Z85."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"


class RunKeys(msgspec.Struct, frozen=True, kw_only=True):
    """All keys of one run: the controller's pair and one pair per rank."""

    server: KeyPair
    by_rank: dict[int, KeyPair]

    def __repr__(self) -> str:
        return f"RunKeys({len(self.by_rank)} ranks)"

    def ranks_by_public_key(self) -> dict[str, int]:
        """Whose public key is whose: the only list by which anybody is let in."""
        return {pair.public.decode("ascii"): rank for rank, pair in self.by_rank.items()}


def make_keys(ranks: Iterable[int]) -> RunKeys:
    """Fresh keys for a run of these ranks."""
    return RunKeys(server=make_pair(), by_rank={rank: make_pair() for rank in ranks})


def make_pair() -> KeyPair:
    """Fresh keys for one side."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public=public, secret=secret)
