"""The way to a host as a configuration of OpenSSH's client, for programs that bring it along: rsync.

Everything that was resolved stands in it and nothing else is read, so rsync goes where agents go, under the same keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from flodl_launch.known import AcceptNew
from flodl_launch.route import CONNECT_SECONDS, Hop

__all__ = ["ALIAS", "client_config"]

ALIAS = "flodl-host"  # a name of our own: rsync reads colons and dashes in others


def client_config(hops: Sequence[Hop]) -> str:
    """The text of the file. ALIAS is the last hop."""
    names = [f"{ALIAS}-{number}" for number in range(1, len(hops))] + [ALIAS]
    blocks: list[str] = []
    before = ""
    for name, hop in zip(names, hops, strict=True):
        blocks.append("\n    ".join([f"Host {name}", *_settings(hop, before)]))
        before = name
    return "\n".join(blocks) + "\n"


def _settings(hop: Hop, before: str) -> list[str]:
    new_keys = "accept-new" if isinstance(hop.policy, AcceptNew) else "yes"
    found = [
        f"HostName {hop.host}",
        f"Port {hop.port}",
        f"User {hop.user}",
        "BatchMode yes",
        f"ConnectTimeout {CONNECT_SECONDS:.0f}",
        f"StrictHostKeyChecking {new_keys}",
        "UserKnownHostsFile " + " ".join(_quoted(str(file)) for file in hop.known),
        *(f"IdentityFile {_quoted(file)}" for file in hop.identities),
    ]
    if before:
        found.append(f"ProxyJump {before}")
    elif hop.connection.gateway:
        found.append(f"ProxyCommand {hop.connection.gateway}")
    return found


def _quoted(path: str) -> str:
    """A path as one word; % begins a token there."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
