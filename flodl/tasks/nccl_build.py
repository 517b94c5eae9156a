"""task=nccl_build: one NCCL for hosts whose own differ, loaded in front of it by LD_PRELOAD.

Hosts of different NCCL major.minor cannot form a communicator. The target is the highest version in the cluster, or
`tag`; every host that has another major.minor gets a library of that version, made there and asked there.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from flodl.errors import ConfigError, Problem, TaskFindings
from flodl.tasks.cluster_file import scalar, set_value
from flodl.tasks.fetch import fetch_wheel, push
from flodl.tasks.hosts import Host, each, hosts_of
from flodl.tasks.order import Order
from flodl.tasks.scripts import send
from flodl.tasks.status import switch
from flodl.tasks.which import shown

__all__ = ["Bridge", "bridges", "perform", "plan", "target_of"]

ASK_SECONDS = 120.0  # a first `import torch` from a cold disk
LIBRARY = "libnccl.so.2"
_TAG = re.compile(r"v?(\d+\.\d+\.\d+)(-\d+)?")


@dataclass(frozen=True, kw_only=True)
class Bridge:
    """What one host gets. capabilities: of its GPUs. cuda: of its torch, for the wheel."""

    host: str
    folder: str
    version: str
    cuda: str
    capabilities: tuple[tuple[int, int], ...]

    @property
    def library(self) -> str:
        return f"{self.folder}/lib/{LIBRARY}"


def perform(order: Order) -> None:
    """Ask every host, bring the library where it is needed, print (or write) what belongs into the cluster file."""
    method, is_written = _method(order), switch("write", order.given["write"])
    hosts = {host.label: host for host in hosts_of(order.job)}
    version, wanted = _looked(order, hosts, method)
    if not wanted:
        sys.stdout.write(f"every host has NCCL {_minor(version)} itself: nothing to build\n")
        return
    folders = {bridge.host: bridge for bridge in wanted}
    make = {"wheel": _by_wheel, "source": _by_source}[method]
    each([hosts[bridge.host] for bridge in wanted], lambda host: make(host, folders[host.label], order))
    _tell(order, wanted, is_written=is_written)


def plan(order: Order) -> None:
    """launch.dry_run: hosts are asked what they have, and nothing is made."""
    method = _method(order)
    hosts = {host.label: host for host in hosts_of(order.job)}
    version, wanted = _looked(order, hosts, method)
    sys.stdout.write(f"target      NCCL {version}\n")
    for host in hosts:
        bridge = next((bridge for bridge in wanted if bridge.host == host), None)
        if bridge is None:
            sys.stdout.write(f"[{host}] nothing: it has NCCL {_minor(version)} itself\n")
        for line in () if bridge is None else _commands(bridge, method, order.given):
            sys.stdout.write(f"[{host}] {line}\n")


def target_of(found: Mapping[str, Mapping[str, Any]], tag: object) -> str:
    """The version that all shall have: the tag's, or the highest that a host has. Raises ConfigError without either."""
    if tag is not None:
        match = _TAG.fullmatch(str(tag))
        if match is None:
            raise ConfigError([Problem(key="tag", value=str(tag), constraint="is no version of NCCL",
                                       remedy="for example tag=v2.27.5-1, or tag=2.27.5")])  # fmt: skip
        return match[1]
    versions = [str(answer["nccl"]) for answer in found.values() if answer["nccl"] is not None]
    if not versions:
        raise TaskFindings("no host's torch has an NCCL: all are CPU builds, and a bridge is for GPUs; "
                           "tag=... names a version all the same")  # fmt: skip
    return max(versions, key=_parts)


def bridges(
    found: Mapping[str, Mapping[str, Any]], paths: Mapping[str, str], version: str, method: str
) -> tuple[Bridge, ...]:
    """What has to be made, by host in order: nothing where the host's own NCCL is of the same major.minor."""
    made: list[Bridge] = []
    for host, answer in found.items():
        if answer["nccl"] is not None and _minor(str(answer["nccl"])) == _minor(version):
            continue
        capabilities = tuple((int(a), int(b)) for a, b in answer["capabilities"])
        archs = "-".join(f"sm{a}{b}" for a, b in capabilities)
        folder = PurePosixPath(paths[host]) / "nccl" / f"v{version}-{'wheel' if method == 'wheel' else archs}"
        made.append(Bridge(host=host, folder=str(folder), version=version, cuda=str(answer["cuda"] or ""),
                           capabilities=capabilities))  # fmt: skip
    return tuple(made)


def _looked(order: Order, hosts: Mapping[str, Host], method: str) -> tuple[str, tuple[Bridge, ...]]:
    """Target and work. Raises TaskFindings with what stands against it on any host."""
    tag = order.given["tag"]
    if tag is not None:
        target_of({}, tag)  # before anybody is asked
    found = each(hosts.values(), lambda host: send(host, "nccl", {"do": "ask"}, python=host.python,
                                                   timeout_seconds=ASK_SECONDS))  # fmt: skip
    version = target_of(found, tag)
    wanted = bridges(found, {label: host.path for label, host in hosts.items()}, version, method)
    lacking = [f"{bridge.host}: {fault}" for bridge in wanted if (fault := _fault(bridge, method))]
    if lacking:
        raise TaskFindings("\n".join(lacking))
    return version, wanted


