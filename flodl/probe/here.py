"""Which hosts of a cluster are this machine: they get a subprocess, the others SSH."""

from __future__ import annotations

import ipaddress
import socket

from flodl.spec.cluster import HostSpec

__all__ = ["is_here"]


def is_here(host: HostSpec) -> bool:
    """True for localhost, this machine's own name, and its addresses; ssh.target forces SSH."""
    if host.ssh.target is not None:
        return False
    name = host.host
    return name in ("localhost", socket.gethostname()) or _is_own_address(name)


def _is_own_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False  # names are not looked up: that may take seconds
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((text, 0))  # only an own address can be bound
    except OSError:
        return False
    return not address.is_unspecified
