"""Between hosts: can each reach the controller's two ports, and can each two reach one another, both ways?

gloo and NCCL connect ranks on ports that the kernel hands out, on the named interface: so that is what is tried, with
one connection per ordered pair. `measured` also tells how fast they are; that takes a second per pair.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec

from flodl.errors import HostUnready
from flodl.ports import Errand, Fleet
from flodl.probe.finding import Finding
from flodl.probe.here import is_here
from flodl.probe.report import HostReport
from flodl.probe.wire import DIAL_SECONDS, Dial, Dialled, Listen, Listening, Outcome, Target
from flodl.record.text import clean
from flodl.spec.cluster import HostSpec
from flodl.spec.job import JobSpec

__all__ = ["PairFigures", "measured", "reachable"]

ANSWER_SECONDS = 20.0
SEND_SECONDS = 0.5  # each way
PROGRAM = "flodl.probe.wire"
AGENT_GONE = "the host's agent is gone"


class PairFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The way from one host to another. latency_ms: one round trip of a byte."""

    source: str
    target: str
    latency_ms: float
    bytes_per_second: float


def reachable(
    job: JobSpec, fleet: Fleet, reports: Mapping[str, HostReport], endpoints: Sequence[str]
) -> tuple[Finding, ...]:
    """What cannot be reached. endpoints: the controller's, tcp://address:port, as hosts are told them."""
    hosts = [host for host in job.cluster.workers if host.host in reports]
    if all(is_here(host) for host in hosts) and len(hosts) < 2:
        return ()
    doors = [] if not endpoints else [_door(endpoint) for endpoint in endpoints]
    with _wires(fleet, hosts, reports) as wires:
        for name, wire in wires.items():
            wire.order(_targets(name, wires, doors), 0.0)
        found = {name: wire.outcomes(DIAL_SECONDS + ANSWER_SECONDS) for name, wire in wires.items()}
        troubles = [_told(name, wire) for name, wire in wires.items() if wire.trouble]
        lost = {name for name, wire in wires.items() if wire.trouble}  # why they are not reached is told
        found = {name: [o for o in outcomes if o.name not in lost] for name, outcomes in found.items()}
    return (*troubles, *_door_findings(job, found), *_pair_findings(job, found, reports))


def measured(job: JobSpec, fleet: Fleet, reports: Mapping[str, HostReport]) -> tuple[PairFigures, ...]:
    """Latency and bandwidth of every ordered pair that is reachable. Pairs that share no host run at the same time."""
    hosts = [host for host in job.cluster.workers if host.host in reports]
    figures: list[PairFigures] = []
    with _wires(fleet, hosts, reports) as wires:
        able = [name for name, wire in wires.items() if wire.port]
        for pairs in (_turned(pairs, way) for pairs in _rounds(able) for way in (False, True)):
            for source, target in pairs:
                wires[source].order([wires[target].as_target()], SEND_SECONDS)
            for source, _ in pairs:
                for outcome in wires[source].outcomes(ANSWER_SECONDS):
                    if not outcome.trouble:
                        figures.append(PairFigures(source=source, target=outcome.name, latency_ms=outcome.latency_ms,
                                                   bytes_per_second=outcome.bytes_per_second))  # fmt: skip
    return tuple(sorted(figures, key=lambda pair: (pair.source, pair.target)))


class _Wire:
    """The program on one host."""

    def __init__(self, host: HostSpec, address: str, errand: Errand | None, trouble: str = "") -> None:
        self.name = host.host
        self.address = address
        self.port = 0
        self.trouble = trouble
        self._errand = errand
        self._is_waited_for = False

    def listen(self) -> None:
        """Hear where it listens."""
        if self._errand is None:
            return
        line = self._errand.line(ANSWER_SECONDS)
        try:
            answer = msgspec.json.decode(line or "", type=Listening)
        except msgspec.MsgspecError:
            answer = Listening(trouble=_no_answer(line, self._errand))
        self.port, self.trouble = answer.port, answer.trouble

    def as_target(self) -> Target:
        return Target(name=self.name, address=self.address, port=self.port, is_host=True)

    def order(self, targets: Sequence[Target], send_seconds: float) -> None:
        self._is_waited_for = self._errand is not None and bool(targets)
        if self._errand is not None and targets:
            self._errand.give(msgspec.json.encode(Dial(targets=tuple(targets), send_seconds=send_seconds)).decode())

    def outcomes(self, timeout_seconds: float) -> tuple[Outcome, ...]:
        if self._errand is None or not self._is_waited_for:
            return ()
        line = self._errand.line(timeout_seconds)
        try:
            return msgspec.json.decode(line or "", type=Dialled).outcomes
        except msgspec.MsgspecError:
            self.trouble = _no_answer(line, self._errand)
            return ()

    def end(self) -> None:
        if self._errand is not None:
            self._errand.end()


def _no_answer(line: str | None, errand: Errand) -> str:
    if line is not None:
        return f"the program that tries it answers {line!r:.200}"
    code = errand.end()
    if code is None:
        return f"the program that tries it has not answered within {ANSWER_SECONDS:g} s"
    said = "; ".join(clean(line) for line in errand.errors()[-3:])
    what = AGENT_GONE if code < 0 else f"the program that tries it ended with {code}"
    return f"{what}: {said}" if said else what


