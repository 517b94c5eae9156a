"""The controller's side of the link: two sockets, who may use them, and where a rank is.

Both sockets speak CURVE and ask a ZAP handler about every key: only the public keys of this run's ranks are let in
(without a handler any key is). Who sent a frame is told by the key it came with, never by its routing id; a rank that
is started again has other keys, and nothing that comes with the old ones is heard any more. Both bind to one named
address. Bulk transfers have a socket and a thread of their own, so that no heartbeat queues behind them.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket as sockets
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

from flodl.decide.timeouts import Timeouts
from flodl.decide.vigil import Sighting
from flodl.engine import protocol
from flodl.engine.keys import KeyPair, RunKeys, make_pair
from flodl.engine.keyvalue import KeyValue, Reply
from flodl.engine.port_holder import holder_of
from flodl.engine.protocol import Ask, Beat, Down, Evicted, Hello, Pulse, RankCommand, RankEvent, Welcome
from flodl.engine.receiving import Receiving
from flodl.engine.serving import ReadPart, Serving
from flodl.engine.strangers import Strangers
from flodl.engine.wire import Frames, SharedSocket
from flodl.errors import ConfigError, NotReady, Problem
from flodl.ports import UploadSink

__all__ = ["Endpoints", "LinkServer", "Listen"]

ZAP_DOMAIN = "flodl"
HANDSHAKE_MS = 3000
BACKLOG = 1024


class Endpoints(NamedTuple):
    """Where ranks dial; tcp://address:port."""

    control: str
    bulk: str


class _Who(NamedTuple):
    """A process: a rank, and which of its processes (0: the first)."""

    rank: int
    incarnation: int


class Listen(NamedTuple):
    """Where a run's server listens, and for whom. port: control, bulk is the next number; 0: two free ones.

    limits: how often ranks are told that the controller lives, and what the world above makes of their silence.
    """

    address: str
    port: int
    run_id: str
    keys: RunKeys
    limits: Timeouts = Timeouts()


