"""Batches are what the ranges say, in the order that every host agrees on."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from flodl.decide.ledger import cut_batches
from flodl.decide.messages import Range
from flodl.engine.data import Batch, Feed, batch_of, permutation, resident, signature

CPU = torch.device("cpu")
N = 20


class Listed:
    """A map-style data set that is read sample by sample."""

    def __init__(self, length: int = N) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = (torch.rand(()).item(), float(np.random.rand()), random.random())
        return {"x": torch.tensor([index, index]), "label": index, "noise": noise}


def tensors(length: int = N) -> TensorDataset:
    return TensorDataset(torch.arange(length), torch.arange(length) * 10.0)


def feed(dataset: Any, batch_size: int = 4, seed: int = 7) -> Feed:
    return Feed(dataset, batch_size=batch_size, seed=seed, num_positions=N, device=CPU)


def drained(source: Feed) -> list[Batch]:
    batches: list[Batch] = []
    while (batch := source.next()) is not None:
        batches.append(batch)
    return batches


def test_the_permutation_is_numpys_frozen_stream() -> None:
    assert permutation(0, 0, 10).tolist() == [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]
    assert permutation(1, 2, 10).tolist() == permutation(3, 0, 10).tolist()
    assert sorted(permutation(5, 1, 1000)) == list(range(1000))


def test_a_seed_beyond_32_bits_still_gives_a_permutation() -> None:
    assert sorted(permutation(2**40, 3, 10)) == list(range(10))


@pytest.mark.parametrize("dataset", [tensors(), Listed()], ids=["in memory", "sample by sample"])
def test_batches_are_the_positions_of_the_ranges(dataset: Any) -> None:
    source = feed(dataset)
    source.restate([Range(0, 2, 5), Range(0, 10, 13), Range(1, 0, 4)])
    order0, order1 = permutation(7, 0, N), permutation(7, 1, N)
    wanted = [[*order0[2:5], order0[10]], [*order0[11:13]], [*order1[0:4]]]
    batches = drained(source)
    found = [b.inputs["label"].tolist() if isinstance(b.inputs, dict) else b.inputs[0].tolist() for b in batches]
    assert found == [[int(i) for i in batch] for batch in wanted]
    assert [(b.epoch, b.first_position, b.samples) for b in batches] == [(0, 2, 4), (0, 11, 2), (1, 0, 4)]


def test_a_restated_list_replaces_what_was_held() -> None:
    source = feed(tensors())
    source.restate([Range(0, 0, 8)])
    assert source.next() is not None
    source.restate([Range(0, 12, 16)])
    assert [b.first_position for b in drained(source)] == [12]


def test_batches_that_were_run_already_are_skipped_in_a_restated_list() -> None:
    source = feed(tensors())
    source.restate([Range(0, 0, 6), Range(0, 10, 16)], skip=2)
    assert [(b.first_position, b.samples) for b in drained(source)] == [(12, 4)]


def test_the_feed_tells_how_many_batches_it_holds() -> None:
    source = feed(tensors())
    source.restate([Range(0, 0, 10)])
    assert len(source) == 3
    source.next()
    assert len(source) == 2


def test_nothing_held_gives_nothing() -> None:
    assert feed(tensors()).next() is None


def test_a_range_beyond_the_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="an epoch has 20 positions"):
        feed(tensors()).restate([Range(0, 16, 24)])


def test_an_epoch_comes_out_the_same_for_every_world_size() -> None:
    def samples(*shares: list[Range]) -> list[int]:
        found: list[int] = []
        for share in shares:
            source = feed(tensors())
            source.restate(share)
            found += [int(i) for b in drained(source) for i in b.inputs[0]]
        return sorted(found)

    assert (
        samples([Range(3, 0, N)]) == samples([Range(3, 0, 12)], [Range(3, 12, 16)], [Range(3, 16, N)]) == list(range(N))
    )


def test_random_samples_are_the_same_in_whichever_batch_they_are_read() -> None:
    def noise(batch_size: int, epoch: int) -> dict[int, float]:
        source = feed(Listed(), batch_size)
        source.restate([Range(epoch, 0, N)])
        return {
            int(label): tuple(float(column[i]) for column in b.inputs["noise"])  # type: ignore[misc]
            for b in drained(source)
            for i, label in enumerate(b.inputs["label"])
        }

    assert noise(4, 0) == noise(5, 0)
    assert noise(4, 0) != noise(4, 1)
    assert len(set(noise(4, 0).values())) == N


def test_in_memory_data_stays_on_the_device_and_other_data_as_it_is() -> None:
    dataset, listed = tensors(), Listed()
    assert [t.device for t in resident(dataset, CPU).tensors] == [CPU, CPU]
    assert resident(listed, CPU) is listed


def test_a_subclass_of_the_tensor_data_set_is_read_in_its_own_way() -> None:
    class Doubled(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            return tuple(t * 2 for t in super().__getitem__(index))

    inputs = batch_of(resident(Doubled(torch.arange(4)), CPU), torch.tensor([1, 3]), CPU)
    assert inputs[0].tolist() == [2, 6]


def test_the_signature_tells_length_order_values_and_type_apart() -> None:
    data = torch.arange(100)
    variants = [data, data[:99], data.flip(0), data + 1, data.float(), data.reshape(100, 1)]
    assert len({signature(TensorDataset(variant)) for variant in variants}) == len(variants)
    assert signature(TensorDataset(data)) == signature(TensorDataset(data.clone()))


def test_the_signature_does_not_depend_on_what_was_random_before() -> None:
    first = signature(Listed())
    torch.manual_seed(5)
    random.seed(5)
    assert signature(Listed()) == first


def test_the_signature_of_a_single_sample_is_taken() -> None:
    assert signature(Listed(1)).startswith("1-")


def test_a_data_set_may_have_a_signature_of_its_own() -> None:
    class Own(Listed):
        def signature(self) -> str:
            return "v3"

    assert signature(Own()) == "v3"


def test_a_feed_cuts_the_same_batches_as_the_ledger() -> None:
    held = [Range(0, 3, 3), Range(0, 0, 6), Range(0, 10, 11), Range(0, 12, 20), Range(1, 4, 5), Range(1, 0, 4)]
    source = feed(tensors())
    for skip in range(7):
        source.restate(held, skip=skip)
        cut = cut_batches(held, 4)[skip:]
        assert len(source) == len(cut)
        found = [(b.epoch, b.first_position, b.samples) for b in drained(source)]
        assert found == [(pieces[0].epoch, pieces[0].start, sum(map(len, pieces))) for pieces in cut]
