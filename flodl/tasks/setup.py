"""task=setup: on each host an environment with the torch build that its cards need, and this very flodl in it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from flodl.errors import TaskFindings
from flodl.probe.capability import is_supported, known_archs, wheel_index
from flodl.tasks.cluster_file import scalar, set_value
from flodl.tasks.fetch import push
from flodl.tasks.hosts import Host, each, hosts_of
from flodl.tasks.order import Order
from flodl.tasks.scripts import send
from flodl.tasks.wheel import own_wheel
from flodl.tasks.which import shown

__all__ = ["Environment", "environment_of", "perform", "plan"]

LOOK_SECONDS = 60.0
NOTHING = "every host names its interpreter (python:) already: nothing to make\n"
INDEX = "https://download.pytorch.org/whl/"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What a host gets: its folder, what pip installs as torch, and from which index. why: in words."""

    folder: str
    torch: str
    index: str
    why: str

    @property
    def python(self) -> str:
        return f"{self.folder}/bin/python"


def perform(order: Order) -> None:
    """Make what is missing, side by side; then write `python:` into the cluster file, or print it."""
    hosts = _without_python(order)
    wanted = _wanted(hosts)
    if not wanted:
        sys.stdout.write(NOTHING)
        return
    with tempfile.TemporaryDirectory(prefix="flodl-wheel-") as place:
        wheel = own_wheel(Path(place))

        def make(host: Host) -> None:
            environment = wanted[host.label]
            host.say(f"{environment.why}: {environment.torch} from {environment.index}")
            with push(host, wheel, str(PurePosixPath(environment.folder).parent)) as there:
                given = {"folder": environment.folder, "torch": environment.torch, "index": environment.index,
                         "wheel": there}  # fmt: skip
                host.say(_said(send(host, "setup", given)))

        try:
            each(hosts, make)
        except TaskFindings as error:
            raise TaskFindings(f"{error}\nno interpreter was written into the cluster file") from error
    _tell(order, wanted)


def plan(order: Order) -> None:
    """launch.dry_run: hosts are asked for their cards, and nothing is made."""
    hosts = _without_python(order)
    if not hosts:
        sys.stdout.write(NOTHING)
    for label, environment in _wanted(hosts).items():
        pip = f"{environment.python} -m pip install"
        lines = (environment.why, f"python3 -m venv {environment.folder}",
                 f"{pip} '{environment.torch}' --index-url {environment.index}",
                 f"{pip} <this flodl, pushed as a wheel>")  # fmt: skip
        sys.stdout.write("".join(f"[{label}] {line}\n" for line in lines))


def environment_of(path: str, arch: str | None, capabilities: Sequence[tuple[int, int]]) -> Environment:
    """What a host with these cards gets: one build has to run on all of them. Raises TaskFindings where none does."""
    if not capabilities:
        return Environment(folder=f"{path}/envs/{arch or 'cpu'}", torch="torch", index=f"{INDEX}cpu", why="no GPU")
    cards = sorted(set(capabilities))
    shown_cards = ", ".join(f"{a}.{b}" for a, b in cards)
    for card in (cards[-1], cards[0]):
        found = wheel_index(card)
        if found is not None and (len(cards) == 1 or _runs_on_all(found[1], cards)):
            name = arch or f"sm{cards[-1][0]}{cards[-1][1]}"
            return Environment(folder=f"{path}/envs/{name}", torch=found[0], index=f"{INDEX}{found[1]}",
                               why=f"GPUs of capability {shown_cards}")  # fmt: skip
    raise TaskFindings(f"no torch from 2.10 on runs on GPUs of capability {shown_cards} at once: make two hosts of "
                       "it, each with local_devices and an arch of its own, or leave cards out")  # fmt: skip


def _runs_on_all(build: str, cards: Sequence[tuple[int, int]]) -> bool:
    """build: cu126 and the like."""
    archs = known_archs(f"2.10.0+{build}", f"{build[2:4]}.{build[4:]}")
    return all(is_supported(archs, card) for card in cards)


def _without_python(order: Order) -> list[Host]:
    return [host for host in hosts_of(order.job) if host.spec.python is None]


def _wanted(hosts: Sequence[Host]) -> dict[str, Environment]:
    """Host -> what it gets. Raises TaskFindings with every host's trouble."""

    def look(host: Host) -> Environment:
        found = send(host, "look", {"address": ""}, timeout_seconds=LOOK_SECONDS, quiet=True)
        if found["trouble"]:
            raise TaskFindings(f"{host.label}: {found['trouble']}; mend its driver, or leave its GPUs out by python:")
        capabilities = [(int(gpu["capability"][0]), int(gpu["capability"][1])) for gpu in found["gpus"]]
        try:
            return environment_of(host.path, host.spec.arch, capabilities)
        except TaskFindings as error:
            raise TaskFindings(f"{host.label}: {error}") from error

    return each(hosts, look)


def _said(answer: Mapping[str, Any]) -> str:
    versions = answer["versions"]
    state = "is ready" if answer["is_new"] else "was there already and is unchanged"
    cuda = f", CUDA {versions['cuda']}" if versions["cuda"] else ", CPU only"
    return f"{answer['python']} {state}: torch {versions['torch']}{cuda}, flodl {versions['flodl']}"


def _tell(order: Order, wanted: Mapping[str, Environment]) -> None:
    file = order.cluster_file
    lines: list[str] = []
    for i, worker in enumerate(order.job.cluster.workers):
        if worker.host not in wanted:
            continue
        python = wanted[worker.host].python
        lines += [f"  - host: {scalar(worker.host)}", f"    python: {scalar(python)}"]
        if file is not None:
            set_value(file, ("workers", i, "python"), python)
    head = f"{shown(file)} says now:" if file is not None else "write into your cluster file (./conf/cluster/...):"
    sys.stdout.write("\n".join([head, *lines]) + "\n")
