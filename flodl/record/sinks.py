"""Where the bytes of an upload go: one interface, and three that keep no file (`saving` has the one that does)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["LastSink", "NoSink", "PlainSink", "Sink"]


class Sink(Protocol):
    """Where one upload goes."""

    def write(self, data: memoryview) -> object:
        """More bytes."""
        ...

    def commit(self, sha256: str) -> None:
        """All are there; sha256: their digest."""
        ...

    def abandon(self) -> None:
        """Leave nothing behind."""
        ...


class PlainSink:
    """What fits in memory. on_whole: told of all of it."""

    def __init__(self, on_whole: Callable[[bytes], None]) -> None:
        self._on_whole = on_whole
        self._parts = bytearray()

    def write(self, data: memoryview) -> None:
        """More bytes."""
        self._parts += data

    def commit(self, sha256: str) -> None:
        """Hand it on."""
        self._on_whole(bytes(self._parts))

    def abandon(self) -> None:
        """Forget it."""
        self._parts.clear()


class NoSink:
    """For what has come already."""

    def write(self, data: memoryview) -> None:
        """Nothing."""

    def commit(self, sha256: str) -> None:
        """Nothing."""

    def abandon(self) -> None:
        """Nothing."""


class LastSink:
    """The last one of several. on_whole: told when it has all."""

    def __init__(self, sink: Sink, on_whole: Callable[[], None]) -> None:
        self._sink, self._on_whole = sink, on_whole
        self.write, self.abandon = sink.write, sink.abandon

    def commit(self, sha256: str) -> None:
        """All are there."""
        self._sink.commit(sha256)
        self._on_whole()
