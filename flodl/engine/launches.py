"""From a job and its roster to what each host's agent is told: interpreters, folders, variables, threads, secrets."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from flodl.decide.roster import Place
from flodl.engine.facts import num_cores
from flodl.engine.keys import RunKeys
from flodl.engine.payload import RankPayload, encode_host_secret
from flodl.engine.server import Endpoints
from flodl.errors import ConfigError, Problem
from flodl.ports import HostLaunch
from flodl.spec.cluster import ControllerSpec, HostSpec
from flodl.spec.job import JobSpec

__all__ = ["launches", "passed_values", "threads_per_rank", "told"]

LOOPBACK = "lo"


def launches(
    job: JobSpec, places: Sequence[Place], *, run_id: str, keys: RunKeys, endpoints: Endpoints
) -> tuple[HostLaunch, ...]:
    """One per host that lends a device, in order. Raises ConfigError where a variable of env_pass is not set."""
    values = passed_values(job.cluster.env_pass, os.environ)
    threads = threads_per_rank(len(places))
    found: list[HostLaunch] = []
    for host in job.cluster.workers:
        mine = [place for place in places if place.host == host.host]
        if not mine:
            continue
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
                threads=threads,
                speed=place.speed,
                data_path=host.data_path,
                path=_path(host),
            )
            for local_rank, place in enumerate(mine)
        }
        found.append(_launch(job, host, payloads, values))
    return tuple(found)


def _launch(job: JobSpec, host: HostSpec, payloads: Mapping[int, RankPayload], values: Mapping[str, str]) -> HostLaunch:
    return HostLaunch(
        label=host.host,
        python=_python(host),
        path=_path(host),
        env={**job.cluster.env, **host.env},
        ranks=tuple(payloads),
        devices=tuple(payload.device for payload in payloads.values()),
        threads=next(iter(payloads.values())).threads,
        secret=encode_host_secret(payloads, values),
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


def threads_per_rank(num_ranks: int) -> int:
    """Torch threads of each rank of this machine: two beside one busy process cost a factor of ten."""
    return max(1, num_cores() // max(1, num_ranks))


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
    return LOOPBACK if _is_loopback(job.cluster.controller.host) else None


def _is_loopback(address: str) -> bool:
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _path(host: HostSpec) -> str:
    return host.path or str(Path.cwd())


def _python(host: HostSpec) -> str:
    """ "" means the interpreter that runs this."""
    if host.python is not None:
        return "" if host.python == sys.executable else host.python
    return f"{_path(host)}/envs/{host.arch}/bin/python" if host.arch is not None else ""
