"""From a job and its roster to what each host's agent is told: interpreters, folders, variables, threads, secrets."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flodl.decide.roster import Place
from flodl.decide.timeouts import timeouts_of
from flodl.engine.keys import RunKeys
from flodl.engine.payload import RankPayload, encode_host_secret
from flodl.engine.server import Endpoints
from flodl.errors import ConfigError, Problem
from flodl.ports import HostCall, HostLaunch
from flodl.spec.cluster import ClusterSpec, ControllerSpec, HostSpec
from flodl.spec.job import JobSpec

__all__ = ["host_calls", "is_loopback", "launches", "passed_values", "threads_by_host", "told"]

LOOPBACK = "lo"


def host_calls(job: JobSpec, here: Collection[str]) -> tuple[HostCall, ...]:
    """How the job's hosts are reached and what is warmed up on them, before anybody has counted a device.

    here: labels of those that are this machine.
    """
    return tuple(
        HostCall(
            spec=host,
            here=host.host in here,
            python=_python(host, is_here=host.host in here),
            path=_path(host),
            env=job.cluster.env_of(host),
            withheld=frozenset(job.cluster.env_pass),
        )
        for host in job.cluster.workers
    )


def launches(
    job: JobSpec,
    places: Sequence[Place],
    *,
    run_id: str,
    keys: RunKeys,
    endpoints: Endpoints,
    threads: Mapping[str, int],
) -> tuple[HostLaunch, ...]:
    """One per host that lends a device, in order. threads: host -> of each of its ranks. Raises ConfigError."""
    values = passed_values(job.cluster.env_pass, os.environ)
    found: list[HostLaunch] = []
    for host, mine in _lending(job, places):
        payloads = {
            place.rank: RankPayload(
                run_id=run_id,
                job=job,
                rank=place.rank,
                world=tuple(places),
                host=host.host,
                device=place.device,
                local_rank=local_rank,
                control=endpoints.control,
                bulk=endpoints.bulk,
                server_key=keys.server.public,
                keys=keys.by_rank[place.rank],
                interface=_interface(job, host),
                threads=threads[host.host],
                speed=place.speed,
                data_path=host.data_path,
                path=_path(host),
            )
            for local_rank, place in enumerate(mine)
        }
        found.append(_launch(job, host, payloads, values))
    return tuple(found)


def _lending(job: JobSpec, places: Sequence[Place]) -> Iterator[tuple[HostSpec, list[Place]]]:
    """Hosts with at least one rank, and their ranks."""
    for host in job.cluster.workers:
        mine = [place for place in places if place.host == host.host]
        if mine:
            yield host, mine


def _launch(job: JobSpec, host: HostSpec, payloads: Mapping[int, RankPayload], values: Mapping[str, str]) -> HostLaunch:
    limits = timeouts_of(job.membership.timeout_scale)
    return HostLaunch(
        label=host.host,
        path=_path(host),
        env=job.cluster.env_of(host),
        ranks=tuple(payloads),
        devices=tuple(payload.device for payload in payloads.values()),
        secret=encode_host_secret(payloads, values),
        beat_seconds=limits.heartbeat,
        dead_seconds=limits.dead,
    )


def passed_values(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The values of cluster.env_pass. Raises ConfigError naming those that are not set here."""
    missing = [name for name in names if name not in environ]
    if missing:
        raise ConfigError(
            Problem(
                key="cluster.env_pass", value=name, constraint="is not set here", remedy="export it, or leave it out"
            )
            for name in missing
        )
    return {name: environ[name] for name in names}


def threads_by_host(
    cluster: ClusterSpec, places: Sequence[Place], facts: Mapping[str, Mapping[str, Any]]
) -> dict[str, int]:
    """Host -> torch threads of each of its ranks: two beside one busy process cost a factor of ten.

    facts: of each host, as its agent has told them. Hosts that are one machine under several names share its cores.
    What a host's variables say wins.
    """
    machines = {place.host: str(facts[place.host]["machine"]) for place in places}
    ranks = Counter(machines[place.host] for place in places)
    shares = {host: max(1, int(facts[host]["cores"]) // ranks[machine]) for host, machine in machines.items()}
    return {host.host: cluster.threads_of(host, shares[host.host]) for host in cluster.workers if host.host in shares}


def told(controller: ControllerSpec, bound: Endpoints) -> Endpoints:
    """The endpoints as hosts shall dial them: under controller.host, where it is not what was bound (NAT, docker)."""
    if controller.bind is None:
        return bound
    place = f"[{controller.host}]" if ":" in controller.host else controller.host
    return Endpoints(*(f"tcp://{place}:{endpoint.rpartition(':')[2]}" for endpoint in bound))


def _interface(job: JobSpec, host: HostSpec) -> str | None:
    """Where gloo and NCCL listen. A run that stays on this machine stays on the loopback interface."""
    if host.nccl_socket_ifname is not None:
        return host.nccl_socket_ifname
    return LOOPBACK if is_loopback(job.cluster.controller.host) else None


def is_loopback(address: str) -> bool:
    """True for an address that no other machine can reach."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _path(host: HostSpec) -> str:
    return host.path or str(Path.cwd())


def _python(host: HostSpec, *, is_here: bool) -> str:
    """ "" means the interpreter that runs this; a host elsewhere is expected to have it at the same place."""
    if host.python is not None:
        return "" if is_here and host.python == sys.executable else host.python
    if host.arch is not None:
        return f"{_path(host)}/envs/{host.arch}/bin/python"
    return "" if is_here and host.docker is None else sys.executable
