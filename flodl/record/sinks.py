"""Uploads that need no file of their own: three of `ports.UploadSink` (`saving` has that of a bundle's member)."""

from __future__ import annotations

from collections.abc import Callable

from flodl.ports import UploadSink

__all__ = ["LastSink", "NoSink", "PlainSink"]


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

    def __init__(self, sink: UploadSink, on_whole: Callable[[], None]) -> None:
        self._sink, self._on_whole = sink, on_whole
        self.write, self.abandon = sink.write, sink.abandon

    def commit(self, sha256: str) -> None:
        """All are there."""
        self._sink.commit(sha256)
        self._on_whole()
