"""A section of docs/benchmark.md as files: what was run, and what torch DDP made of it. Loads no torch."""

from __future__ import annotations

import msgspec

__all__ = ["ARMS", "DDP", "SHARED_GPU", "SOLO", "SPEEDS", "DdpEpoch", "DdpRun", "Section"]

SPEEDS = {"rehearsal": (1.0, 0.4), "rehearsal4": (1.0, 0.4, 0.4, 0.21), "shared_gpu": (1.0, 1.0)}
SHARED_GPU = "shared_gpu"  # two ranks on the first GPU of this machine
SOLO, DDP = "solo", "ddp"
ARMS = {
    "cpu_sync": ("elche=cpu_sync",),
    "cpu_cadence": ("elche=cpu_cadence",),
    "cpu_async": ("elche=cpu_async",),
    "easgd": ("elche=cpu_async", "elche.easgd_alpha=0.6"),
    "diloco": ("elche=cpu_cadence", "outer=diloco"),
}

ONE = "cluster.workers=[{host: localhost, local_devices: 'cpu:1', nccl_socket_ifname: lo}]"
HOSTS = ("localhost", "127.0.0.1")  # a host may name a GPU once


def _cluster(name: str, hosts: tuple[str, ...]) -> tuple[str, ...]:
    if name != SHARED_GPU:
        return (f"cluster={name}",)
    workers = ", ".join(f"{{host: {host}, local_devices: [0], nccl_socket_ifname: lo}}" for host in hosts)
    return ("cluster=local", f"cluster.workers=[{workers}]")


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """What was run where. more: further overrides of every arm. gpu: that of a shared one.
    load: processes that ran or waited at the start."""

    model: str
    dataset: str
    cluster: str
    epochs: int
    seeds: tuple[int, ...]
    more: tuple[str, ...] = ()
    cpu: str = ""
    gpu: str = ""
    cores: int = 0
    load: float = 0.0

    @property
    def overrides(self) -> tuple[str, ...]:
        """What all arms are given."""
        return (f"model={self.model}", f"dataset={self.dataset}", *_cluster(self.cluster, HOSTS),
                f"trainer.num_epochs={self.epochs}", *self.more)  # fmt: skip

    @property
    def alone(self) -> tuple[str, ...]:
        """What makes the fast rank train alone."""
        return _cluster(SHARED_GPU, HOSTS[:1]) if self.cluster == SHARED_GPU else (ONE,)

    def continues(self, other: Section) -> bool:
        """Whether the other one measured the same with other seeds."""
        return msgspec.structs.replace(self, seeds=other.seeds, load=other.load) == other


class DdpEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """loss: mean over the epoch's training batches of rank 0."""

    loss: float
    wall_seconds: float
    eval: dict[str, float]


class DdpRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run. samples: of an epoch, all ranks together. epochs: none where it failed."""

    seed: int
    speeds: tuple[float, ...]
    samples: int
    epochs: tuple[DdpEpoch, ...]
