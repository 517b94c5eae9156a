"""Any map-style data set: parted, changed and collated as the config says; streams are refused with a way out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from flodl.datasets.map_style import map_style
from flodl.engine.reading import batch_of
from flodl.errors import ConfigError


class Squares(Dataset[tuple[float, int]]):
    """(i squared, i)."""

    def __init__(self, count: int = 20) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[float, int]:
        return float(index * index), index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))

    def __len__(self) -> int:
        return 5


def test_parts_that_need_nothing_stay_as_they_are() -> None:
    train, held = TensorDataset(torch.zeros(3, 2)), Squares()
    splits = map_style(train=train, eval=held)
    assert splits.train is train
    assert splits.eval is held
    assert map_style(train=train).eval is None


def test_a_fraction_is_held_back_the_same_way_every_time() -> None:
    first, second = (map_style(train=Squares(), eval_fraction=0.25) for _ in range(2))
    held = [label for _, label in first.eval]
    assert held == [label for _, label in second.eval]
    assert len(held) == 5
    assert sorted([*held, *(label for _, label in first.train)]) == list(range(20))
    assert held != [label for _, label in map_style(train=Squares(), eval_fraction=0.25, split_seed=1).eval]


def test_inputs_are_augmented_in_training_and_transformed_everywhere() -> None:
    splits = map_style(
        train=Squares(), eval=Squares(), augment=lambda x: x + 0.5, transform=[lambda x: x * 10, torch.tensor]
    )
    assert (splits.train[3][0].item(), splits.train[3][1]) == (95.0, 3)
    assert (splits.eval[3][0].item(), splits.eval[3][1]) == (90.0, 3)


def test_a_sample_that_is_no_tuple_is_changed_as_a_whole() -> None:
    samples: list[Any] = [{"text": "a"}, {"text": "b"}]
    assert map_style(train=samples, transform=lambda s: s["text"].upper()).train[1] == "B"


def test_batches_are_made_by_the_collate_fn() -> None:
    splits = map_style(train=Squares(), eval=Squares(), collate_fn=lambda s: torch.tensor([label for _, label in s]))
    for part in (splits.train, splits.eval):
        assert batch_of(part, torch.tensor([4, 2]), torch.device("cpu")).tolist() == [4, 2]


def test_a_stream_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(ConfigError) as refused:
        map_style(train=Stream(), eval=iter([1]))
    assert "dataset.train=Stream: is not map-style" in str(refused.value)
    assert "dataset.eval=list_iterator: is not map-style" in str(refused.value)
    assert "give it __len__ and __getitem__" in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eval_fraction": 0.0}, "dataset.eval_fraction=0.0: must leave samples on both sides of 20"),
        ({"eval_fraction": 1.0}, "dataset.eval_fraction=1.0: must leave samples on both sides of 20"),
        ({"eval_fraction": 0.5, "eval": [1]}, "is given beside dataset.eval"),
    ],
)
def test_a_split_that_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        map_style(train=Squares(), **arguments)


def test_a_stated_shape_is_held_against_the_first_sample() -> None:
    data = TensorDataset(torch.zeros(3, 1, 4, 4), torch.zeros(3))
    map_style(train=data, image_shape=[1, 4, 4], num_classes=2)
    with pytest.raises(ConfigError, match=r"dataset.image_shape=\[1, 8, 8\]: the data has \[1, 4, 4\]"):
        map_style(train=data, image_shape=[1, 8, 8])
