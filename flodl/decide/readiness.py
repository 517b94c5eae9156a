"""Readiness: what all ranks must agree on before the first window, told together with host and remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flodl.decide.messages import RankReady
from flodl.decide.roster import Place
from flodl.errors import Problem

__all__ = ["readiness_problems"]

_MUST_AGREE = (
    ("data_signature", "the data differ", "copy the same data set to every host"),
    ("num_samples", "the number of samples differs", "copy the same data set to every host"),
    ("num_parameters", "the models differ", "run the same code on every host"),
    ("fingerprint", "the models' tensors differ", "run the same code on every host"),
)


def readiness_problems(
    readies: Mapping[int, RankReady], places: Sequence[Place], batch_size: int
) -> tuple[Problem, ...]:
    """All that forbids the first window. batch_size: the job's (an epoch is a whole number of such batches)."""
    found: list[Problem] = []
    first = readies[min(readies)]
    if first.num_samples == 0:
        found.append(Problem(key="dataset", constraint="the data set is empty"))
    elif first.num_samples < batch_size:
        found.append(
            Problem(
                key="trainer.batch_size",
                value=str(batch_size),
                constraint=f"the data set has {first.num_samples} samples: fewer than one batch",
                remedy="lower trainer.batch_size",
            )
        )
    if first.num_parameters == 0:
        found.append(Problem(key="model", constraint="it has no parameters: there is nothing to train"))
    for place in places:
        if place.rank in readies:
            found += _differences(first, readies[place.rank], place)
    return tuple(found)


def _differences(first: RankReady, other: RankReady, place: Place) -> list[Problem]:
    found: list[Problem] = []
    if other.batch_size != place.batch_size:
        constraint = f"rank {place.rank} was told to use {place.batch_size}"
        found.append(Problem(key=f"{place.host}.batch_size", value=str(other.batch_size), constraint=constraint))
    for field, what, remedy in _MUST_AGREE:
        here, there = getattr(other, field), getattr(first, field)
        if here != there:
            found.append(
                Problem(
                    key=f"{place.host} (rank {place.rank})",
                    value=f"{field} {here}",
                    constraint=f"{what}: rank {first.rank} on {first.host} has {there}",
                    remedy=remedy,
                )
            )
            break  # what follows differs for the same cause
    return found
