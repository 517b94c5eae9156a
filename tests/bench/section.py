"""A section of docs/benchmark.md as files: what was run, and what torch DDP made of it. Loads no torch."""

from __future__ import annotations

import msgspec

__all__ = ["ARMS", "DDP", "SOLO", "SPEEDS", "DdpEpoch", "DdpRun", "Section"]

SPEEDS = {"rehearsal": (1.0, 0.4), "rehearsal4": (1.0, 0.4, 0.4, 0.21)}
SOLO, DDP = "solo", "ddp"
ARMS = {
    "cpu_sync": ("elche=cpu_sync",),
    "cpu_cadence": ("elche=cpu_cadence",),
    "cpu_async": ("elche=cpu_async",),
    "easgd": ("elche=cpu_async", "elche.easgd_alpha=0.6"),
    "diloco": ("elche=cpu_cadence", "outer=diloco"),
}


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """What was run where. more: further overrides of every arm. load: processes that ran or waited at the start."""

    model: str
    dataset: str
    cluster: str
    epochs: int
    seeds: tuple[int, ...]
    more: tuple[str, ...] = ()
    cpu: str = ""
    cores: int = 0
    load: float = 0.0

    @property
    def overrides(self) -> tuple[str, ...]:
        """What all arms are given."""
        return (f"model={self.model}", f"dataset={self.dataset}", f"cluster={self.cluster}",
                f"trainer.num_epochs={self.epochs}", *self.more)  # fmt: skip


class DdpEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """loss: mean over the epoch's training batches of rank 0."""

    loss: float
    wall_seconds: float
    eval: dict[str, float]


class DdpRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run. samples: of an epoch, all ranks together."""

    seed: int
    speeds: tuple[float, ...]
    samples: int
    epochs: tuple[DdpEpoch, ...]
