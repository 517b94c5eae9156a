"""Where data lies: on the device, or where each batch is fetched from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from flodl.engine.reading import UNTRAINED, Reader, is_in_memory, num_samples
from flodl.errors import NotReady
from flodl.spec.loader import LoaderConfig

__all__ = ["RESIDENT_SHARE", "is_resident", "settled"]

RESIDENT_SHARE = 0.25  # of a GPU's free memory that one data set may take without being asked


def settled(dataset: Any, loader: LoaderConfig, device: torch.device, name: str = "the data set") -> Any:
    """The data set where its batches will be cut; None stays None.

    loader.resident=true reads every sample once (random transforms are frozen so). Raises NotReady where the samples
    are not tensors of one shape each.
    """
    if dataset is None or loader.resident is False:
        return dataset
    if loader.resident is True and not is_in_memory(dataset):
        dataset = _read_whole(dataset, name)
    if not is_in_memory(dataset) or not (loader.resident is True or _fits(dataset, device)):
        return dataset
    return TensorDataset(*(tensor.to(device) for tensor in dataset.tensors))


def is_resident(dataset: Any, loader: LoaderConfig, device: torch.device) -> bool:
    """Whether `settled` has put the data set on the device: then there is nothing to fetch."""
    if not is_in_memory(dataset) or loader.resident is False:
        return False
    return all(tensor.device.type == device.type for tensor in dataset.tensors)


def _fits(dataset: TensorDataset, device: torch.device) -> bool:
    if device.type != "cuda":
        return True  # it lies there already
    free, _ = torch.cuda.mem_get_info(device)
    return sum(tensor.nbytes for tensor in dataset.tensors) <= RESIDENT_SHARE * free


def _read_whole(dataset: Any, name: str) -> TensorDataset:
    whole = Reader(dataset, name=name).samples(UNTRAINED, torch.arange(num_samples(dataset)))
    columns = list(whole) if isinstance(whole, (list, tuple)) else [whole]
    if not all(isinstance(column, Tensor) and len(column) == num_samples(dataset) for column in columns):
        raise NotReady(
            f"loader.resident=true: {name} cannot be kept on the device: its samples are no tuples of tensors and "
            "numbers; set loader.resident to auto"
        )
    return TensorDataset(*columns)
