"""Uploads as the controller receives them: parts go straight to a sink, which puts the whole in place or drops it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from flodl.engine import protocol
from flodl.engine.protocol import Credit, Offer, Part, Stored, Whole
from flodl.ports import UploadSink

__all__ = ["Receiving"]


class _Upload:
    def __init__(self, who: tuple[int, int], sink: UploadSink) -> None:
        self.who = who
        self.sink = sink
        self.received = 0
        self.digest = hashlib.sha256()


class Receiving:
    """All uploads under way, by the connection they come over. For one thread."""

    def __init__(self, run_id: str, open_upload: Callable[[int, str], UploadSink]) -> None:
        self.dropped = 0
        self._run_id = run_id
        self._open = open_upload
        self._uploads: dict[bytes, _Upload] = {}

    def hear(self, route: bytes, who: tuple[int, int], frames: Sequence[memoryview]) -> Credit | Stored | None:
        """One message; the answer to it. who: a rank, and which of its processes. frames: header, a part's bytes."""
        frame = protocol.bulk_up(bytes(frames[0]), self._run_id)
        message: Any = None if frame is None else frame.message
        try:
            if isinstance(message, Offer):
                return self._begin(route, who, message)
            upload = self._uploads.get(route)
            if upload is not None and isinstance(message, Part) and len(frames) == 2:
                return self._part(upload, frames[1])
            if upload is not None and isinstance(message, Whole):
                return self._end(route, upload, message)
        except Exception as error:  # noqa: BLE001  whatever a sink raises: an upload without an answer is waited for
            self._forget(route)
            return Stored(error=str(error) or type(error).__name__)
        self.dropped += 1
        return None

    def refuse(self, route: bytes, why: str) -> Stored:
        """Drop what comes over this connection."""
        self._forget(route)
        return Stored(error=why)

    def drop(self, is_gone: Callable[[tuple[int, int]], bool]) -> None:
        """Drop what nobody will end: uploads of processes that are gone."""
        for route in [route for route, upload in self._uploads.items() if is_gone(upload.who)]:
            self._forget(route)

    def close(self) -> None:
        """Drop what is unfinished."""
        for route in list(self._uploads):
            self._forget(route)

    def _begin(self, route: bytes, who: tuple[int, int], offer: Offer) -> Credit:
        self._forget(route)
        self._uploads[route] = _Upload(who, self._open(who[0], offer.name))
        return Credit(received=0)

    def _part(self, upload: _Upload, data: memoryview) -> Credit:
        upload.sink.write(data)
        upload.digest.update(data)
        upload.received += len(data)
        return Credit(received=upload.received)

    def _end(self, route: bytes, upload: _Upload, whole: Whole) -> Stored:
        if upload.digest.hexdigest() != whole.sha256:
            raise ValueError("the bytes that arrived are not those that were sent")
        upload.sink.commit(whole.sha256)
        del self._uploads[route]
        return Stored()

    def _forget(self, route: bytes) -> None:
        upload = self._uploads.pop(route, None)
        if upload is not None:
            upload.sink.abandon()
