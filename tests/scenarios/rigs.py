"""Jobs and rosters for scenarios: the parts that every one of them needs and none is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flodl.decide.roster import Place
from flodl.spec.checkpoint import CheckpointConfig
from flodl.spec.cluster import ClusterSpec, HostSpec
from flodl.spec.elche import ElCheConfig
from flodl.spec.job import Component, JobSpec

__all__ = ["job_of", "places_of"]

_ANY = Component(target="torch.nn.Linear")


def job_of(mode: str, *, elche: Mapping[str, Any] | None = None, **blocks: Any) -> JobSpec:
    """A job of one mode; blocks: trainer=..., eval=... and so on. Saved at the end only, unless told otherwise."""
    blocks.setdefault("checkpoint", CheckpointConfig(every_epochs=None))
    return JobSpec(
        elche=ElCheConfig(mode=mode, **(elche or {})),  # type: ignore[arg-type]
        cluster=blocks.pop("cluster", ClusterSpec(workers=(HostSpec(host="here"),))),
        model=_ANY,
        dataset=_ANY,
        step=_ANY,
        optim=_ANY,
        scheduler=_ANY,
        **blocks,
    )


def places_of(batch_sizes: Sequence[int]) -> tuple[Place, ...]:
    """One CPU rank per batch size, all on one host."""
    return tuple(Place(rank=rank, host="here", device="cpu", batch_size=size) for rank, size in enumerate(batch_sizes))