class LinkServer:
    """Made by `bind`. on_event(event) runs in the reading thread and must not block."""

    def __init__(
        self,
        listen: Listen,
        context: zmq.Context[zmq.Socket[bytes]],
        on_event: Callable[[RankEvent], None],
        open_upload: Callable[[int, str], UploadSink],
        read: ReadPart | None = None,
    ) -> None:
        self.endpoints = Endpoints("", "")
        self._run_id = listen.run_id
        self._context = context
        self._on_event = on_event
        self._gate = _Gate(context, listen.keys)
        self._values = KeyValue()
        self._values_lock = threading.Lock()
        self._routes: dict[int, bytes] = {}
        self._owed: dict[int, list[bytes]] = {}
        self._routes_lock = threading.Lock()
        self._sightings: dict[int, Sighting] = {}
        self._evicted: set[int] = set()
        self._incarnations: dict[int, int] = {}  # of ranks that were started again
        self._beat_seconds = listen.limits.heartbeat
        self._dropped = 0
        self._strangers = Strangers()
        self._unheard: set[_Who] = set()
        self._receiving = Receiving(listen.run_id, open_upload)
        self._serving = Serving(listen.run_id, read)
        self._wires: list[SharedSocket] = []

    @classmethod
    def bind(
        cls,
        listen: Listen,
        *,
        on_event: Callable[[RankEvent], None],
        open_upload: Callable[[int, str], UploadSink],
        read: ReadPart | None = None,
    ) -> LinkServer:
        """Begin to listen. read: of what ranks may ask for, None: nothing.

        Raises ConfigError: a wildcard address; NotReady: an address that is not this machine's, a busy port (naming
        its holder).
        """
        numeric = _numeric(listen.address)
        server = cls(listen, zmq.Context(1), on_event, open_upload, read)
        server._gate.start()
        try:
            server._listen(numeric, listen.port, listen.keys.server)
        except BaseException:
            server.close()
            raise
        return server

    def send(self, rank: int, command: RankCommand) -> None:
        """Send an order. What cannot be delivered now is delivered when the rank is next heard. Never blocks."""
        self._deliver(rank, protocol.encode(Down(self._run_id, command)))

    def evict(self, rank: int) -> None:
        """From now on nothing that this rank says is heard; where it still speaks it is told to end itself."""
        if rank not in self._sightings:
            self._unheard.add(_Who(rank, self._incarnations.get(rank, 0)))
        self._evicted.add(rank)
        with self._routes_lock:
            self._owed.pop(rank, None)
            route = self._routes.get(rank)
        self._dismiss(route)

    def readmit(self, rank: int, incarnation: int) -> KeyPair:
        """Another process of this rank is about to come: its keys. Whatever its earlier ones say is not heard."""
        pair = make_pair()
        self._incarnations[rank] = incarnation
        with self._routes_lock:
            self._routes.pop(rank, None)
            self._owed.pop(rank, None)
        self._sightings.pop(rank, None)
        self._gate.admit(pair, _Who(rank, incarnation))
        self._evicted.discard(rank)
        return pair

    def forget_generation(self, generation: int) -> None:
        """Drop a generation's rendezvous keys; whoever still waits for one is told so."""
        with self._values_lock:
            replies = self._values.forget(f"g{generation}/")
        self._reply(replies)

    def sightings(self) -> dict[int, Sighting]:
        """By rank, for those that were heard."""
        return dict(self._sightings)

    @property
    def dropped_frames(self) -> int:
        """Malformed frames from holders of a key."""
        return self._dropped + self._receiving.dropped

    def strangers(self) -> int:
        """Connections whose handshake came to nothing: another program, no key, a key of another run. One caller.

        A rank's own process may have been ended in its handshake: one for each that was never heard is no stranger's.
        """
        return max(0, self._strangers.count() - len(self._unheard))

    def close(self) -> None:
        """Close sockets and threads. Idempotent."""
        for wire in self._wires:
            wire.close(linger_ms=200)
        self._wires.clear()
        self._receiving.close()
        self._gate.stop()
        self._context.destroy(linger=200)

    # --------------------------------------------------------------------------------------------- to be in place

    def _listen(self, numeric: str, port: int, pair: KeyPair) -> None:
        control = _router(self._context, pair, protocol.CONTROL_LIMIT_BYTES)
        bulk = _router(self._context, pair, protocol.BULK_LIMIT_BYTES)
        self._strangers.watch((control, bulk))
        first = _bind(control, numeric, port)
        second = _bind(bulk, numeric, port + 1 if port else 0)
        self.endpoints = Endpoints(first, second)
        self._wires = [
            SharedSocket(control, self._hear, self._tick, tick_seconds=self._beat_seconds),
            SharedSocket(bulk, self._hear_bulk, self._tick_bulk, tick_seconds=self._beat_seconds),
        ]
        for wire in self._wires:
            wire.start()

    # ------------------------------------------------------------------------------------- the reading threads'

    def _hear(self, frames: Frames) -> None:
        who = _who(frames)
        frame = protocol.up(frames[1].bytes, self._run_id) if who is not None and len(frames) == 2 else None
        if who is None or frame is None:
            self._dropped += 1
            return
        if self._is_evicted(who):
            self._dismiss(frames[0].bytes)
            return
        rank = who.rank
        self._learn_route(rank, frames[0].bytes)
        message, now = frame.message, time.monotonic()
        if isinstance(message, Beat):
            self._sightings[rank] = Sighting(now, message.progress, message.activity)
            return
        self._sightings[rank] = msgspec.structs.replace(self._sightings.get(rank, Sighting(now)), at=now)
        if isinstance(message, Ask):
            with self._values_lock:
                replies = self._values.ask(who, message, now)
            self._reply(replies)
        elif isinstance(message, Hello):
            self._deliver(rank, protocol.encode(Down(self._run_id, Welcome())))
        elif message.rank != rank or protocol.nonfinite_field(message):
            self._dropped += 1
        else:
            self._on_event(message)

    def _hear_bulk(self, frames: Frames) -> None:
        who = _who(frames)
        if who is None or len(frames) not in (2, 3):
            self._dropped += 1
            return
        route = frames[0].bytes
        served = self._serving.answer(frames[1].bytes) if len(frames) == 2 else None
        if served is not None:
            header = protocol.encode(protocol.BulkDown(self._run_id, served[0]))
            with contextlib.suppress(zmq.ZMQError):
                self._wires[1].send((route, header, served[1]))
            return
        if self._is_evicted(who):
            answer = self._receiving.refuse(route, "this rank was declared dead: nothing of it is stored")
        else:
            answer = self._receiving.hear(route, who, [frame.buffer for frame in frames[1:]])
        if answer is not None:
            with contextlib.suppress(zmq.ZMQError):
                self._wires[1].send((route, protocol.encode(protocol.BulkDown(self._run_id, answer))))

    def _tick(self) -> None:
        with self._values_lock:
            replies = self._values.expire(time.monotonic())
        self._reply(replies)
        pulse = protocol.encode(Down(self._run_id, Pulse()))
        for rank, route in list(self._routes.items()):
            if rank not in self._evicted:
                self._try(route, pulse)

    def _tick_bulk(self) -> None:
        self._receiving.drop(self._is_evicted)

    def _is_evicted(self, who: tuple[int, int]) -> bool:
        """Declared dead, or replaced."""
        rank, incarnation = who
        return rank in self._evicted or incarnation != self._incarnations.get(rank, 0)

    def _learn_route(self, rank: int, route: bytes) -> None:
        if self._routes.get(rank) == route:
            return
        with self._routes_lock:
            self._routes[rank] = route
            owed = self._owed.pop(rank, [])
        for data in owed:
            self._deliver(rank, data)

    # ------------------------------------------------------------------------------------------------- delivery

    def _reply(self, replies: list[Reply]) -> None:
        for reply in replies:
            assert isinstance(reply.to, _Who)
            if not self._is_evicted(reply.to):
                self._deliver(reply.to.rank, protocol.encode(Down(self._run_id, reply.answer)))

    def _dismiss(self, route: bytes | None) -> None:
        if route is not None:
            self._try(route, protocol.encode(Down(self._run_id, Evicted())))

    def _try(self, route: bytes, data: bytes) -> None:
        """What may be lost: it is said again, or whoever it is for is gone."""
        with self._routes_lock, contextlib.suppress(zmq.ZMQError, IndexError):
            self._wires[0].send((route, data))

    def _deliver(self, rank: int, data: bytes) -> None:
        with self._routes_lock:  # also keeps the order of one rank's messages
            route = self._routes.get(rank)
            try:
                if route is not None and self._wires:
                    self._wires[0].send((route, data))
                    return
            except zmq.ZMQError:
                del self._routes[rank]  # the connection is gone: the next frame of the rank tells the new one
            self._owed.setdefault(rank, []).append(data)


