"""Readiness: what all ranks must agree on before the first window, told together with host and remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flodl.decide.messages import RankReady
from flodl.decide.roster import Place
from flodl.errors import Problem

__all__ = ["project_problems", "readiness_problems"]

_SAME_DATA = "copy the same data set to every host, or run with cluster.deploy.data=rsync"
_SAME_CODE = "run with cluster.deploy.code=rsync, or copy the project to every host"
_FOR_THE_NEXT = "change a project between runs: what is changed now is for the next one"
_SHOWN_FILES = 3

_MUST_AGREE = (
    ("data_signature", "the data differ", _SAME_DATA),
    ("num_samples", "the number of samples differs", _SAME_DATA),
    ("num_parameters", "the models differ", _SAME_CODE),
    ("fingerprint", "the models' tensors differ", _SAME_CODE),
)


def readiness_problems(
    readies: Mapping[int, RankReady], places: Sequence[Place], batch_size: int, *, newcomer: int | None = None
) -> tuple[Problem, ...]:
    """All that forbids the first window. batch_size: the job's (an epoch is a whole number of such batches).

    newcomer: a rank that comes to others who have agreed: where it differs, they are right.
    """
    found: list[Problem] = []
    present = sorted([place for place in places if place.rank in readies], key=lambda place: place.rank == newcomer)
    first = readies[present[0].rank]
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
    stale = _stale_files({place.rank: place.host for place in present}, readies)
    found += [_stale(host, *files, is_late=newcomer is not None) for host, files in stale.items()]
    current = [readies[place.rank] for place in present if place.host not in stale]
    for place in present:
        # Other code builds other things: a stale host is told its cause, not what follows from it.
        right = readies[place.rank] if place.host in stale else current[0]
        found += _differences(right, readies[place.rank], place)
    return tuple(found)


def project_problems(readies: Mapping[int, RankReady], places: Sequence[Place]) -> tuple[Problem, ...]:
    """Hosts whose copy of the project is another one than that of most."""
    stale = _stale_files({place.rank: place.host for place in places if place.rank in readies}, readies)
    return tuple(_stale(host, *files) for host, files in stale.items())


def _stale_files(hosts: Mapping[int, str], readies: Mapping[int, RankReady]) -> dict[str, tuple[list[str], str]]:
    """host -> (project files that are other ones than on most hosts, one of those hosts). hosts: of the ranks.

    Only files that both have imported are compared: which ones are needed may depend on the device.
    """
    kept: dict[str, dict[str, list[str]]] = {}  # file -> hash -> hosts
    for rank, host in hosts.items():
        for file, digest in readies[rank].project.items():
            having = kept.setdefault(file, {}).setdefault(digest, [])
            if host not in having:
                having.append(host)
    stale: dict[str, tuple[list[str], str]] = {}
    for file, versions in sorted(kept.items()):
        right = max(versions.values(), key=len)  # of equals the first: rank 0's
        for having in versions.values():
            for host in having if having is not right else ():
                stale.setdefault(host, ([], right[0]))[0].append(file)
    return stale


def _stale(host: str, files: Sequence[str], other: str, *, is_late: bool = False) -> Problem:
    """is_late: the others have trained with theirs."""
    more = f" and {len(files) - _SHOWN_FILES} more files" if len(files) > _SHOWN_FILES else ""
    named = ", ".join(files[:_SHOWN_FILES]) + more
    verb = "are" if len(files) > 1 else "is"
    constraint = f"{named} of the project {verb} not what {other} has"
    if is_late:
        constraint = f"{named} of the project changed since the run began"
        return Problem(key=host, constraint=constraint, remedy=_FOR_THE_NEXT)
    if host == other:
        constraint = f"{named} of the project changed while its ranks were starting"
    return Problem(key=host, constraint=constraint, remedy=_SAME_CODE)


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
