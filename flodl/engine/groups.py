"""Process groups by generation: gloo and NCCL behind the port `Averager`.

Groups are built without torch's global registry (no init_process_group, no default group), over a store that the
caller brings (the link's; TCPStore listens on every address and is not used). gloo listens only on the named
interface or address. A combine that ends after its generation has passed raises `AbandonedError`, so that no result of
an old group is ever taken for a new one's.
"""

from __future__ import annotations

import ipaddress
import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from flodl.engine.failpoints import reach
from flodl.ports import AbandonedError

__all__ = ["GroupAverager", "gloo_group", "nccl_group"]

# Groups live as long as the process: a destructor waits for operations that may never end, and was seen to hang even
# when all had ended but a peer was gone. Ranks leave by os._exit.
_KEPT: list[Any] = []

GroupFactory = Callable[[Store, int, int], Any]


class _Work(Protocol):
    def wait(self) -> bool: ...


def gloo_group(interface: str, timeout_seconds: float) -> GroupFactory:
    """How a gloo group is made. interface: a network interface's name, or an address of this host."""

    def make(store: Store, place: int, members: int) -> Any:
        # torch offers no public way to name the device
        options: Any = dist.ProcessGroupGloo._Options()  # pyright: ignore[reportAttributeAccessIssue]
        options._devices = [
            dist.ProcessGroupGloo.create_device(hostname=interface)
            if _is_address(interface)
            else dist.ProcessGroupGloo.create_device(interface=interface)
        ]
        options._threads = 1
        options._timeout = timedelta(seconds=timeout_seconds)
        return dist.ProcessGroupGloo(store, place, members, options)

    return make


def nccl_group(timeout_seconds: float) -> GroupFactory:
    """How an NCCL group is made; the device is the current one, the interface comes from NCCL_SOCKET_IFNAME.

    c10d's watchdog would end the process when a member is gone; here the coordinator decides what that means.
    """
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")

    def make(store: Store, place: int, members: int) -> Any:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=timeout_seconds)
        return dist.ProcessGroupNCCL(store, place, members, options)

    return make


def _is_address(interface: str) -> bool:
    try:
        ipaddress.ip_address(interface)
    except ValueError:
        return False  # eth0.100 and eth0:1 are names
    return True


class GroupAverager:
    """`Averager` over torch.distributed. Calls block their thread: they belong on an averaging thread.

    rank: global number. make_store: generation -> its rendezvous, called on the thread that forms it. meet_seconds: how
    long members wait there for one that comes late; 0: as long as the group may take to connect.
    Forming is the one call that may come from another thread while a combine of an older generation hangs.
    """

    def __init__(
        self,
        rank: int,
        make_store: Callable[[int], Store],
        make_group: GroupFactory,
        *,
        meet_seconds: float = 0.0,
    ) -> None:
        self._rank = rank
        self._make_store = make_store
        self._make_group = make_group
        self._meet_seconds = meet_seconds
        self._current = 0
        self._ranks: dict[int, tuple[int, ...]] = {}
        self._groups: dict[int, Any] = {}
        self._stores: dict[int, Store] = {}  # torch holds a Python store's C++ half only: methods need the other one
        self._books, self._aborting = threading.Lock(), threading.Lock()

    def form(self, generation: int, ranks: Sequence[int]) -> None:
        """Join a generation; a generation of one has no group at all. RuntimeError where it does not come about."""
        self.pass_on(generation)
        self._ranks[generation] = tuple(ranks)
        reach("group", self._rank)
        if len(ranks) == 1:
            return
        store = self._stores[generation] = self._make_store(generation)
        if self._meet_seconds:
            self._meet(store, ranks)
        group = self._make_group(store, ranks.index(self._rank), len(ranks))
        _KEPT.append(group)
        with self._books:
            self._groups[generation] = group
        self.pass_on(generation)  # this group, where a newer one was announced meanwhile
        self._check(generation)

    def pass_on(self, generation: int) -> None:
        """From now on results of older generations do not count. NCCL operations under way are aborted.

        Any thread may say so: one that launches work onto a GPU whose queue is full hangs until the abort.
        """
        with self._books:
            self._current = max(self._current, generation)
            older = [number for number in self._groups if number < self._current]
            passed = [self._groups.pop(number) for number in older]
        with self._aborting:  # who forms the next group waits until all are
            for group in passed:
                if hasattr(group, "abort") and group.name() == "nccl":
                    group.abort()

    def combine(self, generation: int, round_number: int, vectors: Sequence[torch.Tensor]) -> None:
        """Sum the members' vectors in place."""
        self.launch(generation, round_number, vectors)()

    def launch(self, generation: int, round_number: int, vectors: Sequence[torch.Tensor]) -> Callable[[], None]:
        """Begin the sum; what is returned waits for its end and tells what went wrong. On a CPU it has ended."""
        ended = self._launched(generation, round_number, vectors)

        def end() -> None:
            self._end(generation, ended)
            reach("average.last", self._rank, window=round_number)

        return end

    def _launched(self, generation: int, round_number: int, vectors: Sequence[torch.Tensor]) -> torch.cuda.Event | None:
        group = self._group_of(generation)
        reach("average.first", self._rank, window=round_number)
        works: list[_Work] = []
        if group is not None:
            options = dist.AllreduceOptions()
            works = [group.allreduce([vector], options) for vector in vectors]
            reach("average.middle", self._rank, window=round_number)
        return self._ordered(generation, works, vectors)

    def broadcast(self, generation: int, source: int, vectors: Sequence[torch.Tensor]) -> None:
        """Everybody's vectors become those of rank `source`."""
        group, ranks = self._group_of(generation), self._ranks[generation]
        if group is not None:
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = ranks.index(source), 0
            works = [group.broadcast([vector], options) for vector in vectors]
            self._end(generation, self._ordered(generation, works, vectors))

    def close(self) -> None:
        """Leave. gloo offers nothing that would not wait for peers: its sockets go with the process."""
        self.pass_on(self._current + 1)

    def _meet(self, store: Store, ranks: Sequence[int]) -> None:
        """Wait for all: one may be in a long step, or evaluate, or fetch the bundle that the run goes on from. A
        group's own limit is for members that are there."""
        store.set(f"met/{self._rank}", "1")
        store.wait([f"met/{rank}" for rank in ranks], timedelta(seconds=self._meet_seconds))

    def _group_of(self, generation: int) -> Any:
        """The group of the present generation; None where it has one member. AbandonedError where it has passed."""
        self._check(generation)
        if len(self._ranks[generation]) == 1:
            return None
        with self._books:
            self._check(generation)
            return self._groups[generation]

    def _check(self, generation: int) -> None:
        if generation != self._current:
            raise AbandonedError(f"generation {generation} has passed: the present one is {self._current}")

    def _ordered(
        self, generation: int, works: Sequence[_Work], vectors: Sequence[torch.Tensor]
    ) -> torch.cuda.Event | None:
        """Have the present stream wait for the works; what marks their end there. On a CPU this thread waits."""
        try:
            for work in works:
                work.wait()
        except RuntimeError:
            self._check(generation)  # an old group's error is as void as its result
            raise
        if not works or not vectors[0].is_cuda:
            return None
        ended = torch.cuda.Event()
        ended.record()
        return ended

    def _end(self, generation: int, ended: torch.cuda.Event | None) -> None:
        if ended is not None:
            try:
                ended.synchronize()
            except RuntimeError:
                self._check(generation)
                raise
        self._check(generation)
