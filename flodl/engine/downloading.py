"""A download as a rank does it: it asks for pieces, a bounded number ahead, and puts each where it belongs."""

from __future__ import annotations

import zmq

from flodl.engine import protocol
from flodl.engine.protocol import Piece, Want
from flodl.errors import FlodlError

__all__ = ["download"]

AHEAD = 8


def download(socket: zmq.Socket[bytes], run_id: str, name: str, patience_seconds: float) -> bytearray:
    """The whole of `name`. Raises FlodlError, with the controller's reason where it has one."""

    def ask(offset: int) -> None:
        socket.send(protocol.encode(protocol.BulkUp(run_id, Want(name=name, offset=offset))))

    ask(0)
    first, data = _piece(socket, run_id, name, patience_seconds)
    whole = bytearray(first.total)
    whole[: len(data)] = data
    offsets = range(protocol.PART_BYTES, first.total, protocol.PART_BYTES)
    for offset in offsets[:AHEAD]:
        ask(offset)
    for number in range(len(offsets)):
        found, data = _piece(socket, run_id, name, patience_seconds)
        if number + AHEAD < len(offsets):
            ask(offsets[number + AHEAD])
        if found.total != first.total or len(data) != min(protocol.PART_BYTES, found.total - found.offset):
            raise FlodlError(f"{name} has changed while it was read")
        whole[found.offset : found.offset + len(data)] = data
    return whole


def _piece(socket: zmq.Socket[bytes], run_id: str, name: str, patience_seconds: float) -> tuple[Piece, bytes]:
    if not socket.poll(int(patience_seconds * 1000)):
        raise FlodlError(f"the download of {name} stalls: no answer for {patience_seconds:g} s")
    header, *beside = socket.recv_multipart()
    frame = protocol.bulk_down(header, run_id)
    if frame is None or not isinstance(frame.message, Piece) or len(beside) != 1:
        raise FlodlError(f"the download of {name} met a malformed answer")
    if frame.message.error:
        raise FlodlError(f"the controller cannot give {name}: {frame.message.error}")
    return frame.message, beside[0]
