"""Why a host was not reached, in words: one HostUnready for each way in which a login can fail."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from paramiko.config import SSH_PORT

from flodl.errors import HostUnready
from flodl.ports import HostCall
from flodl_launch.gate import TRIES, DroppedError
from flodl_launch.known import RevokedKeyError, UnknownKeyError, fingerprint, server_name
from flodl_launch.route import Hop

__all__ = ["Attempt", "NoKeyError", "SlowLoginError", "unready"]


class SlowLoginError(TimeoutError):
    """Somebody took the call, and the login did not come to its end in time."""


class NoKeyError(Exception):
    """There was nothing to log in with."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Who wanted to go where. through: the jump host before it."""

    call: HostCall
    hop: Hop
    through: Hop | None = None

    @property
    def place(self) -> str:
        """user@host:port, and the way there."""
        way = f" through {self.through.host}" if self.through is not None else ""
        return f"{self.hop.user}@{self.hop}{way}"

    def unready(self, kind: str, message: str, remedy: str) -> HostUnready:
        return HostUnready(self.call.label, kind, message, remedy)


def unready(attempt: Attempt, error: Exception) -> HostUnready:
    """The failure of one login, told apart."""
    tell = next(tell for kind, tell in _TELLERS if isinstance(error, kind))
    return tell(attempt, error)


# -------------------------------------------------------------------------------------------------- host keys


def _unknown_key(attempt: Attempt, error: UnknownKeyError) -> HostUnready:
    return attempt.unready(
        "host_key_unknown",
        f"the host key of {attempt.hop}, {fingerprint(error.key)}, is in no known_hosts file",
        f"compare it with `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` on that host, then say yes to "
        f"`{_by_hand(attempt)}` once, or set ssh.host_key_policy: accept_new",
    )


def _changed_key(attempt: Attempt, error: paramiko.BadHostKeyException) -> HostUnready:
    hop = attempt.hop
    if (revoked := hop.policy.revoked(error.key)) is not None:
        return _revoked_key(attempt, RevokedKeyError(revoked))
    entry = next(entry for entry in hop.policy.keys if entry.key == error.expected_key)
    named = server_name(hop.host, hop.port)
    forget = f"`ssh-keygen -f {shlex.quote(str(entry.file))} -R {shlex.quote(named)}`"
    return attempt.unready(
        "host_key_changed",
        f"{hop} shows the host key {fingerprint(error.key)}, but {fingerprint(error.expected_key)} is known: "
        "another machine answers, or it was installed anew",
        f"if you know why, {forget if entry.is_named else f'correct {entry.place}'}",
    )


def _revoked_key(attempt: Attempt, error: RevokedKeyError) -> HostUnready:
    return attempt.unready(
        "host_key_changed",
        f"{attempt.hop} shows the host key {fingerprint(error.entry.key)}, which {error.entry.place} says was revoked",
        "give that host a new key: whoever holds the old one can pretend to be it",
    )


# ------------------------------------------------------------------------------------------------------ logins


def _no_login(attempt: Attempt, error: paramiko.SSHException) -> HostUnready:
    identity = attempt.call.spec.ssh.identity_file
    if identity is not None and _is_locked(Path(identity).expanduser()):
        return attempt.unready("auth", f"{attempt.place} was not entered: {identity} has a passphrase",
                               f"`ssh-add {identity}`; no one can be asked for it here")  # fmt: skip
    if isinstance(error, NoKeyError):
        return attempt.unready("auth", f"there is no key to offer to {attempt.place}: no agent, no ~/.ssh/id_*",
                               "set ssh.identity_file, or `ssh-add` a key")  # fmt: skip
    allowed = getattr(error, "allowed_types", [])
    how = f" (it takes {', '.join(allowed)})" if allowed and "publickey" not in allowed else ""
    offered = identity or "the keys of the agent and of ~/.ssh"
    return attempt.unready(
        "auth",
        f"{attempt.place} was not entered with {offered}{how}: wrong user, or that key is not authorized there",
        f"check ssh.user, or `ssh-copy-id{_options(attempt)} {attempt.hop.user}@{attempt.hop.host}`",
    )


