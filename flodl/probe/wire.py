"""The program that tries the network from a host: it listens on one address and dials what it is told to.

    python -P -m flodl.probe.wire

First line in: `Listen`; out: `Listening`. Every further line in: `Dial`; out: `Dialled`. It ends with its input.
Nobody is served without the token of this probe, and only from the addresses of the job's hosts.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import socket
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec

__all__ = ["Dial", "Dialled", "Listen", "Listening", "Outcome", "Target", "dial", "listener", "main"]

DIAL_SECONDS = 3.0
PEER_SECONDS = 10.0
ECHOES = 5
CHUNK_BYTES = 256 << 10
AT_ONCE = 32
TOKEN_BYTES = 32
ECHO, SINK = b"e", b"s"
_COUNT = struct.Struct("!Q")
_WORDS = {
    errno.ECONNREFUSED: "refused: nobody listens there, or a firewall rejects it",
    errno.EHOSTUNREACH: "no route to it",
    errno.ENETUNREACH: "no route to it",
    errno.EADDRNOTAVAIL: "the address to dial from is not there any more",
}


class Listen(msgspec.Struct, frozen=True, kw_only=True):
    """address: where to listen ("": nowhere), and where to dial other hosts from. peers: addresses that are served."""

    address: str = ""
    token: str = ""
    peers: tuple[str, ...] = ()


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """port 0: nowhere, trouble says why."""

    port: int = 0
    trouble: str = ""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """name: what the answer calls it. is_host: another host's wire, which echoes; else connecting is all."""

    name: str
    address: str
    port: int
    is_host: bool = False


class Dial(msgspec.Struct, frozen=True, kw_only=True):
    """Dial all of these at once. send_seconds: for so long, bytes are sent to each that is a host."""

    targets: tuple[Target, ...]
    send_seconds: float = 0.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one target. trouble "": it was reached. bytes_per_second: as the other side has counted."""

    name: str
    trouble: str = ""
    latency_ms: float = 0.0
    bytes_per_second: float = 0.0


class Dialled(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the targets."""

    outcomes: tuple[Outcome, ...]


# ---------------------------------------------------------------------------------------------------- being dialled


def listener(order: Listen) -> socket.socket:
    """Listen on a port that the kernel chooses, and serve in the background. Raises OSError."""
    family = socket.AF_INET6 if ":" in order.address else socket.AF_INET
    listening = socket.create_server((order.address, 0), family=family, backlog=128)
    threading.Thread(target=_accept, args=(listening, order), daemon=True).start()
    return listening


def _accept(listening: socket.socket, order: Listen) -> None:
    with contextlib.suppress(OSError):  # closed: over
        while True:
            peer, address = listening.accept()
            if address[0] in order.peers:
                threading.Thread(target=_serve, args=(peer, order.token), daemon=True).start()
            else:
                peer.close()


def _serve(peer: socket.socket, token: str) -> None:
    with peer, contextlib.suppress(OSError):
        peer.settimeout(PEER_SECONDS)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not hmac.compare_digest(_exactly(peer, TOKEN_BYTES), token.encode()):
            return
        if _exactly(peer, 1) == SINK:
            count = 0
            while data := peer.recv(CHUNK_BYTES):
                count += len(data)
            peer.sendall(_COUNT.pack(count))
        else:
            while data := peer.recv(1):
                peer.sendall(data)


# -------------------------------------------------------------------------------------------------------- dialling


def dial(target: Target, listen: Listen, send_seconds: float) -> Outcome:
    """Reach one target; never raises."""
    source = (listen.address, 0) if target.is_host and listen.address else None
    try:
        with socket.create_connection((target.address, target.port), DIAL_SECONDS, source_address=source) as peer:
            if not target.is_host:
                return Outcome(name=target.name)
            latency = _echoed(peer, listen.token)
        rate = _sent(target, listen, send_seconds) if send_seconds else 0.0
    except OSError as error:
        return Outcome(name=target.name, trouble=_words(error))
    return Outcome(name=target.name, latency_ms=latency * 1000, bytes_per_second=rate)


def _echoed(peer: socket.socket, token: str) -> float:
    """The quickest of some round trips, in seconds."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(token.encode() + ECHO)
    trips: list[float] = []
    for _ in range(ECHOES):
        begun = time.perf_counter()
        peer.sendall(b".")
        _exactly(peer, 1)
        trips.append(time.perf_counter() - begun)
    return min(trips)


def _sent(target: Target, listen: Listen, seconds: float) -> float:
    """Bytes per second that arrived."""
    data = os.urandom(CHUNK_BYTES)
    source = (listen.address, 0) if listen.address else None
    with socket.create_connection((target.address, target.port), DIAL_SECONDS, source_address=source) as peer:
        peer.settimeout(PEER_SECONDS + seconds)
        peer.sendall(listen.token.encode() + SINK)
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds:
            peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        (count,) = _COUNT.unpack(_exactly(peer, _COUNT.size))
        return count / (time.perf_counter() - begun)


def _exactly(peer: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = peer.recv(count - len(found))
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "it hangs up at once")
        found += data
    return found


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {DIAL_SECONDS:g} s: a firewall drops it?"
    return _WORDS.get(error.errno or 0, error.strerror or str(error))


def main() -> None:
    """Serve the controller's lines."""
    listen = msgspec.json.decode(sys.stdin.readline(), type=Listen)
    try:
        open_socket = listener(listen) if listen.address else None
        _say(Listening(port=open_socket.getsockname()[1] if open_socket else 0))
    except OSError as error:
        _say(Listening(trouble=error.strerror or str(error)))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for line in iter(sys.stdin.readline, ""):
            order = msgspec.json.decode(line, type=Dial)
            waits = [pool.submit(dial, target, listen, order.send_seconds) for target in order.targets]
            _say(Dialled(outcomes=tuple(wait.result() for wait in waits)))


def _say(word: Listening | Dialled) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(word) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
