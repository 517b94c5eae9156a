"""Logging in, from hop to hop: nothing is sent before a server's key was accepted, and every step has a limit.

fabric alone accepts any key, and waits an hour for a channel.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import paramiko

from flodl.ports import HostCall
from flodl_launch.gate import DroppedError, gate_of, persist
from flodl_launch.known import AcceptNew
from flodl_launch.refusal import Attempt, NoKeyError, SlowLoginError, unready
from flodl_launch.route import CONNECT_SECONDS, Hop, route

__all__ = ["Login", "log_in"]

KEEPALIVE_SECONDS = 15  # a NAT between us forgets a silent line
SILENT_SECONDS = 30  # sent and not acknowledged for so long: the line is dead

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # what it has to say comes as errors, in our words


class Login:
    """An authenticated connection, with those to the jump hosts before it."""

    def __init__(self, hops: Sequence[Hop]) -> None:
        self._hops = tuple(hops)

    @property
    def transport(self) -> paramiko.Transport:
        return self._hops[-1].transport

    @property
    def news(self) -> tuple[str, ...]:
        """What the user ought to know of it."""
        return tuple(hop.policy.news for hop in self._hops if isinstance(hop.policy, AcceptNew) and hop.policy.news)

    def close(self) -> None:
        """Drop the lines, the last hop's first. Idempotent."""
        for hop in reversed(self._hops):
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                hop.client.close()


def log_in(call: HostCall) -> Login:
    """Log in to a host, bounded in number and in time; a dropped login is tried again. Raises HostUnready."""
    hops = route(call)
    before: Hop | None = None
    try:
        for hop in hops:
            _enter(call, hop, before)
            before = hop
    except BaseException:
        Login(hops).close()
        raise
    hops[-1].transport.set_keepalive(KEEPALIVE_SECONDS)
    return Login(hops)


def _enter(call: HostCall, hop: Hop, before: Hop | None) -> None:
    try:
        persist(gate_of(hop.host, hop.port), lambda: _attempt(hop, before))
    except (paramiko.SSHException, OSError, EOFError, DroppedError, NoKeyError) as error:
        raise unready(Attempt(call=call, hop=hop, through=before), error) from None


def _attempt(hop: Hop, before: Hop | None) -> None:
    """One login within the limit, whichever of its steps hangs."""
    end = time.monotonic() + CONNECT_SECONDS
    line = None if hop.connection.gateway else _dial(hop, before)
    if line is not None:
        hop.connection.connect_kwargs["sock"] = line
    watch = threading.Timer(max(0.0, end - time.monotonic()), _cut, [line, hop.client])
    watch.daemon = True
    watch.start()
    try:
        hop.connection.open()
    except (paramiko.SSHException, OSError, EOFError) as error:
        transport = hop.client.get_transport()
        was_greeted = transport is not None and bool(transport.remote_version)
        hop.client.close()
        if time.monotonic() >= end:
            raise SlowLoginError(f"no login within {CONNECT_SECONDS:g} s") from error
        if "No authentication methods" in str(error):
            raise NoKeyError from error
        if "No existing session" in str(error):  # hung up on after too many keys
            raise paramiko.AuthenticationException(str(error)) from error
        if not was_greeted and not str(error).startswith("Indecipherable"):
            raise DroppedError(str(error)) from error
        raise
    finally:
        watch.cancel()


def _dial(hop: Hop, before: Hop | None) -> Any:
    """A line to the server: TCP from here, or through the jump host before it."""
    place = (hop.host, hop.port)
    if before is not None:
        return before.transport.open_channel("direct-tcpip", place, ("", 0), timeout=CONNECT_SECONDS)
    line = socket.create_connection(place, timeout=CONNECT_SECONDS)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_SECONDS * 1000)
    return line


def _cut(line: Any, client: paramiko.SSHClient) -> None:
    """End a login that hangs: whoever reads from the line meets its end."""
    with contextlib.suppress(OSError, EOFError):
        if line is not None:
            line.shutdown(socket.SHUT_RDWR)
        else:
            client.close()
