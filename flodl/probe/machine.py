"""What this machine is, from the kernel: cores, memory, disk, network interfaces, the ports that it hands out."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from flodl.probe.report import Interface

__all__ = ["Disk", "free_disk", "free_memory_bytes", "interfaces", "num_cores", "port_range", "total_memory_bytes"]

PORT_RANGE = (32768, 60999)
_SIOCGIFFLAGS, _SIOCGIFADDR = 0x8913, 0x8915
_IFF_UP = 1


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A folder and the file system it lies on; where it does not exist, that of its nearest parent."""

    path: str
    exists: bool
    is_writable: bool
    free_bytes: int
    free_inodes: int


def num_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def total_memory_bytes() -> int:
    """Physical memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_memory_bytes() -> int:
    """Memory that a new program could have, by the kernel's own estimate; 0 where it does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def free_disk(path: str) -> Disk:
    """The folder ("": the working folder) and what is free there."""
    folder = Path(path or ".").absolute()
    there = next((place for place in (folder, *folder.parents) if place.is_dir()), Path("/"))
    found = os.statvfs(there)
    return Disk(
        path=str(folder),
        exists=there == folder,
        is_writable=there == folder and os.access(folder, os.W_OK),
        free_bytes=found.f_bavail * found.f_frsize,
        free_inodes=found.f_favail if found.f_files else -1,  # some file systems (btrfs) do not count them
    )


def interfaces() -> tuple[Interface, ...]:
    """All network interfaces in the kernel's order."""
    six = _ipv6_addresses()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        return tuple(
            Interface(
                name=name,
                is_up=bool(_flags(asked, name) & _IFF_UP),
                addresses=(*_ipv4_address(asked, name), *six.get(name, ())),
            )
            for _, name in socket.if_nameindex()
        )


def port_range() -> tuple[int, int]:
    """First and last of the ports that the kernel gives to whoever names none."""
    with contextlib.suppress(OSError, ValueError):
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(first), int(last)
    return PORT_RANGE


def _flags(asked: socket.socket, name: str) -> int:
    try:
        answer = fcntl.ioctl(asked, _SIOCGIFFLAGS, struct.pack("16sH14x", name.encode(), 0))
    except OSError:  # it has just gone
        return 0
    return struct.unpack_from("H", answer, 16)[0]


def _ipv4_address(asked: socket.socket, name: str) -> tuple[str, ...]:
    try:
        answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("16s16x", name.encode()))
    except OSError:  # it has none
        return ()
    return (socket.inet_ntoa(answer[20:24]),)


def _ipv6_addresses() -> dict[str, tuple[str, ...]]:
    """By interface; addresses of the link alone, which need a zone to be dialled, are left out."""
    found: dict[str, tuple[str, ...]] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, *_, name = line.split()
            address = ipaddress.IPv6Address(int(digits, 16))
            if not address.is_link_local:
                found[name] = (*found.get(name, ()), str(address))
    return found
