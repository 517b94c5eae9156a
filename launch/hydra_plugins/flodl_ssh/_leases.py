"""Which arm may use which hosts. Pure: labels in, labels out.

All leases of a cluster have the same number of hosts, so that arms can be compared; what is left over idles.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Leases"]


class Leases:
    """Disjoint sets of hosts, at most `most` at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: set[str] = set()
        self._count = 0

    def take(self, hosts: Sequence[str]) -> tuple[str, ...] | None:
        """Hosts for one arm out of those of its cluster, the first free ones in order; None where it must wait.

        hosts: none for an arm that has no cluster; its lease is empty.
        """
        if self._count >= self._most:
            return None
        wanted = max(1, len(hosts) // self._most) if hosts else 0
        free = [host for host in hosts if host not in self._taken]
        if len(free) < wanted:
            return None
        lease = tuple(free[:wanted])
        self._taken.update(lease)
        self._count += 1
        return lease

    def give_back(self, lease: Sequence[str]) -> None:
        """The arm has ended."""
        self._taken.difference_update(lease)
        self._count -= 1
