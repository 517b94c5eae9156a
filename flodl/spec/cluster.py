"""The cluster: one controller and an ordered list of hosts, as the user wrote them (`all` and `auto` included)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from flodl.spec.value import NonNegativeInt, Positive, PositiveInt, Value

__all__ = ["ClusterSpec", "ControllerSpec", "DeploySpec", "HostOverrides", "HostSpec", "JoinSpec", "SshSpec"]

Port = Annotated[int, Meta(ge=0, le=65535)]


class JoinSpec(Value, kw_only=True):
    """How long the controller waits for ranks, and with how many it may begin (null: all of them)."""

    min_ranks: PositiveInt | None = None
    timeout_seconds: Positive = 300.0


class ControllerSpec(Value, kw_only=True):
    """The host where the user typed the command."""

    host: str = "127.0.0.1"
    bind: str | None = None
    port: Port = 0
    data_path: str | None = None
    join: JoinSpec = JoinSpec()


class SshSpec(Value, kw_only=True):
    """How a host is reached; what is null comes from ~/.ssh/config and the agent."""

    target: str | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    user: str | None = None
    identity_file: str | None = None
    proxy_jump: str | None = None
    known_hosts: str | None = None
    host_key_policy: Literal["reject", "accept_new"] = "reject"


class HostOverrides(Value, kw_only=True):
    """What may differ per host, and nothing else. null: as the job says."""

    batch_size: PositiveInt | None = None
    micro_batch: PositiveInt | Literal["auto"] | None = None
    precision: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    compile: Literal["auto"] | bool | None = None
    num_workers: NonNegativeInt | None = None


class HostSpec(Value, kw_only=True):
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


class DeploySpec(Value, kw_only=True):
    """What is pushed to the hosts before a run."""

    code: Literal["none", "rsync"] = "none"
    data: Literal["none", "rsync"] = "none"


class ClusterSpec(Value, kw_only=True):
    """Controller and hosts, in the order that numbers the ranks."""

    controller: ControllerSpec = ControllerSpec()
    workers: tuple[HostSpec, ...]
    env: dict[str, str] = {}
    env_pass: tuple[str, ...] = ()
    deploy: DeploySpec = DeploySpec()
