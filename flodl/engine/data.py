"""Samples of an epoch, in the order that every host agrees on.

Position p of epoch e is sample permutation(seed, e, n)[p]. Which positions a rank trains is the coordinator's word
(ranges); how they become batches is decide.ledger's arithmetic; this room only loads what was asked for. An
in-memory data set (torch's own TensorDataset) stays on the device and a batch is one index_select; any other
map-style data set is read sample by sample, each with the random stream of its own index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset, default_collate

from flodl.decide.ledger import count_batches, take_batches
from flodl.decide.messages import Range
from flodl.engine.seeding import seed_batch

__all__ = ["Batch", "Feed", "batch_of", "collate_of", "num_samples", "permutation", "resident", "signature"]

SIGNATURE_SAMPLES = 16


@dataclass(frozen=True)
class Batch:
    """inputs: what the step is called with, on the device. first_position: its place in the epoch's permutation."""

    inputs: Any
    epoch: int
    first_position: int
    samples: int


def num_samples(dataset: Any) -> int:
    """Length of a map-style data set."""
    return len(dataset)


def permutation(seed: int, epoch: int, n: int) -> np.ndarray:
    """Sample index of each of the `n` positions of `epoch`, int64.

    numpy's legacy stream: frozen for all versions, so hosts with different software agree.
    """
    return np.random.RandomState((seed + epoch) % 2**32).permutation(n)


def resident(dataset: Any, device: torch.device) -> Any:
    """An in-memory data set moved onto the device; any other as it is. (A subclass may read in its own way.)"""
    if type(dataset) is not TensorDataset:
        return dataset
    return TensorDataset(*(tensor.to(device) for tensor in dataset.tensors))


def collate_of(dataset: Any) -> Callable[[list[Any]], Any]:
    """How a list of samples becomes one batch: the data set's own collate_fn where it has one, else torch's."""
    return getattr(dataset, "collate_fn", None) or default_collate


def _home(dataset: Any) -> torch.device:
    """Where samples are picked: where an in-memory data set lies, else the CPU."""
    return dataset.tensors[0].device if type(dataset) is TensorDataset else torch.device("cpu")


def batch_of(dataset: Any, indices: Tensor, device: torch.device, *, seed: int = 0, epoch: int = 0) -> Any:
    """The samples `indices` (int64) as one batch on the device."""
    if type(dataset) is TensorDataset:
        chosen = indices.to(_home(dataset))
        return tuple(tensor.index_select(0, chosen).to(device) for tensor in dataset.tensors)
    samples: list[Any] = []
    for index in indices.tolist():
        _seed_sample(seed, epoch, index)
        samples.append(dataset[index])
    return _moved(collate_of(dataset)(samples), device)


class Feed:
    """One rank's batches, as the coordinator deals them. num_positions: positions of an epoch that may be dealt."""

    def __init__(self, dataset: Any, *, batch_size: int, seed: int, num_positions: int, device: torch.device) -> None:
        self.dataset = resident(dataset, device)
        self.batch_size = batch_size
        self.seed = seed
        self.num_positions = num_positions
        self.device = device
        self._orders: dict[int, Tensor] = {}
        self._held: list[Range] = []

    def restate(self, ranges: Iterable[Range], *, skip: int = 0) -> None:
        """Replace what is held. The first `skip` batches of the list are those that this rank has already run."""
        held = [piece for piece in ranges if len(piece)]
        beyond = [piece for piece in held if piece.stop > self.num_positions]
        if beyond:
            raise ValueError(f"{beyond[0]} was dealt, but an epoch has {self.num_positions} positions")
        _, self._held = take_batches(held, skip, self.batch_size)

    def __len__(self) -> int:
        """Batches that are held and not yet taken."""
        return count_batches(self._held, self.batch_size)

    def next(self) -> Batch | None:
        """Load the next batch; None when nothing is held. All the waiting for data happens here."""
        pieces, self._held = take_batches(self._held, 1, self.batch_size)
        if not pieces:
            return None
        epoch, first = pieces[0].epoch, pieces[0].start
        order = self._order(epoch)
        indices = torch.cat([order[piece.start : piece.stop] for piece in pieces])
        inputs = batch_of(self.dataset, indices, self.device, seed=self.seed, epoch=epoch)
        return Batch(inputs, epoch, first, len(indices))

    def _order(self, epoch: int) -> Tensor:
        """The epoch's permutation. Two are kept: epoch e + 1 goes out with the final window of e."""
        if epoch not in self._orders:
            order = torch.from_numpy(permutation(self.seed, epoch, num_samples(self.dataset)))
            self._orders[epoch] = order.to(_home(self.dataset))  # beside the samples: no copy for each batch
            for old in sorted(self._orders)[:-2]:
                del self._orders[old]
        return self._orders[epoch]


def signature(dataset: Any) -> str:
    """Length and hash of 16 samples, spread evenly, as text: equal on all hosts that may train together.

    A data set whose samples differ between hosts by right (another image decoder, say) has a method signature() -> str.
    """
    own = getattr(dataset, "signature", None)
    if callable(own):
        return str(own())
    length = num_samples(dataset)
    digest = hashlib.sha256()
    for index in sorted({i * (length - 1) // (SIGNATURE_SAMPLES - 1) for i in range(SIGNATURE_SAMPLES)}):
        _seed_sample(0, 0, index)
        _absorb(dataset[index], digest)
    return f"{length}-{digest.hexdigest()[:16]}"


def _seed_sample(seed: int, epoch: int, index: int) -> None:
    """The random streams of one sample, whichever batch and rank reads it. Negative: never a batch's own position."""
    seed_batch(seed, epoch, -1 - index, torch.device("cpu"))


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


def _moved(value: Any, device: torch.device) -> Any:
    """The collated batch with all its tensors on the device."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {name: _moved(item, device) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_moved(item, device) for item in value)
    return value