@contextmanager
def _wires(fleet: Fleet, hosts: Sequence[HostSpec], reports: Mapping[str, HostReport]) -> Iterator[dict[str, _Wire]]:
    """A wire on each host, listening where its interface has an address."""
    token = secrets.token_hex(16)
    addresses = {host.host: _address(host, reports[host.host]) for host in hosts}
    peers = tuple(address for address in addresses.values() if address)
    wires: dict[str, _Wire] = {}
    try:
        for host in hosts:
            address = addresses[host.host]
            given = msgspec.json.encode(Listen(address=address, token=token, peers=peers)).decode()
            try:
                wires[host.host] = _Wire(host, address, fleet.run(host.host, PROGRAM, given))
            except HostUnready as error:
                wires[host.host] = _Wire(host, address, None, f"{AGENT_GONE}: {error.message}")
        for wire in wires.values():
            wire.listen()
        yield wires
    finally:
        with ThreadPoolExecutor(max(1, len(wires))) as pool:
            list(pool.map(_Wire.end, wires.values()))


def _address(host: HostSpec, report: HostReport) -> str:
    """Where its ranks listen for other hosts; "" where that is nowhere (which `judge` has told)."""
    named = (i.addresses for i in report.interfaces if i.name == host.nccl_socket_ifname)
    return next((addresses[0] for addresses in named if addresses), "")


def _targets(name: str, wires: Mapping[str, _Wire], doors: Sequence[Target]) -> list[Target]:
    others = [wire.as_target() for wire in wires.values() if wire.name != name and wire.port]
    return [*doors, *(others if wires[name].port else ())]


def _door(endpoint: str) -> Target:
    place, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return Target(name=f"port {port}", address=place.strip("[]"), port=int(port))


# -------------------------------------------------------------------------------------------------------- findings


def _told(name: str, wire: _Wire) -> Finding:
    message = f"its network cannot be tried: {wire.trouble}"
    remedy = "start again; task=probe tries it by itself"
    if AGENT_GONE in wire.trouble:
        remedy = "somebody or the kernel (no memory left? `dmesg` there) ended it, or the line was lost; start again"
    return Finding(severity="error", host=name, key="network", message=message, remedy=remedy)


def _door_findings(job: JobSpec, found: Mapping[str, Sequence[Outcome]]) -> Iterator[Finding]:
    controller = job.cluster.controller
    for host, outcomes in found.items():
        closed = [o for o in outcomes if o.trouble and o.name.startswith("port ")]
        if not closed:
            continue
        ports = " and ".join(outcome.name for outcome in closed)
        remedy = "let both TCP ports in on the controller's firewall, and out on this host's"
        if controller.port == 0:
            remedy += " (controller.port: a number keeps them the same from run to run)"
        if controller.host.startswith("127.") or controller.host == "localhost":
            remedy = (
                "controller.host must be this machine's address in the hosts' network: 127.0.0.1 is every host's own"
            )
        yield Finding(
            severity="error",
            host=host,
            key="cluster.controller.port",
            message=f"cannot reach the controller at {controller.host}, {ports}: {closed[0].trouble}",
            remedy=remedy,
        )


def _pair_findings(
    job: JobSpec, found: Mapping[str, Sequence[Outcome]], reports: Mapping[str, HostReport]
) -> Iterator[Finding]:
    """One finding for each host that explains the most failed pairs, until all are explained."""
    hosts = {host.host: host for host in job.cluster.workers}
    failed = {(name, o.name): o.trouble for name, outcomes in found.items() for o in outcomes if o.trouble}
    failed = {pair: trouble for pair, trouble in failed.items() if pair[1] in hosts}
    while failed:
        weight = Counter(dict.fromkeys(hosts, 0))
        for source, target in failed:
            weight.update({source: 10, target: 11})  # who is not reached is likelier to be the cause
        culprit = weight.most_common(1)[0][0]
        mine = {pair: trouble for pair, trouble in failed.items() if culprit in pair}
        yield _pair_finding(hosts[culprit], reports[culprit], mine)
        failed = {pair: trouble for pair, trouble in failed.items() if pair not in mine}


def _pair_finding(host: HostSpec, report: HostReport, pairs: Mapping[tuple[str, str], str]) -> Finding:
    name = host.host
    from_there = [source for source, target in pairs if target == name]
    to_there = [target for source, target in pairs if source == name]
    told = [f"cannot be reached from {', '.join(from_there)}"] if from_there else []
    told += [f"cannot reach {', '.join(to_there)}"] if to_there else []
    first, last = report.port_range
    return Finding(
        severity="error",
        host=name,
        key="firewall",
        message=f"{' and '.join(told)} over {host.nccl_socket_ifname}: {next(iter(pairs.values()))}",
        remedy=f"let TCP ports {first} to {last} through between the hosts, in the firewall of {name} on "
        f"{host.nccl_socket_ifname}: ranks connect on ports that the kernel chooses",
    )


# ------------------------------------------------------------------------------------------------------ tournament


def _rounds(names: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """Every pair once, in as few rounds as can be, each host at most once in a round."""
    seats: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        yield [(one, other) for one, other in pairs if one is not None and other is not None]
        seats = [seats[0], seats[-1], *seats[1:-1]]


def _turned(pairs: Sequence[tuple[str, str]], is_turned: bool) -> list[tuple[str, str]]:
    return [(b, a) if is_turned else (a, b) for a, b in pairs]
