"""Where data lies, and what is refused to lie on the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from flodl.engine.residency import is_resident, settled
from flodl.errors import NotReady
from flodl.spec.loader import LoaderConfig
from tests.engine.listed import Listed

CPU = torch.device("cpu")
AUTO, ALWAYS, NEVER = (LoaderConfig(resident=choice) for choice in ("auto", True, False))


class Pairs:
    """Samples of an array and a number."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return torch.rand(2), index


def test_in_memory_data_lies_on_the_device_by_default_and_other_data_where_it_is() -> None:
    data, listed = TensorDataset(torch.arange(4)), Listed()
    assert is_resident(settled(data, AUTO, CPU), AUTO, CPU)
    assert settled(listed, AUTO, CPU) is listed
    assert not is_resident(listed, AUTO, CPU)
    assert settled(None, ALWAYS, CPU) is None


def test_data_that_shall_not_be_resident_is_fetched_though_it_is_in_memory() -> None:
    data = TensorDataset(torch.arange(4))
    assert settled(data, NEVER, CPU) is data
    assert not is_resident(data, NEVER, CPU)


def test_data_that_lies_elsewhere_is_not_resident() -> None:
    assert not is_resident(TensorDataset(torch.arange(4, device="meta")), AUTO, CPU)


def test_any_data_set_of_tensors_is_kept_when_that_is_asked_for() -> None:
    kept = settled(Pairs(), ALWAYS, CPU)
    assert is_resident(kept, ALWAYS, CPU)
    assert kept[4][1] == 4
    again = settled(Pairs(), ALWAYS, CPU)
    assert torch.equal(kept.tensors[0], again.tensors[0])


def test_samples_that_are_no_tensors_are_refused_when_they_shall_be_kept() -> None:
    with pytest.raises(NotReady, match=r"loader.resident=true: dataset=mine cannot be kept .*set .* to auto"):
        settled(Listed(), ALWAYS, CPU, "dataset=mine")