def _is_locked(file: Path) -> bool:
    try:
        paramiko.Ed25519Key.from_private_key_file(str(file))  # whatever kind of key it is, that is seen first
    except paramiko.PasswordRequiredException:
        return True
    except (paramiko.SSHException, OSError, ValueError):
        return False
    return False


# ------------------------------------------------------------------------------------------------------- lines


def _refused(attempt: Attempt, error: Exception) -> HostUnready:
    return attempt.unready("refused", f"nothing listens on {attempt.hop}",
                           "start sshd there, or correct ssh.port")  # fmt: skip


def _no_name(attempt: Attempt, error: Exception) -> HostUnready:
    return attempt.unready("unreachable", f"the name {attempt.hop.host} leads to no address ({_text(error)})",
                           "set ssh.target to its address, or add the name to /etc/hosts")  # fmt: skip


def _slow(attempt: Attempt, error: Exception) -> HostUnready:
    return attempt.unready("timeout", f"{attempt.hop} takes calls, but there was {_text(error)}",
                           "is that an SSH server, and is its host overloaded?")  # fmt: skip


def _unreachable(attempt: Attempt, error: Exception) -> HostUnready:
    return attempt.unready("unreachable", f"{attempt.hop} cannot be reached ({_text(error)})",
                           "is it switched on, in this network, and not behind a firewall?")  # fmt: skip


def _no_channel(attempt: Attempt, error: paramiko.ChannelException) -> HostUnready:
    through = attempt.through.host if attempt.through is not None else attempt.hop.host
    return attempt.unready("unreachable",
                           f"{through} did not open a line to {attempt.hop} ({error.text})",
                           "is the host up as seen from there, and AllowTcpForwarding not off?")  # fmt: skip


def _dropped(attempt: Attempt, error: Exception) -> HostUnready:
    return attempt.unready("refused", f"{attempt.hop} dropped {TRIES} logins before greeting",
                           "raise MaxStartups in its sshd_config; its log says why")  # fmt: skip


def _no_ssh(attempt: Attempt, error: Exception) -> HostUnready:
    return attempt.unready("protocol", f"SSH with {attempt.place} failed: {_text(error)}",
                           f"`{_by_hand(attempt)} -v` may say more")  # fmt: skip


_TELLERS: tuple[tuple[type[Exception], Callable[[Attempt, Any], HostUnready]], ...] = (
    (UnknownKeyError, _unknown_key),
    (RevokedKeyError, _revoked_key),
    (paramiko.BadHostKeyException, _changed_key),
    (paramiko.AuthenticationException, _no_login),
    (NoKeyError, _no_login),
    (paramiko.ChannelException, _no_channel),
    (DroppedError, _dropped),
    (ConnectionRefusedError, _refused),
    (socket.gaierror, _no_name),
    (SlowLoginError, _slow),
    (OSError, _unreachable),
    (Exception, _no_ssh),
)


def _port(attempt: Attempt) -> str:
    """ "" for the usual one."""
    port = attempt.hop.port
    return "" if port == SSH_PORT else str(port)


def _options(attempt: Attempt) -> str:
    """What ssh needs to be told to go the same way."""
    ssh = attempt.call.spec.ssh
    given = {
        "-i": ssh.identity_file,
        "-p": _port(attempt),
        "-o": f"UserKnownHostsFile={ssh.known_hosts}" if ssh.known_hosts else None,
        "-J": attempt.through.host if attempt.through is not None else None,
    }
    return "".join(f" {name} {shlex.quote(value)}" for name, value in given.items() if value)


def _by_hand(attempt: Attempt) -> str:
    return f"ssh{_options(attempt)} {attempt.hop.user}@{attempt.hop.host}"


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
