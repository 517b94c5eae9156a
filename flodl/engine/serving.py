"""Downloads as the controller answers them: each question says from where it wants bytes, nothing is remembered."""

from __future__ import annotations

from collections.abc import Callable

from flodl.engine import protocol
from flodl.engine.protocol import Piece, Want
from flodl.errors import FlodlError

__all__ = ["ReadPart", "Serving"]

ReadPart = Callable[[str, int], tuple[bytes, int]]  # (name, offset) -> (bytes, size of the whole)


class Serving:
    """For one thread. read: None where there is nothing to be had."""

    def __init__(self, run_id: str, read: ReadPart | None) -> None:
        self._run_id, self._read = run_id, read

    def answer(self, header: bytes) -> tuple[Piece, bytes] | None:
        """What a rank asks for; None where it asks for nothing."""
        frame = protocol.bulk_up(header, self._run_id)
        if frame is None or not isinstance(frame.message, Want):
            return None
        want = frame.message
        try:
            if self._read is None or want.offset < 0:
                raise FlodlError(f"{want.name}: there is nothing to be had here")
            data, total = self._read(want.name, want.offset)
        except (FlodlError, OSError) as error:
            return Piece(offset=want.offset, error=str(error) or type(error).__name__), b""
        return Piece(offset=want.offset, total=total), data
