"""What a run would start, as text: ranks, hosts, devices, commands, names of variables. Nothing is touched for it.

Only names of variables are shown: their values may be secret.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from flodl.decide.roster import Place, resolve_mode, roster
from flodl.probe.gpus import count_gpus
from flodl.probe.here import is_here
from flodl.spec.cluster import HostSpec
from flodl.spec.codec import sha256
from flodl.spec.devices import named_count
from flodl.spec.job import JobSpec
from flodl.spec.outer import outer_name

__all__ = ["gpus_of", "plan_lines", "uncounted"]

# What every rank gets from flodl itself.
_OWN_VARIABLES = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "MKL_NUM_THREADS", "OMP_NUM_THREADS",
                  "OPENBLAS_NUM_THREADS")  # fmt: skip
_INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def gpus_of(job: JobSpec) -> dict[str, int]:
    """Host label -> GPUs: counted on this machine, as named elsewhere (nobody is asked)."""
    found: dict[str, int] = {}
    for host in job.cluster.workers:
        if is_here(host):
            found[host.host] = count_gpus()
        elif isinstance(host.local_devices, tuple):
            found[host.host] = max(host.local_devices) + 1
    return found


def uncounted(job: JobSpec) -> tuple[HostSpec, ...]:
    """Hosts whose devices can only be counted there."""
    return tuple(h for h in job.cluster.workers if not is_here(h) and named_count(h.local_devices) is None)


def plan_lines(job: JobSpec) -> Iterator[str]:
    """The plan, line by line. Raises ConfigError where this machine has not the devices that are named."""
    yield f"job         {job.name}, spec {sha256(job)[:12]}"
    unknown = uncounted(job)
    places = () if unknown else roster(job, gpus_of(job))
    yield f"averaging   {_averaging(job, places)}"
    controller = job.cluster.controller
    ports = "two free ports" if controller.port == 0 else f"ports {controller.port} and {controller.port + 1}"
    yield f"controller  {controller.bind or controller.host}, {ports}"
    yield from (_rank_line(place) for place in places)
    for host in unknown:
        yield f"ranks       of {host.host}: local_devices={host.local_devices} is counted there when the run starts"
    for host in job.cluster.workers:
        yield from _host_lines(job, host)


def _averaging(job: JobSpec, places: tuple[Place, ...]) -> str:
    if len(places) == 1:
        return "none: one device trains alone, the mode is ignored"
    if not places and job.elche.mode == "auto":
        return "nccl_cadence where every rank has a GPU of its own, else cpu_cadence"
    config = job.elche.resolved(resolve_mode(places))
    outer = outer_name(job.outer)
    return f"{config.mode}: {config.averages} over {config.backend}" + (f", then {outer}" if outer else "")


def _rank_line(place: Place) -> str:
    pace = f", at {place.speed:g} of its speed" if place.speed != 1.0 else ""
    return f"rank {place.rank:<6} {place.host} {place.device}, batches of {place.batch_size}{pace}"


def _host_lines(job: JobSpec, host: HostSpec) -> Iterator[str]:
    argv = [_interpreter(host), "-P", "-m", "flodl.engine.agent"]
    way = "a subprocess" if is_here(host) else f"over {shlex.join(_ssh(host))}"
    yield f"host        {host.host}, {way}, in {host.path or Path.cwd()}"
    yield f"  command   {shlex.join(argv)}"
    yield f"  variables {', '.join(_variables(job.cluster.env, host))}"
    if job.cluster.env_pass:
        yield f"  by name   {', '.join(job.cluster.env_pass)} (values travel over standard input)"


def _variables(common: Mapping[str, str], host: HostSpec) -> list[str]:
    own = _OWN_VARIABLES + (_INTERFACE_VARIABLES if host.nccl_socket_ifname else ())
    return sorted({*own, *common, *host.env})


def _interpreter(host: HostSpec) -> str:
    if host.python is not None:
        return host.python
    if host.arch is not None:
        return f"{host.path or Path.cwd()}/envs/{host.arch}/bin/python"
    return sys.executable


def _ssh(host: HostSpec) -> list[str]:
    ssh = host.ssh
    options = {"-p": ssh.port, "-l": ssh.user, "-i": ssh.identity_file, "-J": ssh.proxy_jump}
    given = [text for flag, value in options.items() if value is not None for text in (flag, str(value))]
    return ["ssh", *given, "--", ssh.target or host.host]
