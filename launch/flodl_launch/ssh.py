"""Logging in: one server after another where jump hosts are named, each with its key checked before anything is sent.

fabric reads ~/.ssh/config; what the cluster file says wins over it. Everything has a limit: the connect, the greeting,
the login, the opening of a channel. fabric alone waits an hour for the last.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import fabric
import paramiko
from paramiko.hostkeys import InvalidHostKey

from flodl.ports import HostCall
from flodl.spec.cluster import SshSpec
from flodl_launch.channel import SignalTransport
from flodl_launch.gate import DroppedError, gate_of, persist
from flodl_launch.known import AcceptNew, Reject, known_hosts_files
from flodl_launch.refusal import Attempt, NoKeyError, SlowLoginError, check_identity, check_name, unreadable, unready

__all__ = ["CONNECT_SECONDS", "Login", "log_in"]

CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 15  # a NAT between us forgets a silent line
SILENT_SECONDS = 30  # sent and not acknowledged for so long: the line is dead
HOPS_LIMIT = 8


class Login:
    """An authenticated connection, with those to the jump hosts before it."""

    def __init__(self, hops: list[fabric.Connection], news: list[str]) -> None:
        self._hops = hops
        self.news = tuple(news)

    @property
    def transport(self) -> paramiko.Transport:
        transport = self._hops[-1].transport
        assert transport is not None
        return transport

    def close(self) -> None:
        """Drop the lines, the last hop's first. Idempotent."""
        _close(self._hops)


def log_in(call: HostCall) -> Login:
    """Log in to a host, bounded in number and in time; a dropped login is tried again. Raises HostUnready."""
    hops: list[fabric.Connection] = []
    news: list[str] = []
    try:
        for connection in _route(call):
            _enter(call, connection, hops[-1] if hops else None, news)
            hops.append(connection)
    except BaseException:
        _close(hops)
        raise
    transport = hops[-1].transport
    transport.set_keepalive(KEEPALIVE_SECONDS)
    return Login(hops, news)


def _close(hops: list[fabric.Connection]) -> None:
    for connection in reversed(hops):
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            connection.client.close()


# ---------------------------------------------------------------------------------------------------- the route


def _route(call: HostCall) -> list[fabric.Connection]:
    """The jump hosts in the order that they are passed, then the host."""
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # what it has to say comes as errors, in our words
    ssh = call.spec.ssh
    config = fabric.Config(lazy=True)  # not ~/.fabric.yaml: a run depends on its cluster file and on ssh's own files
    try:
        config.load_ssh_config()
        target = _connection(call, config, ssh.target or call.label, ssh)
        jumps = ssh.proxy_jump or target.ssh_config.get("proxyjump", "none")
        found = [target]
        while jumps != "none":
            names = [name.strip() for name in jumps.split(",")]
            passed = [_connection(call, config, name, _of_jump_host(ssh)) for name in names]
            found = passed + found
            jumps = passed[0].ssh_config.get("proxyjump", "none")
            if len(found) > HOPS_LIMIT:
                raise ValueError(f"ProxyJump leads from one host to the next without end ({jumps})")
        return found
    except (paramiko.SSHException, InvalidHostKey, ValueError, OSError) as error:
        raise unreadable(call, error) from None


def _of_jump_host(ssh: SshSpec) -> SshSpec:
    """A jump host has its own name, user and port; keys are those of the cluster file."""
    return SshSpec(identity_file=ssh.identity_file, known_hosts=ssh.known_hosts, host_key_policy=ssh.host_key_policy)


def _connection(call: HostCall, config: fabric.Config, name: str, ssh: SshSpec) -> fabric.Connection:
    user, _, place = name.rpartition("@")
    shorthand = fabric.connection.derive_shorthand(place)
    connection = fabric.Connection(
        shorthand["host"] or "",
        user=ssh.user or user or None,
        port=ssh.port or shorthand["port"],
        config=config,
        connect_kwargs=_connect_kwargs(ssh),
        gateway=False,
    )
    for key, value in (("ssh.target", connection.host), ("ssh.user", connection.user)):
        check_name(call, key, value)
    if "proxycommand" in connection.ssh_config and "proxyjump" not in connection.ssh_config:
        connection.gateway = connection.ssh_config["proxycommand"]
    check_identity(call)
    named = connection.connect_kwargs.get("key_filename", [])  # ~/.ssh/config may name files that are not there
    connection.connect_kwargs["key_filename"] = [name for name in named if Path(name).exists()]
    _check_keys(connection, ssh)
    return connection


def _connect_kwargs(ssh: SshSpec) -> dict[str, Any]:
    given: dict[str, Any] = {
        "timeout": CONNECT_SECONDS,
        "banner_timeout": CONNECT_SECONDS,
        "auth_timeout": CONNECT_SECONDS,
        "channel_timeout": CONNECT_SECONDS,
        "transport_factory": SignalTransport,
    }
    if ssh.identity_file is not None:
        given |= {"key_filename": [str(Path(ssh.identity_file).expanduser())], "look_for_keys": False}
    return given


def _check_keys(connection: fabric.Connection, ssh: SshSpec) -> None:
    """Known keys and what becomes of others, before a connection is opened."""
    files = known_hosts_files(ssh.known_hosts, connection.ssh_config.get("userknownhostsfile", "").split())
    for file in files:
        if file.exists():
            connection.client.load_system_host_keys(str(file))
    policy = AcceptNew(files[0]) if ssh.host_key_policy == "accept_new" else Reject()
    connection.client.set_missing_host_key_policy(policy)


# ---------------------------------------------------------------------------------------------------- one login


def _enter(call: HostCall, connection: fabric.Connection, before: fabric.Connection | None, news: list[str]) -> None:
    attempt = Attempt(call=call, connection=connection, through=before)
    try:
        persist(gate_of(connection.host, connection.port), lambda: _attempt(connection, before))
    except (paramiko.SSHException, OSError, EOFError, DroppedError, NoKeyError) as error:
        raise unready(attempt, error) from None
    news += filter(None, [getattr(connection.client._policy, "news", "")])  # type: ignore[attr-defined]


def _attempt(connection: fabric.Connection, before: fabric.Connection | None) -> None:
    """One login within the limit, whichever of its steps hangs."""
    end = time.monotonic() + CONNECT_SECONDS
    if not connection.gateway:
        connection.connect_kwargs["sock"] = _dial(connection, before, end)
    line = connection.connect_kwargs.get("sock")
    watch = threading.Timer(max(0.0, end - time.monotonic()), _cut, [line, connection.client])
    watch.daemon = True
    watch.start()
    try:
        connection.open()
    except (paramiko.SSHException, OSError, EOFError) as error:
        transport = connection.client.get_transport()
        has_begun = transport is not None and transport.initial_kex_done
        connection.client.close()
        if time.monotonic() >= end:
            raise SlowLoginError(f"no login within {CONNECT_SECONDS:g} s") from error
        was_dropped = not has_begun and transport is not None and not transport.remote_version
        if was_dropped and not str(error).startswith("Indecipherable"):
            raise DroppedError(str(error)) from error
        if "No authentication methods" in str(error):
            raise NoKeyError from error
        raise
    finally:
        watch.cancel()


def _dial(connection: fabric.Connection, before: fabric.Connection | None, end: float) -> socket.socket | Any:
    """A line to the server: TCP from here, or through the jump host before it."""
    place = (connection.host, int(connection.port))
    limit = max(0.1, end - time.monotonic())
    if before is not None:
        return before.transport.open_channel("direct-tcpip", place, ("", 0), timeout=limit)
    line = socket.create_connection(place, timeout=limit)
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
