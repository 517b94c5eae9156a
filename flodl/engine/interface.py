"""The network interface that gloo and NCCL use: told in words where a host has none of that name.

Both would answer with an error of their own, much later and on some other rank. The probe tells the same earlier.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from flodl.errors import NotReady

__all__ = ["check_interface"]


def check_interface(host: str, name: str | None, present: Sequence[str] | None = None) -> None:
    """Raise NotReady where `name` is no interface here. present: those that there are; asked where not told.

    An alias (eth0:1) is a second address of its interface and not listed.
    """
    if name is None:
        return
    known = [known for _, known in socket.if_nameindex()] if present is None else list(present)
    if name.partition(":")[0] not in known:
        raise NotReady(
            f"{host}: nccl_socket_ifname={name}: there is no such network interface; it has {', '.join(known)}"
        )
