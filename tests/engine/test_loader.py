"""Loader processes: what goes through their memory, how they end, and how their end is told."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from flodl.decide.messages import Range
from flodl.engine.loader import Slot, Workers
from flodl.engine.reading import Reader, permutation
from flodl.errors import FlodlError
from tests.engine.listed import Listed, N
from tests.engine.live import alive, wait_gone

GONE_SECONDS = 5.0


@pytest.fixture
def slot() -> Slot:
    return Slot(4096)


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(Reader(Listed(), name="dataset=my.data"), num_workers=2, prefetch=2)
    yield made
    made.close()


def whole(first: int) -> tuple[Range, ...]:
    return (Range(0, first, first + 4),)


DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_kind_come_out_of_a_slot_as_they_went_in(slot: Slot, dtype: torch.dtype) -> None:
    tensors = [torch.arange(6).reshape(2, 3).to(dtype), torch.tensor(3).to(dtype), torch.zeros(0, 4, dtype=dtype)]
    found = slot.unpack(slot.pack(tensors))
    assert [(t.dtype, t.shape) for t in found] == [(t.dtype, t.shape) for t in tensors]
    assert all(torch.equal(got, wanted) for got, wanted in zip(found, tensors, strict=True))


def test_a_batch_of_any_shape_comes_out_as_it_went_in(slot: Slot) -> None:
    batch: dict[str, Any] = {"a": (torch.ones(3), [torch.zeros(2, 2).t()]), "b": "text", 3: None}
    found = slot.unpack(slot.pack(batch))
    assert str(found) == str(batch)


def test_what_came_out_of_a_slot_stays_when_the_slot_is_used_again(slot: Slot) -> None:
    first = slot.unpack(slot.pack(torch.ones(8)))
    slot.pack(torch.zeros(8))
    assert first.sum() == 8


def test_what_does_not_fit_into_a_slot_travels_too(slot: Slot) -> None:
    batch = [torch.ones(600), torch.full((10_000,), 2.0), torch.zeros(3), torch.eye(3).to_sparse()]
    found = slot.unpack(slot.pack(batch))
    assert [float(t.sum()) for t in found] == [600.0, 20_000.0, 0.0, 3.0]


def test_batches_come_in_the_order_of_their_orders_from_all_processes(workers: Workers) -> None:
    order = permutation(0, 0, N).tolist()
    readers: set[int] = set()
    for first in (0, 4, 8, 12):
        workers.send(whole(first))
    assert not workers.has_room
    for first in (0, 4, 8, 12):
        batch = workers.take()
        assert batch["label"].tolist() == order[first : first + 4]
        readers |= set(batch["reader"].tolist())
    assert readers == set(workers.pids)


def test_a_signal_to_the_whole_group_does_not_end_them(workers: Workers) -> None:
    for pid in workers.pids:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    workers.send(whole(0))
    workers.send(whole(4))
    assert workers.take()["reader"][0] in workers.pids
    assert workers.take()["reader"][0] in workers.pids
    assert all(alive(pid) for pid in workers.pids)


def test_a_process_that_dies_is_told_with_its_signal_and_what_it_read() -> None:
    deadly = int(permutation(0, 0, N)[6])
    workers = Workers(Reader(Listed(deadly=deadly), name="dataset=my.data"), num_workers=1, prefetch=2)
    workers.send(whole(0))
    workers.send(whole(4))
    assert len(workers.take()["label"]) == 4
    wanted = r"^dataset=my.data: a loader process was ended by SIGKILL while it read positions 4 to 7 of epoch 1$"
    with pytest.raises(FlodlError, match=wanted):
        workers.take()
    workers.close()


def test_the_trace_of_what_a_process_raised_is_kept() -> None:
    workers = Workers(Reader(Listed(broken=3), name="dataset=my.data"), num_workers=1, prefetch=1)
    place = permutation(0, 0, N).tolist().index(3)
    workers.send((Range(0, place, place + 1),))
    with pytest.raises(FlodlError, match="sample 3 cannot be read: OSError: a torn file") as told:
        workers.take()
    assert "in __getitem__" in "".join(told.value.__notes__)
    workers.close()


def test_what_cannot_travel_is_told() -> None:
    class Odd(Listed):
        def collate_fn(self, samples: list[Any]) -> Any:
            return lambda: samples

    workers = Workers(Reader(Odd(), name="dataset=my.data"), num_workers=1, prefetch=1)
    workers.send(whole(0))
    with pytest.raises(FlodlError, match="a batch cannot be handed over: "):
        workers.take()
    workers.close()


def test_processes_end_when_they_are_told_though_they_read(workers: Workers) -> None:
    workers.send(whole(0))
    workers.close()
    assert not any(alive(pid) for pid in workers.pids)
    workers.close()


def _rank(pipe: Any) -> None:
    workers = Workers(Reader(Listed(seconds=0.01)), num_workers=2, prefetch=2)
    for first in (0, 4, 8, 12):
        workers.send(whole(first))
    pipe.send(workers.pids)
    signal.pause()


def test_nothing_is_left_of_a_rank_that_is_killed() -> None:
    here, there = multiprocessing.Pipe()
    rank = multiprocessing.get_context("fork").Process(target=_rank, args=(there,))
    rank.start()
    pids = list(here.recv())
    assert all(alive(pid) for pid in pids)
    rank.kill()
    rank.join()
    wait_gone(pids, GONE_SECONDS)