def _fault(bridge: Bridge, method: str) -> str:
    if not bridge.cuda and method == "wheel":
        return "its torch is a CPU build, so no wheel of NCCL belongs to it; task=setup makes the right environment"
    if not bridge.capabilities and method == "source":
        return "nvidia-smi lists no GPU there, so nobody knows for which to build"
    return ""


def _by_wheel(host: Host, bridge: Bridge, order: Order) -> None:
    """The host's pip downloads it; where it cannot, this machine's does, and the wheel is pushed."""
    given = {"do": "wheel", "folder": bridge.folder, "version": bridge.version, "cuda": bridge.cuda,
             "capabilities": bridge.capabilities, "wheel": ""}  # fmt: skip
    try:
        send(host, "nccl", given, python=host.python)
    except TaskFindings as error:
        if "pip cannot download" not in str(error):
            raise
        host.say("cannot download it; this machine tries, and pushes it")
        with tempfile.TemporaryDirectory(prefix="flodl-nccl-") as place:
            wheel = fetch_wheel(f"nvidia-nccl-cu{bridge.cuda.partition('.')[0]}=={bridge.version}", Path(place))
            with push(host, wheel, f"{PurePosixPath(bridge.folder).parent}") as there:
                send(host, "nccl", given | {"wheel": there}, python=host.python)
    host.say(f"{bridge.library} is NCCL {bridge.version}")


def _by_source(host: Host, bridge: Bridge, order: Order) -> None:
    given = {"do": "source", "folder": bridge.folder, "version": bridge.version, "tag": _git_tag(order, bridge),
             "source": str(order.given["source"]), "capabilities": bridge.capabilities,
             "jobs": order.given["jobs"]}  # fmt: skip
    send(host, "nccl", given, python=host.python)
    host.say(f"{bridge.library} is NCCL {bridge.version}")


def _commands(bridge: Bridge, method: str, given: Mapping[str, Any]) -> Sequence[str]:
    """The gist of what is done on a host, for a dry run."""
    if method == "wheel":
        asked = f"nvidia-nccl-cu{bridge.cuda.partition('.')[0]}=={bridge.version}"
        return (
            f"python -m pip download --no-deps {asked}",
            f"unpack {LIBRARY} to {bridge.library}",
            "load it and ask it",
        )
    codes = " ".join(f"-gencode=arch=compute_{a}{b},code=sm_{a}{b}" for a, b in bridge.capabilities)
    return (f"git clone --depth 1 --branch {given['tag'] or f'v{bridge.version}-1'} {given['source']}",
            f"make -j {given['jobs'] or '$(nproc)'} src.build NVCC_GENCODE='{codes}'",
            f"copy {LIBRARY} to {bridge.library}", "load it and ask it")  # fmt: skip


def _git_tag(order: Order, bridge: Bridge) -> str:
    tag = order.given["tag"]
    return str(tag) if tag is not None and str(tag).startswith("v") else f"v{bridge.version}-1"


def _tell(order: Order, made: Sequence[Bridge], *, is_written: bool) -> None:
    workers = order.job.cluster.workers
    lines = [f"the cluster file needs:{'' if not is_written else ' (written)'}"]
    for i, worker in enumerate(workers):
        bridge = next((bridge for bridge in made if bridge.host == worker.host), None)
        if bridge is None:
            continue
        value = _preload(worker.env.get("LD_PRELOAD", ""), bridge.library)
        lines += [f"  - host: {scalar(worker.host)}", f"    env: {{LD_PRELOAD: {scalar(value)}}}"]
        if is_written and order.cluster_file is not None:
            set_value(order.cluster_file, ("workers", i, "env", "LD_PRELOAD"), value)
    sys.stdout.write("\n".join(lines) + "\n")
    if is_written and order.cluster_file is None:
        raise TaskFindings("write=true: the cluster is no file of ./conf/cluster of this folder; write it by hand")
    if is_written:
        sys.stdout.write(f"{shown(Path(str(order.cluster_file)))} is changed\n")


def _preload(before: str, library: str) -> str:
    """In front of what a host preloads already, and instead of an older NCCL."""
    kept = [part for part in re.split(r"[:\s]+", before) if part and PurePosixPath(part).name != LIBRARY]
    return ":".join([library, *kept])


def _method(order: Order) -> str:
    method = order.given["method"]
    if method not in ("wheel", "source"):
        raise ConfigError([Problem(key="method", value=str(method), constraint="must be wheel or source")])
    jobs = order.given["jobs"]
    if jobs is not None and (not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1):
        raise ConfigError([Problem(key="jobs", value=str(jobs), constraint="must be a whole number >= 1, or null")])
    return str(method)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
