"""How samples become a batch: the same in the rank and in its loader processes.

Position p of epoch e is sample permutation(seed, e, n)[p]. An in-memory data set (torch's own TensorDataset) gives a
batch by one index_select; any other map-style data set is read sample by sample, each with the random stream of its
own index, so that a batch does not depend on who reads it. What a data set raises is told with the sample's number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset, default_collate

from flodl.decide.messages import Range
from flodl.engine.seeding import seed_batch
from flodl.errors import FlodlError

__all__ = ["Reader", "batch_of", "is_in_memory", "moved", "num_samples", "permutation", "signature"]

CPU = torch.device("cpu")
SIGNATURE_SAMPLES = 16
UNTRAINED = -1  # the epoch of samples that are read for no epoch: their random streams are no epoch's


def num_samples(dataset: Any) -> int:
    """Length of a map-style data set."""
    return len(dataset)


def permutation(seed: int, epoch: int, n: int) -> np.ndarray:
    """Sample index of each of the `n` positions of `epoch`, int64.

    numpy's legacy stream: frozen for all versions, so hosts with different software agree.
    """
    return np.random.RandomState((seed + epoch) % 2**32).permutation(n)


def is_in_memory(dataset: Any) -> bool:
    """Whether batches are cut from tensors as they are. (A subclass may read in its own way.)"""
    return type(dataset) is TensorDataset


class Reader:
    """Reads batches of one data set. name: what messages call it. repeated: the first so many samples of epoch 0 stand
    at the positions of every epoch, over and over.

    A data set with an attribute collate_fn (list of samples -> batch) that is not None is collated by it.
    """

    def __init__(self, dataset: Any, *, seed: int = 0, name: str = "the data set", repeated: int | None = None) -> None:
        self.dataset = dataset
        self.seed = seed
        self.repeated = repeated
        self.name = name
        self._collate: Callable[[list[Any]], Any] = getattr(dataset, "collate_fn", None) or default_collate
        self._home = dataset.tensors[0].device if is_in_memory(dataset) else CPU
        self._orders: dict[int, Tensor] = {}

    def lies_on(self, device: torch.device) -> bool:
        """Whether its batches are on the device as they are read."""
        return is_in_memory(self.dataset) and all(tensor.device == device for tensor in self.dataset.tensors)

    def batch(self, pieces: Sequence[Range]) -> Any:
        """The samples at these positions of one epoch, collated, where the data set lies. Raises FlodlError."""
        order = self._order(pieces[0].epoch)
        return self.samples(pieces[0].epoch, torch.cat([order[piece.start : piece.stop] for piece in pieces]))

    def samples(self, epoch: int, indices: Tensor) -> Any:
        """The samples `indices` (int64) as one batch. Raises FlodlError."""
        if is_in_memory(self.dataset):
            chosen = indices.to(self._home)
            return tuple(tensor.index_select(0, chosen) for tensor in self.dataset.tensors)
        read = [self.sample(epoch, index) for index in indices.tolist()]
        try:
            return self._collate(read)
        except Exception as error:
            shown = ", ".join(map(str, indices[:4].tolist())) + (", ..." if len(indices) > 4 else "")
            raise FlodlError(f"{self.name}: samples {shown} make no batch: {_named(error)}") from error

    def sample(self, epoch: int, index: int) -> Any:
        """One sample, with its own random stream. Raises FlodlError."""
        seed_batch(self.seed, epoch, -1 - index, CPU)  # negative: never the position of a batch
        try:
            return self.dataset[index]
        except Exception as error:
            raise FlodlError(f"{self.name}: sample {index} cannot be read: {_named(error)}") from error

    def _order(self, epoch: int) -> Tensor:
        """The epoch's permutation. Two are kept: epoch e + 1 goes out with the final window of e."""
        if epoch not in self._orders:
            order = torch.from_numpy(self._indices(epoch, num_samples(self.dataset)))
            self._orders[epoch] = order.to(self._home)  # beside the samples: no copy for each batch
            for old in sorted(self._orders)[:-2]:
                del self._orders[old]
        return self._orders[epoch]

    def _indices(self, epoch: int, samples: int) -> np.ndarray:
        if self.repeated is None:
            return permutation(self.seed, epoch, samples)
        return np.resize(permutation(self.seed, 0, samples)[: self.repeated], samples)


def batch_of(dataset: Any, indices: Tensor, device: torch.device) -> Any:
    """The samples `indices` (int64) as one batch on the device, outside of any epoch. Raises FlodlError."""
    return moved(Reader(dataset).samples(UNTRAINED, indices), device)


def moved(value: Any, device: torch.device, *, pin: bool = False) -> Any:
    """The collated batch with all its tensors on the device. pin: from page-locked memory, while the GPU computes."""
    if isinstance(value, Tensor):
        if pin and device.type == "cuda" and value.device.type == "cpu":
            value = value.pin_memory()
        return value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {name: moved(item, device, pin=pin) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(moved(item, device, pin=pin) for item in value)
    return value


def signature(dataset: Any, name: str = "the data set") -> str:
    """Length and hash of 16 samples, spread evenly, as text: equal on all hosts that may train together.

    A data set whose samples differ between hosts by right (another image decoder, say) has a method signature() -> str.
    """
    own = getattr(dataset, "signature", None)
    if callable(own):
        return str(own())
    length, reader = num_samples(dataset), Reader(dataset, name=name)
    digest = hashlib.sha256()
    for index in sorted({i * (length - 1) // (SIGNATURE_SAMPLES - 1) for i in range(SIGNATURE_SAMPLES)}):
        _absorb(reader.sample(UNTRAINED, index), digest)
    return f"{length}-{digest.hexdigest()[:16]}"


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _absorb(value: Any, digest: Any) -> None:
    """Type, shape and bytes of whatever a sample is made of."""
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(value.tobytes())
    elif isinstance(value, Mapping):
        for name in sorted(value):
            digest.update(str(name).encode())
            _absorb(value[name], digest)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for item in value:
            _absorb(item, digest)
    else:
        digest.update(repr(value).encode())
