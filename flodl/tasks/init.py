"""task=init: a commented cluster file from what is there. Hosts are looked at, nothing on them is changed."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flodl.errors import ConfigError, Problem, TaskFindings
from flodl.record.files import write_atomically
from flodl.record.text import clean
from flodl.spec.cluster import ClusterSpec, HostSpec, SshSpec
from flodl.tasks.cluster_file import scalar
from flodl.tasks.hosts import each, hosts_of
from flodl.tasks.order import Order
from flodl.tasks.scripts import send
from flodl.tasks.which import shown

__all__ = ["cluster_text", "perform", "plan", "read_host"]

LOOK_SECONDS = 60.0
_HOST = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>[^@:\s]+|\[[^\]]+\])(?::(?P<port>\d{1,5}))?")


def perform(order: Order) -> None:
    """Look at the hosts and write the file; one that exists is never overwritten."""
    place = _place(order.given["write"])
    if place is not None and place.exists():
        raise ConfigError([Problem(key="write", value=shown(place), constraint="exists, and is not overwritten",
                                   remedy="name another: write=conf/cluster/rig.yaml")])  # fmt: skip
    specs = _specs(order.given["hosts"])
    cluster = ClusterSpec(workers=tuple(specs))
    hosts = hosts_of(order.job.replace(cluster=cluster))
    here = _address_towards([host.spec for host in hosts if not host.call.here])
    found = each(hosts, lambda host: send(host, "look", {"address": here if host.call.here else ""},
                                          timeout_seconds=LOOK_SECONDS, quiet=True))  # fmt: skip
    text = cluster_text(specs, found, {host.label for host in hosts if host.call.here}, here)
    if place is None:
        sys.stdout.write(text)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, text.encode())
    sys.stdout.write(f"{shown(place)} is written. Read it, then: python -m flodl task=setup cluster={place.stem}, "
                     f"task=probe cluster={place.stem}\n")  # fmt: skip
    _complain(found)


def plan(order: Order) -> None:
    """launch.dry_run: who would be looked at."""
    for spec in _specs(order.given["hosts"]):
        sys.stdout.write(f"[{spec.host}] would be looked at: GPUs, network, python\n")


def read_host(text: str) -> HostSpec:
    """`[user@]host[:port]` as a host of a cluster file. ValueError where it is none."""
    match = _HOST.fullmatch(text)
    if match is None or match["host"].startswith("-"):
        raise ValueError(text)
    port = int(match["port"]) if match["port"] else None
    return HostSpec(host=match["host"].strip("[]"), ssh=SshSpec(user=match["user"], port=port))


def cluster_text(
    specs: Sequence[HostSpec], found: Mapping[str, Mapping[str, Any]], here: set[str], address: str
) -> str:
    """The file. here: labels that are this machine. address: its own, towards the others; "" where there are none."""
    told = next((str(answer["client"]) for answer in found.values() if answer["client"]), "") or address or "127.0.0.1"
    lines = [
        "# Written by task=init from what the hosts said. Every key and its meaning: python -m flodl --cfg job, or",
        "# cluster/twohost of flodl. Ranks are counted in the order of the workers.",
        "defaults: [local, _self_]",
        "controller:",
        f"  host: {scalar(told)} # this machine's address as the others see it",
        "workers:",
    ]
    for spec in specs:
        lines.extend(_worker(spec, found[spec.host], is_here=spec.host in here, is_alone=len(specs) == 1))
    return "\n".join(lines) + "\n"


def _worker(spec: HostSpec, answer: Mapping[str, Any], *, is_here: bool, is_alone: bool) -> list[str]:
    gpus: list[Mapping[str, Any]] = list(answer["gpus"])
    machine = clean(f"{answer['hostname']}, {answer['machine']}, {answer['cores']} cores, python {answer['python']}")
    lines = [f"  - host: {scalar(spec.host)} # {machine}"]
    ssh = [f"{name}: {value if isinstance(value, int) else scalar(str(value))}"
           for name, value in (("user", spec.ssh.user), ("port", spec.ssh.port)) if value is not None]  # fmt: skip
    if ssh:
        lines.append(f"    ssh: {{{', '.join(ssh)}}}")
    for i, gpu in enumerate(gpus):
        a, b = gpu["capability"]
        told = f"{gpu['name']}, {gpu['memory_mib']} MiB, capability {a}.{b}, driver {gpu['driver']}"
        lines.append(f"    # GPU {i}: {clean(told)}")
    cpus = f"cpu:1 # one CPU rank: {clean(str(answer['trouble'])) or 'no GPU was found'}"
    lines.append(f"    local_devices: {'all # every GPU, counted when a run starts' if gpus else cpus}")
    if not is_alone:
        interface = answer["interface"]
        note = f"has {answer['address']}" if interface else "not found: `ip -br addr` there lists them"
        lines.append(f"    nccl_socket_ifname: {scalar(interface) if interface else 'null'} # {note}")
    path = str(Path.cwd()) if is_here else f"{answer['home']}/{Path.cwd().name}"
    lines.append(f"    path: {scalar(path)} # the project there")
    return lines


def _specs(hosts: object) -> list[HostSpec]:
    listed = [hosts] if isinstance(hosts, str) else hosts
    problems: list[Problem] = []
    specs: list[HostSpec] = []
    for text in listed if isinstance(listed, list) else [listed]:
        try:
            specs.append(read_host(str(text)))
        except ValueError:
            problems.append(Problem(key="hosts", value=str(text), constraint="is no host",
                                    remedy="write [user@]name[:port]: hosts='[localhost,me@old]'"))  # fmt: skip
    labels = [spec.host for spec in specs]
    problems += [Problem(key="hosts", value=label, constraint="stands there twice", remedy="name each host once")
                 for label in sorted({label for label in labels if labels.count(label) > 1})]  # fmt: skip
    if not listed:
        problems.append(
            Problem(key="hosts", value="[]", constraint="names nobody", remedy="hosts='[localhost,me@old]'")
        )
    if problems:
        raise ConfigError(problems)
    return specs


def _place(write: object) -> Path | None:
    if write is None:
        return None
    if isinstance(write, str) and write.endswith(".yaml"):
        return Path(write).expanduser()
    raise ConfigError([Problem(key="write", value=str(write), constraint="must be the path of a .yaml file, or null",
                               remedy="write=conf/cluster/mine.yaml")])  # fmt: skip


def _address_towards(others: Sequence[HostSpec]) -> str:
    """This machine's address on the way to the first of them; "" where there is no way to tell. Nothing is sent."""
    for spec in others:
        try:
            family, kind, _, _, address = socket.getaddrinfo(spec.host, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as asked:
                asked.connect(address)
                return str(asked.getsockname()[0])
        except OSError:
            continue
    return ""


def _complain(found: Mapping[str, Mapping[str, Any]]) -> None:
    """What a person has to fill in."""
    lacking = [label for label, answer in found.items() if len(found) > 1 and not answer["interface"]]
    if lacking:
        raise TaskFindings("\n".join(f"{label}: its network interface was not found; write nccl_socket_ifname yourself"
                                     for label in lacking))  # fmt: skip
