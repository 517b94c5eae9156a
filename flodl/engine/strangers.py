"""Who comes to the run's ports without being of the run, counted by ZeroMQ's own monitor.

Nothing of it is parsed or kept: a count is all that a person is told, once. (A monitor that nobody reads drops what it
cannot hold, so a crowd costs no memory.)
"""

from __future__ import annotations

from collections.abc import Iterable

import zmq
from zmq.utils.monitor import recv_monitor_message

__all__ = ["Strangers"]

FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH


class Strangers:
    """Counts handshakes that came to nothing. Watch sockets before they are used by another thread."""

    def __init__(self) -> None:
        self._monitors: list[zmq.Socket[bytes]] = []
        self._count = 0

    def watch(self, sockets: Iterable[zmq.Socket[bytes]]) -> None:
        """Count those of these sockets, too."""
        self._monitors += [socket.get_monitor_socket(FAILED) for socket in sockets]

    def count(self) -> int:
        """All so far. From one thread only."""
        for monitor in self._monitors:
            while monitor.poll(0):
                recv_monitor_message(monitor)
                self._count += 1
        return self._count
