"""What a look at hosts has found: an error forbids the start, a warning and an information do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from flodl.errors import HostUnready

__all__ = ["Finding", "errors_of", "in_order", "unready"]

_SEVERITIES = ("error", "warning", "info")

SHOWN_LINES = 5

# HostUnready.kind -> the key that a person has to look at.
_KEYS = {
    "auth": "ssh.identity_file",
    "host_key_changed": "ssh.known_hosts",
    "host_key_unknown": "ssh.known_hosts",
    "no_flodl": "python",
    "no_path": "path",
    "no_python": "python",
}

_REMEDIES = {
    "unreachable": "is it switched on, and on this network? `ssh HOST` from this machine must work",
    "refused": "start sshd there, or name its port: ssh.port",
    "auth": "`ssh-copy-id HOST`, or name the right key and user: ssh.identity_file, ssh.user",
    "host_key_unknown": "`ssh HOST` once by hand and compare the fingerprint, or ssh.host_key_policy=accept_new",
    "host_key_changed": "compare its fingerprint with the machine's own; then `ssh-keygen -R HOST`",
    "login_shell": "`exit` and `exec` in its shell's startup files end our program too: guard them for interactive use",
    "no_python": "set python: or arch:, or make an environment with task=setup",
    "no_flodl": "install flodl into that interpreter, or make an environment with task=setup",
    "no_path": "create the folder, or push the project with deploy.code=rsync",
    "timeout": "log in by hand and look what it is busy with",
    "protocol": "the same flodl must be installed on every host",
    "ended": "its last lines, above, say why",
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing. host: label ("" where it concerns all). key: of the cluster file, or what it is about in a word.

    message: what is the case, with the value. remedy: what to do about it.
    """

    severity: Literal["error", "warning", "info"]
    host: str
    key: str
    message: str
    remedy: str = ""


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that forbid the start."""
    return tuple(finding for finding in findings if finding.severity == "error")


def in_order(findings: Iterable[Finding], hosts: Sequence[str]) -> tuple[Finding, ...]:
    """Errors first, then warnings; each in the order of the hosts, what concerns all of them last."""
    places = {host: place for place, host in enumerate(hosts)}
    return tuple(
        sorted(findings, key=lambda found: (_SEVERITIES.index(found.severity), places.get(found.host, len(places))))
    )


def unready(error: HostUnready) -> Finding:
    """A host that could not be met, as a finding."""
    remedy = error.remedy or _REMEDIES.get(error.kind, "").replace("HOST", error.host)
    key = _KEYS.get(error.kind, "host")
    message = "\n".join([error.message, *(f"| {line}" for line in error.lines[-SHOWN_LINES:])])
    return Finding(severity="error", host=error.host, key=key, message=message, remedy=remedy)
