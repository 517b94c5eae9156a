"""The cluster: one controller and an ordered list of hosts, as the user wrote them (`all` and `auto` included)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from flodl.errors import Problem
from flodl.spec.devices import device_fault, named_count
from flodl.spec.environment import THREADS, env_clashes, env_pass_problems, env_problems
from flodl.spec.names import (
    address_fault,
    environment_fault,
    faults,
    file_fault,
    folder_fault,
    host_fault,
    interface_fault,
    jump_fault,
    service_fault,
    user_fault,
)
from flodl.spec.value import NonNegativeInt, Positive, PositiveInt, Value

__all__ = ["ClusterSpec", "ControllerSpec", "DeploySpec", "HostOverrides", "HostSpec", "JoinSpec", "SshSpec"]

Port = Annotated[int, Meta(ge=0, le=65535)]

SLOWEST = 0.001  # below that a step sleeps for so long that the run looks hung, and obeys no signal


class JoinSpec(Value, frozen=True, kw_only=True):
    """How long the controller waits for ranks, and with how many it may begin (null: all of them)."""

    min_ranks: PositiveInt | None = None
    timeout_seconds: Positive = 300.0


class ControllerSpec(Value, frozen=True, kw_only=True):
    """The host where the user typed the command."""

    host: str = "127.0.0.1"
    bind: str | None = None
    port: Port = 0
    data_path: str | None = None
    join: JoinSpec = JoinSpec()

    def problems(self, key: str) -> Iterator[Problem]:
        yield from faults(f"{key}.host", self.host, address_fault)
        yield from faults(f"{key}.bind", self.bind, address_fault)
        yield from faults(f"{key}.data_path", self.data_path, file_fault)


class SshSpec(Value, frozen=True, kw_only=True):
    """How a host is reached; what is null comes from ~/.ssh/config and the agent."""

    target: str | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    user: str | None = None
    identity_file: str | None = None
    proxy_jump: str | None = None
    known_hosts: str | None = None
    host_key_policy: Literal["reject", "accept_new"] = "reject"

    def problems(self, key: str) -> Iterator[Problem]:
        yield from faults(f"{key}.target", self.target, host_fault)
        yield from faults(f"{key}.user", self.user, user_fault)
        yield from faults(f"{key}.proxy_jump", self.proxy_jump, jump_fault)
        yield from faults(f"{key}.identity_file", self.identity_file, file_fault)
        yield from faults(f"{key}.known_hosts", self.known_hosts, file_fault)


class HostOverrides(Value, frozen=True, kw_only=True):
    """What may differ per host, and nothing else. null: as the job says."""

    batch_size: PositiveInt | None = None
    micro_batch: PositiveInt | Literal["auto"] | None = None
    precision: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    compile: Literal["auto"] | bool | None = None
    num_workers: NonNegativeInt | None = None


class HostSpec(Value, frozen=True, kw_only=True):
    """One host: how to reach it, which devices it lends, and which software runs there."""

    host: str
    ssh: SshSpec = SshSpec()
    local_devices: str | tuple[NonNegativeInt, ...] = "auto"  # all | auto | cpu:N | [0, 1]
    nccl_socket_ifname: str | None = None
    path: str | None = None
    arch: str | None = None
    python: str | None = None
    data_path: str | None = None
    docker: str | None = None
    overrides: HostOverrides = HostOverrides()
    speed: Positive | tuple[Positive, ...] = 1.0
    env: dict[str, str] = {}

    def problems(self, key: str) -> Iterator[Problem]:
        yield from faults(f"{key}.host", self.host, host_fault)
        fault = device_fault(self.local_devices)
        if fault:
            yield Problem(key=f"{key}.local_devices", value=str(self.local_devices), constraint=fault[0],
                          remedy=fault[1])  # fmt: skip
        yield from self._speed_problems(key)
        yield from self._place_problems(key)
        yield from env_problems(self.env, f"{key}.env")

    def _place_problems(self, key: str) -> Iterator[Problem]:
        if self.python is not None and not self.python.startswith("/"):
            yield Problem(key=f"{key}.python", value=self.python, constraint="must be an absolute path",
                          remedy="remote shells are non-login shells: PATH says nothing")  # fmt: skip
        else:
            yield from faults(f"{key}.python", self.python, file_fault)
        yield from faults(f"{key}.path", self.path, folder_fault)
        yield from faults(f"{key}.data_path", self.data_path, folder_fault)
        yield from faults(f"{key}.arch", self.arch, environment_fault)
        yield from faults(f"{key}.docker", self.docker, service_fault)
        yield from faults(f"{key}.nccl_socket_ifname", self.nccl_socket_ifname, interface_fault)

    def _speed_problems(self, key: str) -> Iterator[Problem]:
        speeds = self.speed if isinstance(self.speed, tuple) else (self.speed,)
        if any(not SLOWEST <= speed <= 1 for speed in speeds):
            yield Problem(key=f"{key}.speed", value=str(self.speed),
                          constraint="a device can only be slowed down, and not for ever",
                          remedy=f"use numbers from {SLOWEST} to 1.0 (its own speed)")  # fmt: skip
        count = named_count(self.local_devices)
        if isinstance(self.speed, tuple) and (not speeds or count not in (None, len(speeds))):
            named = f"{count} devices" if count is not None else str(self.local_devices)
            yield Problem(key=f"{key}.speed", value=str(list(speeds)),
                          constraint=f"must hold one number per device, and local_devices names {named}",
                          remedy="give one number for all, or one for each")  # fmt: skip


class DeploySpec(Value, frozen=True, kw_only=True):
    """What is pushed to the hosts before a run."""

    code: Literal["none", "rsync"] = "none"
    data: Literal["none", "rsync"] = "none"


class ClusterSpec(Value, frozen=True, kw_only=True):
    """Controller and hosts, in the order that numbers the ranks."""

    controller: ControllerSpec = ControllerSpec()
    workers: tuple[HostSpec, ...]
    env: dict[str, str] = {}
    env_pass: tuple[str, ...] = ()
    deploy: DeploySpec = DeploySpec()

    def env_of(self, worker: HostSpec) -> dict[str, str]:
        """The variables that a worker's ranks find set: its own win."""
        return {**self.env, **worker.env}

    def threads_of(self, worker: HostSpec, share: int) -> int:
        """Threads of each of its ranks: as its variables say, else their share of the cores."""
        return int(self.env_of(worker).get(THREADS, share))

    def problems(self, key: str) -> Iterator[Problem]:
        if not self.workers:
            yield Problem(key=f"{key}.workers", value="[]", constraint="a run needs at least one worker",
                          remedy="cluster=local is this machine")  # fmt: skip
        seen: dict[str, int] = {}
        for i, worker in enumerate(self.workers):
            first = seen.setdefault(worker.host, i)
            if first != i:
                yield Problem(key=f"{key}.workers[{i}].host", value=worker.host,
                              constraint=f"is the label of workers[{first}] already",
                              remedy="give each host one entry and list its devices there")  # fmt: skip
            if len(self.workers) > 1 and not worker.nccl_socket_ifname:
                yield Problem(key=f"{key}.workers[{i}].nccl_socket_ifname", value="null",
                              constraint=f"must name {worker.host}'s network interface: there is more than one host",
                              remedy="`ip -br addr` on that host lists them")  # fmt: skip
        yield from env_problems(self.env, f"{key}.env")
        yield from env_pass_problems(self.env_pass, f"{key}.env_pass")
        yield from env_clashes(self.env_pass, self.env, f"{key}.env")
        for i, worker in enumerate(self.workers):
            yield from env_clashes(self.env_pass, worker.env, f"{key}.workers[{i}].env")
