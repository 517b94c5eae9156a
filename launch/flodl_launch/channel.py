"""An SSH channel as what the controller reads and writes: three binary streams, an exit code, an end.

paramiko forgets how a program ended when a signal did it. The server tells, and it is heard here: an agent that was
killed is told apart from a line that broke.
"""

from __future__ import annotations

import io
import signal
import threading
from collections.abc import Callable

import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST

__all__ = ["SignalTransport", "StreamReader", "StreamWriter"]


class SignalTransport(paramiko.Transport):
    """A transport whose channels tell by which signal a program ended: exit_status is then its number, negative."""


def _hear_request(channel: paramiko.Channel, message: paramiko.Message) -> None:
    behind_the_number = message.packet.tell()  # type: ignore[attr-defined]
    if message.get_text() == "exit-signal":
        message.get_boolean()  # nobody waits for an answer to it
        name = message.get_text().partition("@")[0]
        number = getattr(signal, f"SIG{name}", signal.SIGKILL)
        channel.exit_status = -int(number)
        channel.status_event.set()
        return
    message.packet.seek(behind_the_number)  # type: ignore[attr-defined]
    channel._handle_request(message)  # type: ignore[attr-defined]


SignalTransport._channel_handler_table = {  # type: ignore[attr-defined]
    **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
    MSG_CHANNEL_REQUEST: _hear_request,
}


class StreamReader(io.RawIOBase):
    """One output of a channel. ahead: what is read first. at_end is called once: at its end, or when it is closed."""

    def __init__(self, receive: Callable[[int], bytes], at_end: Callable[[], None], ahead: bytes = b"") -> None:
        self._receive = receive
        self._at_end = at_end
        self._ahead = ahead
        self._ended = threading.Lock()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        data = self._ahead[: len(buffer)] or self._receive(len(buffer))
        self._ahead = self._ahead[len(data) :]
        buffer[: len(data)] = data
        if not data:
            self._end()
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._end()

    def _end(self) -> None:
        if self._ended.acquire(blocking=False):
            self._at_end()


class StreamWriter(io.RawIOBase):
    """The channel's input. Unbuffered; closing it is the program's end of file."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def writable(self) -> bool:
        return True

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        self._channel.sendall(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            try:
                self._channel.shutdown_write()
            except (OSError, EOFError, paramiko.SSHException):
                return  # the line is gone, and the program's input with it
