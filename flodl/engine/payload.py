"""What one rank is told at its birth: the whole job, its place, and its keys. It arrives over standard input.

The agent hands the bytes through to the rank's own standard input and never decodes them; the rank reads them once and
closes it. Names and values of ``env_pass`` travel the same way and are set inside the rank.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flodl.decide.roster import Place
from flodl.engine.keys import KeyPair
from flodl.spec.job import JobSpec

__all__ = [
    "WORKER",
    "HostSecret",
    "RankPayload",
    "decode_host_secret",
    "decode_payload",
    "encode_host_secret",
    "reborn",
]

WORKER = "flodl.engine.worker:main"


class RankPayload(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's orders.

    host: label. device: "cpu" or "cuda:N" as the host counts; local_rank: its place among the host's ranks.
    control, bulk: tcp://address:port. interface: for gloo and NCCL, None: they choose. threads: for torch on the CPU.
    data_path, path: on this host, None: the path's data folder, the working folder. entry: module:function that is
    called with this payload. incarnation: 0 for the run's first process of this rank.
    """

    run_id: str
    job: JobSpec
    rank: int
    world: tuple[Place, ...]
    host: str
    device: str
    local_rank: int
    control: str
    bulk: str
    server_key: bytes
    keys: KeyPair
    interface: str | None = None
    threads: int = 1
    speed: float = 1.0
    data_path: str | None = None
    path: str | None = None
    entry: str = WORKER
    incarnation: int = 0

    def __repr__(self) -> str:
        return f"RankPayload(run {self.run_id}, rank {self.rank}, {self.host} {self.device})"

    @property
    def uuid(self) -> str:
        """Of this rank's GPU, as the host told it before the start; "" where nobody asked."""
        return next((place.uuid for place in self.world if place.rank == self.rank), "")

    @property
    def torch_device(self) -> str:
        """The device's name inside the rank: it sees one GPU only."""
        return "cuda:0" if self.device.startswith("cuda") else "cpu"


class HostSecret(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent gets for its ranks: encoded payloads by rank, and the values of env_pass."""

    payloads: dict[int, bytes]
    env: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"HostSecret({len(self.payloads)} ranks)"


def decode_payload(data: bytes) -> RankPayload:
    """A payload from its bytes. Raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(data, type=RankPayload)


def encode_host_secret(payloads: Mapping[int, RankPayload], env: Mapping[str, str]) -> bytes:
    """What goes into `HostLaunch.secret`."""
    encoded = {rank: msgspec.msgpack.encode(payload) for rank, payload in payloads.items()}
    return msgspec.msgpack.encode(HostSecret(payloads=encoded, env=dict(env)))


def reborn(secret: bytes, rank: int, incarnation: int, keys: KeyPair) -> bytes:
    """Of an encoded HostSecret what another process of one of its ranks is told: the same, with keys of its own."""
    host = decode_host_secret(secret)
    payload = msgspec.structs.replace(decode_payload(host.payloads[rank]), incarnation=incarnation, keys=keys)
    return encode_host_secret({rank: payload}, host.env)


def decode_host_secret(data: bytes) -> HostSecret:
    """The agent's side of `encode_host_secret`. Raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(data, type=HostSecret)
