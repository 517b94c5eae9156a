"""The roster: which rank is which device of which host, numbered in the order of the cluster file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from flodl.errors import ConfigError, Problem
from flodl.spec.cluster import HostSpec
from flodl.spec.elche import Mode
from flodl.spec.job import JobSpec

__all__ = ["Place", "resolve_mode", "roster"]


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank. host: its label. device: "cpu" or "cuda:N" (N as nvidia-smi counts). speed: rehearsal pace.

    uuid: of its GPU, as the driver told it before the run; "" where nobody asked.
    """

    rank: int
    host: str
    device: str
    batch_size: int
    speed: float = 1.0
    uuid: str = ""

    @property
    def card(self) -> str:
        """What is one and the same for ranks that share a GPU, whatever their hosts are called."""
        return self.uuid.lower() or f"{self.host} {self.device}"


def roster(
    job: JobSpec, gpus: Mapping[str, int], uuids: Mapping[str, Sequence[str]] | None = None
) -> tuple[Place, ...]:
    """Number the ranks of `job.cluster` in host order. gpus: host label -> GPUs counted there (absent: none).

    uuids: host label -> of these GPUs, in the same order, as far as they are known.
    Raises ConfigError with everything that the counted devices make wrong.
    """
    problems: list[Problem] = []
    places: list[Place] = []
    for index, host in enumerate(job.cluster.workers):
        key = f"cluster.workers[{index}]"
        devices = _devices(host, gpus.get(host.host, 0), key, problems)
        speeds = _speeds(host, len(devices), key, problems)
        known = (uuids or {}).get(host.host, ())
        for device, speed in zip(devices, speeds, strict=True):
            places.append(
                Place(
                    rank=len(places),
                    host=host.host,
                    device=device,
                    batch_size=host.overrides.batch_size or job.trainer.batch_size,
                    speed=speed,
                    uuid=_uuid(device, known),
                )
            )
    problems += _mode_problems(job, places)
    if problems:
        raise ConfigError(problems)
    return tuple(places)


def resolve_mode(places: Sequence[Place]) -> Mode:
    """What ``elche.mode: auto`` means: nccl_cadence when every rank has a GPU of its own, else cpu_cadence."""
    has_gpus = all(place.device != "cpu" for place in places)
    return "nccl_cadence" if has_gpus and not _sharing(places) else "cpu_cadence"


def _sharing(places: Sequence[Place]) -> list[Place]:
    """The ranks of the first GPU that more than one rank has; none where each has its own."""
    by_card: dict[str, list[Place]] = {}
    for place in places:
        by_card.setdefault(place.card, []).append(place)
    shared = [ranks for ranks in by_card.values() if len(ranks) > 1]
    return shared[0] if shared else []


def _uuid(device: str, known: Sequence[str]) -> str:
    number = device.partition(":")[2]
    return known[int(number)] if number and int(number) < len(known) else ""


def _devices(host: HostSpec, num_gpus: int, key: str, problems: list[Problem]) -> list[str]:
    asked = host.local_devices
    shown = f"{key}.local_devices"
    if isinstance(asked, tuple):
        for number in asked:
            if number >= num_gpus:
                problems.append(
                    Problem(
                        key=shown,
                        value=str(number),
                        constraint=f"{host.host} has {num_gpus} GPUs",
                        remedy="name devices that exist, or cpu:N for ranks on the CPU",
                    )
                )
        if len(set(asked)) != len(asked) or not asked:
            problems.append(Problem(key=shown, value=str(list(asked)), constraint="must name each device once"))
        return [f"cuda:{number}" for number in asked]
    if asked.startswith("cpu:") and asked[4:].isdigit() and int(asked[4:]) > 0:
        return ["cpu"] * int(asked[4:])
    if asked not in ("all", "auto"):
        remedy = "use all, auto, cpu:N or a list of device numbers"
        problems.append(Problem(key=shown, value=asked, constraint="is no choice of devices", remedy=remedy))
        return []
    if not num_gpus and asked == "all":
        problems.append(
            Problem(
                key=shown,
                value="all",
                constraint=f"no GPU was found on {host.host}: its driver may be broken",
                remedy="use cpu:N to train on the CPU",
            )
        )
    return [f"cuda:{number}" for number in range(num_gpus)] or ["cpu"]


def _speeds(host: HostSpec, num_devices: int, key: str, problems: list[Problem]) -> list[float]:
    if not isinstance(host.speed, tuple):
        return [host.speed] * num_devices
    if len(host.speed) != num_devices:
        problems.append(
            Problem(
                key=f"{key}.speed",
                value=str(list(host.speed)),
                constraint=f"{host.host} has {num_devices} devices",
                remedy="give one number, or one per device",
            )
        )
        return [1.0] * num_devices
    return list(host.speed)


def _mode_problems(job: JobSpec, places: Sequence[Place]) -> list[Problem]:
    problems: list[Problem] = []
    elche = job.elche
    if elche.mode.startswith("nccl") and len(places) > 1:
        constraint, also = _nccl_fault(places)
        remedy = f"use elche={elche.mode.replace('nccl', 'cpu')}{also}"
        if constraint:
            problem = Problem(key="elche.mode", value=elche.mode, constraint=constraint, remedy=remedy, is_rigs=True)
            problems.append(problem)
    named = {"elche.anchor_rank": elche.anchor_rank, "callbacks.policy": job.callbacks.policy}
    for key, value in named.items():
        if isinstance(value, int) and value >= len(places) > 0:
            problems.append(Problem(key=key, value=str(value), constraint=f"ranks are 0..{len(places) - 1}"))
    ratios = elche.partition_ratios
    if ratios is not None and len(ratios) != len(places):
        problems.append(
            Problem(
                key="elche.partition_ratios",
                value=str(list(ratios)),
                constraint=f"there are {len(places)} ranks",
                remedy="give one ratio per rank",
            )
        )
    return problems


def _nccl_fault(places: Sequence[Place]) -> tuple[str, str]:
    """(why these ranks cannot average over NCCL, "" where they can; another way out)."""
    if any(place.device == "cpu" for place in places):
        return "NCCL needs GPUs", ""
    shared = _sharing(places)
    if not shared:
        return "", ""
    ranks = " and ".join(f"rank {place.rank} ({place.host} {place.device})" for place in shared)
    which = f" ({shared[0].uuid})" if shared[0].uuid else ""
    return (
        f"two ranks share a GPU, and NCCL refuses that: {ranks} have one{which}",
        ", or lend each GPU under one host only",
    )
