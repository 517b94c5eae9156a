"""Any map-style torch data set (__len__ and __getitem__) that a config names, with transforms and a split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset

from flodl.datasets.splits import Splits, require
from flodl.errors import ConfigError, Problem

__all__ = ["Prepared", "map_style"]

Change = Callable[[Any], Any]


class Prepared(Dataset[Any]):
    """A data set whose samples pass through `changes` one after the other.

    A change gets a tuple's first element (the input; labels stay as they are), or the whole of any other sample.
    collate_fn: list of samples -> batch; None: torch's own.
    """

    def __init__(self, dataset: Any, changes: Sequence[Change], collate_fn: Change | None) -> None:
        self.dataset = dataset
        self.changes = tuple(changes)
        self.collate_fn = collate_fn

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        sample = self.dataset[index]
        is_pair = isinstance(sample, (tuple, list))
        value = sample[0] if is_pair else sample
        for change in self.changes:
            value = change(value)
        return (value, *sample[1:]) if is_pair else value


def map_style(  # noqa: PLR0913  each is a key of the config
    *,
    train: Any,
    eval: Any = None,  # noqa: A002  the part's name in Splits and in the config
    eval_fraction: float | None = None,
    split_seed: int = 0,
    augment: Change | Sequence[Change] = (),
    transform: Change | Sequence[Change] = (),
    collate_fn: Change | None = None,
    image_shape: Sequence[int] | None = None,
    num_classes: int | None = None,
) -> Splits:
    """train and eval as they are, or parted here: eval_fraction of train is held back, chosen by split_seed.

    augment: changes of training inputs alone, before transform's, which all inputs pass; one callable or several.
    collate_fn: list of samples -> batch. image_shape, num_classes: stated for the model to read; the shape is held
    against the first sample. Raises ConfigError for what is not map-style and for arguments that contradict.
    """
    _refuse_streams(train=train, eval=eval)
    if eval_fraction is not None:
        if eval is not None:
            problem = "is given beside dataset.eval, which is the evaluation part already"
            raise ConfigError([Problem(key="dataset.eval_fraction", value=str(eval_fraction), constraint=problem)])
        train, eval = _parted(train, eval_fraction, split_seed)  # noqa: A001
    shared, extra = _listed(transform), _listed(augment)
    splits = Splits(
        train=_prepared(train, [*extra, *shared], collate_fn),
        eval=None if eval is None else _prepared(eval, shared, collate_fn),
    )
    if image_shape is not None:
        _check_shape(splits.train, image_shape)
    return splits


def _refuse_streams(**parts: Any) -> None:
    problems = [
        Problem(
            key=f"dataset.{name}",
            value=type(part).__name__,
            constraint="is not map-style: samples are dealt out by number, so that none is lost and none counts twice",
            remedy="give it __len__ and __getitem__, for example an index over its files, or store the stream once",
        )
        for name, part in parts.items()
        if part is not None and (isinstance(part, IterableDataset) or not _is_map_style(part))
    ]
    if problems:
        raise ConfigError(problems)


def _is_map_style(part: Any) -> bool:
    return hasattr(part, "__len__") and hasattr(part, "__getitem__")


def _parted(dataset: Any, fraction: float, seed: int) -> tuple[Any, Any]:
    """Training and evaluation part: a permutation of numpy's frozen stream, cut in two; each in ascending order."""
    count = len(dataset)
    num_eval = round(count * fraction)
    if not 0 < num_eval < count:
        constraint = f"must leave samples on both sides of {count}"
        raise ConfigError([Problem(key="dataset.eval_fraction", value=str(fraction), constraint=constraint)])
    order = np.random.RandomState(seed % 2**32).permutation(count)
    return Subset(dataset, sorted(order[num_eval:].tolist())), Subset(dataset, sorted(order[:num_eval].tolist()))


def _listed(changes: Change | Sequence[Change] | None) -> list[Change]:
    if changes is None:
        return []
    return [changes] if callable(changes) else list(changes)


def _prepared(dataset: Any, changes: Sequence[Change], collate_fn: Change | None) -> Any:
    """Wrapped only where there is something to do: an in-memory data set stays one."""
    return Prepared(dataset, changes, collate_fn) if changes or collate_fn is not None else dataset


def _check_shape(dataset: Any, image_shape: Sequence[int]) -> None:
    if len(dataset):
        sample = dataset[0]
        first = sample[0] if isinstance(sample, (tuple, list)) else sample
        if isinstance(first, (Tensor, np.ndarray)):
            require("image_shape", image_shape, list(first.shape))