class _Gate(ThreadAuthenticator):
    """Lets in the run's own keys and names their rank."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: RunKeys) -> None:
        super().__init__(context)
        self._known = {key: _Who(rank, 0) for key, rank in keys.ranks_by_public_key().items()}
        self.configure_curve_callback(ZAP_DOMAIN, self)

    def admit(self, pair: KeyPair, who: _Who) -> None:
        """One more key."""
        self._known[pair.public.decode("ascii")] = who

    def callback(self, domain: str, key: bytes) -> bool:
        """True for a key of this run; key: Z85."""
        return domain == ZAP_DOMAIN and key.decode("ascii") in self._known

    def curve_user_id(self, client_public_key: bytes) -> str:
        """As "rank.incarnation"; client_public_key: 32 bytes."""
        who = self._known[z85.encode(client_public_key).decode("ascii")]
        return f"{who.rank}.{who.incarnation}"


def _who(frames: Frames) -> _Who | None:
    try:
        rank, _, incarnation = str(frames[0].get("User-Id")).partition(".")
        return _Who(int(rank), int(incarnation))
    except (zmq.ZMQError, ValueError):
        return None


def _router(context: zmq.Context[zmq.Socket[bytes]], pair: KeyPair, limit_bytes: int) -> zmq.Socket[bytes]:
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.CURVE_SERVER, 1)
    router.setsockopt(zmq.CURVE_PUBLICKEY, pair.public)
    router.setsockopt(zmq.CURVE_SECRETKEY, pair.secret)
    router.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN.encode("ascii"))
    router.setsockopt(zmq.MAXMSGSIZE, limit_bytes)
    router.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    router.setsockopt(zmq.BACKLOG, BACKLOG)
    router.setsockopt(zmq.LINGER, 200)
    return router


def _numeric(address: str) -> str:
    """The numeric form of an address. Raises ConfigError for a wildcard, NotReady for one that is unknown."""
    try:
        found = sockets.getaddrinfo(address, None, type=sockets.SOCK_STREAM)
    except OSError as error:
        raise NotReady(f"cluster.controller.host={address}: no such address ({error})") from None
    numeric = str(found[0][4][0])
    if not address or ipaddress.ip_address(numeric.partition("%")[0]).is_unspecified:
        raise ConfigError(
            [
                Problem(
                    key="cluster.controller.bind",
                    value=address,
                    constraint="listens on every interface",
                    remedy="name one address of this machine",
                )
            ]
        )
    return numeric


def _bind(router: zmq.Socket[bytes], numeric: str, port: int) -> str:
    place = f"[{numeric}]" if ":" in numeric else numeric
    if ":" in numeric:
        router.setsockopt(zmq.IPV6, 1)
    try:
        router.bind(f"tcp://{place}:{port or '*'}")
    except zmq.ZMQError as error:
        if error.errno == zmq.EADDRINUSE:
            raise NotReady(
                f"cluster.controller.port={port}: in use by {holder_of(port)}; free it, choose another, or use 0"
            ) from None
        raise NotReady(f"cluster.controller.bind={numeric}: cannot listen there on port {port}: {error}") from None
    return router.getsockopt(zmq.LAST_ENDPOINT).decode("ascii").rstrip("\0")  # type: ignore[union-attr]
