"""The way to a host: the jump hosts in the order that they are passed, then the host; with settings for each.

fabric reads ~/.ssh/config; what the cluster file says wins over it. Known host keys are loaded, and what becomes of
others is settled, before a connection is opened: on jump hosts too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fabric
import paramiko
from fabric.connection import derive_shorthand
from paramiko.hostkeys import InvalidHostKey

from flodl.errors import HostUnready
from flodl.ports import HostCall
from flodl.spec.cluster import SshSpec
from flodl_launch.channel import SignalTransport
from flodl_launch.command import plain_fault
from flodl_launch.known import AcceptNew, Reject, known_hosts_files, known_keys, let_in
from flodl_launch.settings import read_settings

__all__ = ["CONNECT_SECONDS", "Hop", "route"]

CONNECT_SECONDS = 10.0
HOPS_LIMIT = 8


@dataclass(eq=False)
class Hop:
    """One server to log in to. connection: fabric's, not opened yet. known: the files of known hosts."""

    connection: Any  # a fabric.Connection, whose inferred types allow None everywhere
    policy: Reject | AcceptNew
    known: tuple[Path, ...]

    @property
    def identities(self) -> list[str]:
        """Private keys that were named."""
        return self.connection.connect_kwargs.get("key_filename", [])

    @property
    def host(self) -> str:
        return str(self.connection.host)

    @property
    def port(self) -> int:
        return int(self.connection.port)

    @property
    def user(self) -> str:
        return str(self.connection.user)

    @property
    def client(self) -> paramiko.SSHClient:
        return self.connection.client

    @property
    def transport(self) -> paramiko.Transport:
        """Once it was opened."""
        return self.connection.transport

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def route(call: HostCall) -> list[Hop]:
    """All hops, none of them opened. Raises HostUnready where settings cannot be understood."""
    ssh = call.spec.ssh
    if ssh.identity_file is not None and not Path(ssh.identity_file).expanduser().is_file():
        raise HostUnready(call.label, "auth", f"ssh.identity_file={ssh.identity_file} is no file",
                          "name the private key's file")  # fmt: skip
    try:
        return _hops(ssh, read_settings(), ssh.target or call.label)
    except (paramiko.SSHException, InvalidHostKey, ValueError, OSError) as error:
        raise HostUnready(call.label, "protocol", f"its ssh settings cannot be used: {error}",
                          "see ssh in the cluster file, ~/.ssh/config and known_hosts") from None  # fmt: skip


def _hops(ssh: SshSpec, config: fabric.Config, name: str) -> list[Hop]:
    found = [_hop(ssh, config, name)]
    jumps = ssh.proxy_jump or found[0].connection.ssh_config.get("proxyjump", "none")
    # A jump host has its own name, user and port; keys are those of the cluster file.
    keys = SshSpec(identity_file=ssh.identity_file, known_hosts=ssh.known_hosts, host_key_policy=ssh.host_key_policy)
    while jumps != "none":
        passed = [_hop(keys, config, name.strip()) for name in jumps.split(",")]
        found = passed + found
        jumps = passed[0].connection.ssh_config.get("proxyjump", "none")
        if len(found) > HOPS_LIMIT:
            raise ValueError(f"ProxyJump leads from one host to the next without end ({jumps})")
    found[0].connection.gateway = found[0].connection.ssh_config.get("proxycommand")
    return found


def _hop(ssh: SshSpec, config: fabric.Config, name: str) -> Hop:
    user, _, place = name.rpartition("@")
    shorthand = derive_shorthand(place)
    connection: Any = fabric.Connection(
        shorthand["host"] or "",
        user=ssh.user or user or None,
        port=ssh.port or shorthand["port"],
        config=config,
        connect_kwargs=_connect_kwargs(ssh),
        gateway=False,  # fabric would follow a list of jump hosts from its end
    )
    for key, value in (("host", str(connection.host)), ("user", str(connection.user))):
        fault = plain_fault(value)
        if fault:
            raise ValueError(f"the {key} {value!r} {fault}")
    named = connection.connect_kwargs.get("key_filename", [])  # ~/.ssh/config may name files that are not there
    connection.connect_kwargs["key_filename"] = [file for file in named if Path(file).exists()]
    files = known_hosts_files(ssh.known_hosts, connection.ssh_config.get("userknownhostsfile", "").split())
    keys = known_keys(files, str(connection.host), int(connection.port))
    let_in(connection.client, str(connection.host), int(connection.port), keys)
    policy = AcceptNew(files[0], keys) if ssh.host_key_policy == "accept_new" else Reject(keys)
    connection.client.set_missing_host_key_policy(policy)
    return Hop(connection, policy, files)


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
