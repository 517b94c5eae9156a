"""A rank that runs a training loop of the user's own: what it is handed, and how its end is told.

What it does is nobody's business, so no time is too long for it, unless others wait (see `flodl.decide.vigil`). Signs
of life are what it does with what it was handed: batches, averagings, a look whether it should stop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from numbers import Integral
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from flodl.decide.messages import Finish, FormGroup, Goodbye, GroupFormed, Range
from flodl.engine.build import build_data, build_loop
from flodl.engine.data import Feed
from flodl.engine.groups import GroupAverager
from flodl.engine.orders import Link
from flodl.engine.payload import RankPayload
from flodl.engine.rank_averager import RankAverager, Signs
from flodl.engine.reading import num_samples, signature
from flodl.engine.surroundings import Surroundings
from flodl.engine.tensorfile import pieces
from flodl.errors import ConfigError, FlodlError, Problem
from flodl.record.folder import WEIGHTS_FILE

__all__ = ["LoopContext", "LoopLoader", "OwnRank"]

_SAME_DATA = "copy the same data set to every host, or run with cluster.deploy.data=rsync"


class LoopLoader:
    """This rank's part of the job's data set, epoch by epoch: batches on the device, as the data set collates them.

    Every epoch is one permutation of the samples (of trainer.seed and the epoch), cut into as many batches for every
    rank; what is left over waits for another epoch. ``for batch in loader`` is the next epoch, ``loader.epoch(n)`` a
    certain one. len(): batches of an epoch, per rank.
    """

    def __init__(self, payload: RankPayload, place: Surroundings, signs: Signs) -> None:
        with _randomness_kept(place.device):  # by now it is the loop's own
            data, loading = build_data(payload.job, place)
            self.signature: str = signature(data, f"dataset={payload.job.dataset.name}")
        self._signs = signs
        self.batch_size = payload.job.trainer_with(place.overrides).batch_size
        smallest = min(one.batch_size for one in payload.world)
        total, ranks = num_samples(data), len(payload.world)
        self._batches = total // sum(one.batch_size for one in payload.world)
        if not self._batches:
            raise ConfigError([Problem(key="trainer.batch_size", value=str(smallest),
                                       constraint=f"{total} samples are no batch for each of {ranks} ranks",
                                       remedy="lower it")])  # fmt: skip
        before = sum(one.batch_size for one in payload.world if one.rank < payload.rank)
        self._first = before * self._batches
        self._epoch = 0
        self._feed = Feed(data, batch_size=self.batch_size, seed=payload.job.trainer.seed, num_positions=total,
                          device=place.device, loading=loading)  # fmt: skip

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[Any]:
        """The next epoch."""
        self._epoch += 1
        return self.epoch(self._epoch - 1)

    def epoch(self, number: int) -> Iterator[Any]:
        """The batches of one epoch, from 0. Do not run two at a time. Raises FlodlError for what is no such number."""
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 0:
            raise FlodlError(f"ctx.loader.epoch({number!r}): an epoch is a whole number from 0")
        self._feed.restate([Range(number, self._first, self._first + self._batches * self.batch_size)])
        while (batch := self._feed.next()) is not None:
            self._signs.progress += 1
            yield batch.inputs


class LoopContext:
    """What a loop is handed. rank, world_size: from 0, of how many. device: where its modules belong.

    averager: see `RankAverager`. is_stopping: somebody asked for the end: return soon (it is looked up when asked).
    """

    def __init__(self, payload: RankPayload, place: Surroundings, averager: RankAverager, link: Link) -> None:
        self.rank: int = payload.rank
        self.world_size: int = len(payload.world)
        self.device: torch.device = place.device
        self.averager: RankAverager = averager
        self._payload, self._place, self._link = payload, place, link
        self._is_stopping = False

    @cached_property
    def loader(self) -> LoopLoader:
        """This rank's part of the data set; read when it is first asked for, which all ranks do at the same point:
        they compare what they have read."""
        self._link.activity = "callback"  # others may wait while data are read, which has a limit of its own
        made = LoopLoader(self._payload, self._place, self._link)
        self._link.activity = "loop"
        self.averager.compare("ctx.loader", f"{len(made)} {made.signature}", "the data differ", _SAME_DATA)
        return made

    @property
    def is_stopping(self) -> bool:
        """Whether the run was asked to end. Ranks hear it at slightly different times: decide together, or between
        epochs."""
        self._link.progress += 1
        while self._link.pending():
            self._is_stopping = isinstance(self._link.receive(0), Finish) or self._is_stopping
        return self._is_stopping


class OwnRank:
    """One rank of such a run. averager: the loop's own, once it was entered."""

    def __init__(self, payload: RankPayload, place: Surroundings, link: Link) -> None:
        self.averager: RankAverager | None = None
        self._payload, self._place, self._link = payload, place, link
        self.function: Callable[[LoopContext], Any] = build_loop(payload.job, place)

    def run(self, averager: GroupAverager, device: torch.device) -> None:
        """Meet the others, run the loop, say goodbye. device: where vectors are summed. Raises what the loop raises."""
        payload, link = self._payload, self._link
        order = link.receive(None)
        while not isinstance(order, FormGroup):
            if isinstance(order, Finish):
                return
            order = link.receive(None)
        averager.form(order.generation, order.ranks)
        link.send(GroupFormed(at=0.0, rank=payload.rank, generation=order.generation, last_round=0))
        own = self.averager = RankAverager(averager, payload.rank, order, device, link)
        link.activity = "loop"
        given = self.function(LoopContext(payload, self._place, own, link))
        link.activity = "callback"
        if payload.rank == order.ranks[0] and given is not None:
            link.upload([(WEIGHTS_FILE, pieces(_tensors(given, "")))])
        link.send(Goodbye(at=0.0, rank=payload.rank))


@contextmanager
def _randomness_kept(device: torch.device) -> Iterator[None]:
    """Whatever is seeded or drawn within, random numbers go on as before."""
    numbers, words = np.random.get_state(), random.getstate()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield
    np.random.set_state(numbers)
    random.setstate(words)


def _tensors(given: Any, prefix: str) -> dict[str, Tensor]:
    """What a loop has returned, as names and tensors on the CPU: a module, or a map of names to modules and tensors."""
    if isinstance(given, nn.Module):
        given = given.state_dict()
    if isinstance(given, Tensor):
        return {prefix or "tensor": given.detach().cpu().clone().contiguous()}
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise FlodlError(f"the loop returned a {kind}; return a module, or a map of names to modules or tensors")
    found: dict[str, Tensor] = {}
    for name, value in cast("Mapping[Any, Any]", given).items():
        found |= _tensors(value, f"{prefix}.{name}" if prefix else str(name))
    return found
