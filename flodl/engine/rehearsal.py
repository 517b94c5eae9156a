"""A rehearsal of the data plane: the job's own ranks start, form one group, and average a megabyte a few times.

Both sides: `main` is what each rank does instead of training, `rehearse` is the controller's. Nothing is built, no data
is read, and nothing is written.
"""

from __future__ import annotations

import os
import secrets
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from flodl.decide.roster import Place, resolve_mode
from flodl.engine.errands import ending
from flodl.engine.keys import make_keys
from flodl.engine.launches import launches, told
from flodl.engine.payload import RankPayload, decode_host_secret, decode_payload, encode_host_secret
from flodl.engine.server import LinkServer, Listen
from flodl.errors import FlodlError
from flodl.ports import FanOut, Fleet, HostLaunch, HostNotice, UploadSink
from flodl.spec.job import JobSpec

__all__ = ["ENTRY", "Rehearsed", "main", "rehearse"]

ENTRY = "flodl.engine.rehearsal:main"
LIMIT_SECONDS = 30.0
POLL_SECONDS = 0.2
ROUNDS = 7
WARM_ROUNDS = 2
NUM_FLOATS = 1 << 18  # 1 MiB
GENERATION = 1
MARK = "flodl-rehearsal "
KEPT_LINES = 5


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """ms: the median round, by its slowest rank. trouble: why there is none."""

    backend: str
    num_bytes: int = NUM_FLOATS * 4
    ms: float = 0.0
    trouble: str = ""


# ------------------------------------------------------------------------------------------------------------- a rank


def main(payload: RankPayload) -> NoReturn:
    """Be one rank; ends the process."""
    from flodl.engine.link import RankLink  # late, with torch: the controller loads neither
    from flodl.engine.worker import surroundings

    place = surroundings(payload)
    link = RankLink.dial(payload)
    times = _averaged(payload, link, str(place.device))
    sys.stdout.write(f"{MARK}{msgspec.json.encode(times).decode()}\n")
    sys.stdout.flush()
    link.close()
    os._exit(0)  # threads of a group would hold up an orderly exit


def _averaged(payload: RankPayload, link, device: str) -> list[float]:
    """Milliseconds of each round after the first ones. Raises FlodlError where a sum is not what it has to be."""
    import torch

    from flodl.engine.groups import GroupAverager, gloo_group, nccl_group

    backend = payload.job.elche.resolved(resolve_mode(payload.world)).backend
    by_nccl = backend == "nccl"
    group = nccl_group(LIMIT_SECONDS) if by_nccl else gloo_group(payload.interface or "127.0.0.1", LIMIT_SECONDS)
    averager = GroupAverager(payload.rank, link.store, group)
    ranks = [place.rank for place in payload.world]
    averager.form(GENERATION, ranks)
    vector = torch.empty(NUM_FLOATS, device=device if by_nccl else "cpu")
    expected = float(sum(rank + 1 for rank in ranks))
    times: list[float] = []
    for number in range(WARM_ROUNDS + ROUNDS):
        vector.fill_(payload.rank + 1)
        if by_nccl:
            torch.cuda.synchronize()
        begun = time.perf_counter()
        averager.combine(GENERATION, number, [vector])
        times.append((time.perf_counter() - begun) * 1000)
        if not torch.all(vector == expected):
            raise FlodlError(f"the sum over {backend} is wrong: {vector.unique()[:4].tolist()}, not {expected:g}")
    return times[WARM_ROUNDS:]


# --------------------------------------------------------------------------------------------------- the controller


def rehearse(job: JobSpec, places: Sequence[Place], fleet: Fleet, threads: Mapping[str, int]) -> Rehearsed:
    """Have these ranks average a megabyte. Hosts were met. Raises NotReady where they do not start."""
    backend = job.elche.resolved(resolve_mode(places)).backend
    controller, run_id = job.cluster.controller, f"rehearsal-{secrets.token_hex(4)}"
    keys = make_keys(place.rank for place in places)
    listen = Listen(controller.bind or controller.host, controller.port, run_id, keys)
    server = LinkServer.bind(listen, on_event=lambda event: None, open_upload=_refused)
    fan_out = fleet.fan_out()
    try:
        hosts = launches(
            job, places, run_id=run_id, keys=keys, endpoints=told(controller, server.endpoints), threads=threads
        )
        fan_out.start([_rehearsing(host) for host in hosts])
        return _heard(fan_out, places, backend)
    finally:
        fan_out.close(0.0)
        server.close()


def _rehearsing(host: HostLaunch) -> HostLaunch:
    """The same ranks with another entry."""
    secret = decode_host_secret(host.secret)
    payloads = {
        rank: msgspec.structs.replace(decode_payload(data), entry=ENTRY) for rank, data in secret.payloads.items()
    }
    return msgspec.structs.replace(host, secret=encode_host_secret(payloads, secret.env))


def _heard(fan_out: FanOut, places: Sequence[Place], backend: str) -> Rehearsed:
    """What the ranks tell, within the limit."""
    hearing = _Hearing({place.rank: place for place in places})
    end = time.monotonic() + LIMIT_SECONDS
    while not hearing.is_over and time.monotonic() < end:
        for notice in fan_out.poll(POLL_SECONDS):
            hearing.hear(notice)
    trouble = hearing.trouble()
    if trouble:
        return Rehearsed(backend=backend, trouble=f"the all-reduce over {backend} failed: {trouble}")
    slowest = [max(times) for times in zip(*hearing.times.values(), strict=True)]
    return Rehearsed(backend=backend, ms=statistics.median(slowest))


class _Hearing:
    """What was heard of each rank."""

    def __init__(self, places: Mapping[int, Place]) -> None:
        self.times: dict[int, list[float]] = {}
        self._places = places
        self._failed: dict[int, str] = {}
        self._lines: dict[int, list[str]] = {}

    @property
    def is_over(self) -> bool:
        """All have told, or one cannot any more."""
        return bool(self._failed) or self.times.keys() >= self._places.keys()

    def hear(self, notice: HostNotice) -> None:
        rank = notice.rank
        if notice.kind == "line" and notice.text.startswith(MARK):
            self.times[rank] = msgspec.json.decode(notice.text.removeprefix(MARK), type=list[float])
        elif notice.kind == "line":
            self._lines.setdefault(rank, []).append(notice.text)
        elif notice.kind == "exit" and rank not in self.times:
            self._failed.setdefault(rank, ending(notice.code))
        elif notice.kind == "gone":
            for mine in (place.rank for place in self._places.values() if place.host == notice.host):
                self._failed.setdefault(mine, f"its host is lost: {notice.text}")

    def trouble(self) -> str:
        """ "" where every rank has told its times."""
        if not self._failed and self.times.keys() >= self._places.keys():
            return ""
        missing = sorted(self._places.keys() - self.times.keys())
        told = {rank: self._failed.get(rank, f"has no sum after {LIMIT_SECONDS:g} s") for rank in missing}
        first = next(iter(self._failed), missing[0])
        names = "; ".join(
            f"{self._name(rank)} {how}" for rank, how in told.items() if rank in self._failed or not self._failed
        )
        return names + "".join(f"\n  | {line}" for line in self._lines.get(first, [])[-KEPT_LINES:])

    def _name(self, rank: int) -> str:
        place = self._places[rank]
        return f"rank {rank} ({place.device} of {place.host})"


def _refused(rank: int, name: str) -> UploadSink:
    raise FlodlError(f"rank {rank} wants to store {name}: a rehearsal stores nothing")
