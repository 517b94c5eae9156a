"""A batch depends on its samples alone, and what a data set raises is told with the sample's number."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from flodl.decide.messages import Range
from flodl.engine.reading import Reader, batch_of, moved, permutation, signature
from flodl.errors import FlodlError
from tests.engine.listed import Listed

CPU = torch.device("cpu")


def test_the_permutation_is_numpys_frozen_stream() -> None:
    assert permutation(0, 0, 10).tolist() == [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]
    assert permutation(1, 2, 10).tolist() == permutation(3, 0, 10).tolist()
    assert sorted(permutation(5, 1, 1000)) == list(range(1000))


def test_a_seed_beyond_32_bits_still_gives_a_permutation() -> None:
    assert sorted(permutation(2**40, 3, 10)) == list(range(10))


def test_a_subclass_of_the_tensor_data_set_is_read_in_its_own_way() -> None:
    class Doubled(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            return tuple(t * 2 for t in super().__getitem__(index))

    assert batch_of(Doubled(torch.arange(4)), torch.tensor([1, 3]), CPU)[0].tolist() == [2, 6]


def test_a_data_set_may_collate_in_its_own_way() -> None:
    class Joined(Listed):
        def collate_fn(self, samples: list[Any]) -> list[int]:
            return [sample["label"] for sample in samples]

    class Undecided(Listed):
        collate_fn = None

    assert batch_of(Joined(), torch.tensor([3, 1]), CPU) == (3, 1)
    assert batch_of(Undecided(), torch.tensor([3, 1]), CPU)["label"].tolist() == [3, 1]


def test_samples_of_no_epoch_have_streams_of_their_own() -> None:
    reader = Reader(Listed(), seed=0)
    noise = {epoch: reader.sample(epoch, 3)["noise"] for epoch in (-1, 0, 1)}
    assert len(set(noise.values())) == 3
    assert batch_of(Listed(), torch.tensor([3]), CPU)["noise"][1].item() == pytest.approx(noise[-1][1])


def test_what_a_sample_raises_is_told_with_its_number_and_the_data_set() -> None:
    reader = Reader(Listed(broken=7), name="dataset=my.data")
    order = permutation(0, 0, len(reader.dataset)).tolist()
    with pytest.raises(FlodlError, match=r"^dataset=my.data: sample 7 cannot be read: OSError: a torn file$"):
        reader.batch([Range(0, order.index(7), order.index(7) + 1)])


def test_samples_that_make_no_batch_are_told() -> None:
    ragged = [torch.zeros(2), torch.zeros(2), torch.zeros(3), torch.zeros(2), torch.zeros(2)]
    with pytest.raises(FlodlError, match=r"samples 0, 1, 2, 3, ... make no batch: RuntimeError"):
        batch_of(ragged, torch.arange(5), CPU)


def test_nested_batches_are_moved_as_a_whole() -> None:
    batch = {"a": [torch.ones(1), ("text", torch.zeros(2))], "b": 5}
    assert moved(batch, torch.device("meta"))["a"][1][1].device.type == "meta"
    assert moved(batch, CPU, pin=True)["a"][1][0] == "text"


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
