"""The contract of the port `Averager`, inherited by every implementation. Members are threads of this process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from flodl.engine.averaging.inprocess import Board, InProcessAverager
from flodl.engine.averaging.lane import Lane
from flodl.engine.groups import GroupAverager, gloo_group
from flodl.ports import AbandonedError, Averager

pytestmark = pytest.mark.own_process


class AveragerContract:
    """What members may rely on."""

    def make(self, count: int) -> list[Averager]:
        raise NotImplementedError

    def formed(self, count: int, generation: int = 1) -> list[Averager]:
        averagers = self.make(count)
        together(averagers, lambda rank, one: one.form(generation, range(count)))
        return averagers

    def test_everybody_gets_the_sum_of_every_vector_in_place(self) -> None:
        averagers = self.formed(3)
        vectors = [
            [torch.full((5,), float(rank + 1)), torch.full((2,), rank, dtype=torch.float64)] for rank in range(3)
        ]
        together(averagers, lambda rank, one: one.combine(1, 1, vectors[rank]))
        for single, wide in vectors:
            assert single.tolist() == [6.0] * 5
            assert wide.tolist() == [3.0] * 2

    def test_broadcast_takes_the_source_by_its_rank(self) -> None:
        averagers = self.make(3)
        chosen = {2: averagers[2], 0: averagers[0]}  # ranks need not be 0.. nor in order
        together(chosen, lambda rank, one: one.form(1, (2, 0)))
        vectors = {rank: [torch.full((3,), float(rank))] for rank in chosen}
        together(chosen, lambda rank, one: one.broadcast(1, 2, vectors[rank]))
        assert vectors[0][0].tolist() == [2.0] * 3

    def test_the_sum_of_one_is_itself(self) -> None:
        (averager,) = self.formed(1)
        vector = torch.tensor([1.5])
        averager.combine(1, 1, [vector])
        averager.broadcast(1, 0, [vector])
        assert vector.tolist() == [1.5]

    def test_rounds_follow_one_another(self) -> None:
        averagers = self.formed(2)
        vectors = [[torch.ones(4)], [torch.ones(4)]]
        for number in range(5):
            together(averagers, lambda rank, one, number=number: one.combine(1, number, vectors[rank]))
        assert vectors[0][0].tolist() == [32.0] * 4

    def test_an_old_generation_is_refused(self) -> None:
        averagers = self.formed(2)
        together(averagers, lambda rank, one: one.form(2, (0, 1)))
        with pytest.raises(AbandonedError):
            averagers[0].combine(1, 1, [torch.ones(1)])

    def test_a_group_that_is_formed_too_late_does_not_take_the_place_of_a_newer_one(self) -> None:
        (averager,) = self.formed(1, generation=3)
        with contextlib.suppress(AbandonedError):
            averager.form(2, (0,))
        averager.combine(3, 1, [torch.ones(1)])
        with pytest.raises(AbandonedError):
            averager.combine(2, 1, [torch.ones(1)])

    def test_survivors_go_on_while_the_old_operation_hangs_and_its_late_end_counts_for_nothing(self) -> None:
        averagers = self.formed(3)
        lanes = [Lane("old"), Lane("old")]
        old = [[torch.full((3,), float(rank))] for rank in range(3)]
        hanging = [lanes[rank].submit(lambda rank=rank: averagers[rank].combine(1, 1, old[rank])) for rank in (0, 1)]
        time.sleep(0.05)
        survivors = dict(enumerate(averagers[:2]))
        began = time.perf_counter()
        together(survivors, lambda rank, one: one.form(2, (0, 1)))
        fresh = [[torch.full((3,), float(rank + 1))] for rank in range(2)]
        together(survivors, lambda rank, one: one.combine(2, 1, fresh[rank]))
        assert time.perf_counter() - began < 2.0
        late = threading.Thread(target=quietly, args=(lambda: averagers[2].combine(1, 1, old[2]),))
        late.start()
        for future in hanging:
            with pytest.raises(AbandonedError):
                future.result(timeout=10.0)
        late.join()
        assert [vector.tolist() for (vector,) in fresh] == [[3.0] * 3] * 2

    def test_close_returns_at_once_while_an_operation_hangs(self) -> None:
        averagers = self.formed(2)
        Lane("hangs").submit(lambda: averagers[0].combine(1, 1, [torch.ones(1)]))
        began = time.perf_counter()
        averagers[0].close()
        assert time.perf_counter() - began < 0.5


class TestInProcess(AveragerContract):
    def make(self, count: int) -> list[Averager]:
        board = Board(timeout_seconds=5.0)
        return [InProcessAverager(board, rank) for rank in range(count)]


class TestGloo(AveragerContract):
    def make(self, count: int) -> list[Averager]:
        store = dist.HashStore()
        return [
            GroupAverager(rank, lambda generation: dist.PrefixStore(f"g{generation}", store), gloo_group(where, 5.0))
            for rank, where in zip(range(count), ["127.0.0.1", "lo"] * count, strict=False)
        ]

    def test_nothing_listens_on_every_address(self) -> None:
        averagers = self.formed(2)
        assert listening() == {"0100007F"}  # 127.0.0.1
        assert len(averagers) == 2

    def test_a_member_may_come_later_than_a_group_may_take_to_connect(self) -> None:
        """It fetches the bundle that a run goes on from: of the first group, too."""
        store, make = dist.HashStore(), gloo_group("127.0.0.1", 0.5)
        members = [GroupAverager(rank, lambda generation: store, make, meet_seconds=10.0) for rank in range(2)]

        def form(rank: int, one: GroupAverager) -> None:
            if rank == 1:
                store.wait(["met/0"])
                time.sleep(1.0)
            one.form(1, (0, 1))

        together(members, form)
        vectors = [torch.ones(1) for _ in members]
        together(members, lambda rank, one: one.combine(1, 1, [vectors[rank]]))
        assert [vector.item() for vector in vectors] == [2.0, 2.0]

    def test_a_member_that_is_gone_ends_the_operation_with_an_error(self) -> None:
        averagers = self.formed(2)
        assert isinstance(averagers[0], GroupAverager)
        with pytest.raises(RuntimeError):
            averagers[0].combine(1, 1, [torch.ones(1)])  # the other never comes: the group's own time limit


def listening() -> set[str]:
    """Addresses (in the kernel's hexadecimal) on which this process listens."""
    mine = {str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *rest = row.split()
            if state == "0A" and f"socket:[{rest[5]}]" in mine:
                found.add(local.split(":")[0])
    return found


def together(averagers: Any, call: Callable[..., Any]) -> list[Any]:
    """`call(rank, averager)` on a thread per member."""
    members = list(averagers.items()) if isinstance(averagers, dict) else list(enumerate(averagers))
    with ThreadPoolExecutor(len(members)) as pool:
        return [future.result(20.0) for future in [pool.submit(call, rank, one) for rank, one in members]]


def quietly(call: Callable[[], Any]) -> None:
    """The late member's own fate is its own."""
    try:
        call()
    except (RuntimeError, AbandonedError):
        return


class Communicator:
    """What torch's NCCL group is to an averager, where there is no card: it has a name and can be aborted."""

    def __init__(self) -> None:
        self.aborted = 0

    def name(self) -> str:
        return "nccl"

    def abort(self) -> None:
        self.aborted += 1


def test_a_group_that_is_made_while_a_newer_one_is_announced_is_aborted_and_never_used() -> None:
    made: list[Communicator] = []

    def make(store: Any, place: int, members: int) -> Communicator:
        made.append(Communicator())
        if len(made) == 2:
            averager.pass_on(3)  # the reading thread hears of it
        return made[-1]

    averager = GroupAverager(0, lambda generation: dist.HashStore(), make)
    averager.form(1, (0, 1))
    with pytest.raises(AbandonedError):
        averager.form(2, (0, 1))
    assert [group.aborted for group in made] == [1, 1]
    with pytest.raises(AbandonedError):
        averager.launch(2, 1, [torch.ones(1)])
    averager.form(3, (0, 1))
    assert [group.aborted for group in made] == [1, 1, 0]
