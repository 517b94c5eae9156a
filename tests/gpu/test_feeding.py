"""Batches on a GPU: what the CPU gets, from data that lies there and from page-locked memory."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from flodl.decide.messages import Range
from flodl.engine.data import Feed, Loading
from flodl.engine.residency import is_resident, settled
from flodl.probe.gpus import count_gpus
from flodl.spec.loader import LoaderConfig
from tests.engine.listed import Listed, N

pytestmark = pytest.mark.skipif(count_gpus() < 1, reason="needs a GPU")
AUTO = LoaderConfig()
CPU = torch.device("cpu")


def in_a_process(work: Callable[[], Any]) -> Any:
    """What `work` returns in a process that may use CUDA and have loader processes."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=lambda: there.send(work()))
    process.start()
    there.close()
    answer = here.recv()
    process.join()
    return answer


def batches(dataset: Any, device: torch.device, loading: Loading) -> list[Any]:
    """Every batch of an epoch, as lists; each must lie on the device."""
    feed = Feed(dataset, batch_size=8, seed=1, num_positions=N, device=device, loading=loading)
    feed.restate([Range(0, 0, N)])
    found: list[Any] = []
    while (batch := feed.next()) is not None:
        columns = batch.inputs if isinstance(batch.inputs, tuple) else (batch.inputs["x"], batch.inputs["noise"][1])
        assert {column.device.type for column in columns} == {device.type}
        found.append([column.tolist() for column in columns])
    feed.close()
    return found


@pytest.mark.parametrize("loading", [Loading(), Loading(pin_memory=True), Loading(num_workers=2, pin_memory=True)])
@pytest.mark.parametrize("dataset", [Listed(), TensorDataset(torch.arange(N), torch.rand(N))])
def test_a_gpu_gets_the_batches_that_a_cpu_gets(dataset: Any, loading: Loading) -> None:
    def work() -> Any:
        device = torch.device("cuda:0")
        torch.zeros(1, device=device)  # loader processes are forked from a process that uses CUDA
        return batches(dataset, device, loading)

    assert in_a_process(work) == batches(dataset, CPU, Loading())


def test_in_memory_data_is_kept_on_a_gpu_where_it_takes_a_small_part_of_it() -> None:
    def work() -> Any:
        device = torch.device("cuda:0")
        small, large = TensorDataset(torch.arange(N)), TensorDataset(torch.zeros(1).expand(1 << 40))
        kept = settled(small, AUTO, device)
        assert batches(kept, device, Loading()) == batches(small, CPU, Loading())
        return is_resident(kept, AUTO, device), settled(large, AUTO, device) is large, is_resident(large, AUTO, device)

    assert in_a_process(work) == (True, True, False)
