"""What goes over an agent's standard input and output: JSON, one frame a line, after a random marker.

The streams may come from a local pipe or through SSH; nothing here knows. Whatever precedes the marker on standard
output is login noise. Bytes (secrets) travel as base64; they are for this channel only.

An agent serves one run after another. What belongs to a run carries its number, so that nothing of an old one is ever
taken for the next one's; what belongs to the host itself carries `NO_RUN`.
"""

from __future__ import annotations

import signal
from typing import Any

import msgspec

__all__ = [
    "NO_RUN",
    "Clear",
    "Cleared",
    "Drop",
    "Exited",
    "Facts",
    "Failed",
    "Give",
    "LineSplitter",
    "Order",
    "Ping",
    "Pong",
    "Ran",
    "Restart",
    "Run",
    "Said",
    "Signal",
    "Start",
    "Started",
    "Stop",
    "Told",
    "TorchFacts",
    "Warm",
    "Word",
    "decode_order",
    "decode_word",
    "encode_line",
    "ending",
]

LINE_LIMIT_BYTES = 64 << 20  # one frame; secrets of a big host are kilobytes
NO_RUN = 0


class _Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Strict."""


# ------------------------------------------------------------------------------------------- controller to agent


class Warm(_Frame, frozen=True, kw_only=True, tag=True):
    """Have a warm process like this: an equal one is kept, another one is replaced.

    env: of every rank. path: working folder ("": here). preload: modules.
    """

    env: dict[str, str] = {}
    path: str = ""
    preload: tuple[str, ...] = ()


class Start(_Frame, frozen=True, kw_only=True, tag=True):
    """Begin a run: fork these ranks. secret: an encoded HostSecret."""

    run: int
    ranks: tuple[int, ...]
    devices: tuple[str, ...]
    secret: bytes


class Restart(_Frame, frozen=True, kw_only=True, tag=True):
    """Fork a rank of the present run once more, as soon as its earlier process has ended. secret: as in `Start`."""

    run: int
    rank: int
    incarnation: int
    secret: bytes


class Signal(_Frame, frozen=True, kw_only=True, tag=True):
    """Signal one rank's process group."""

    run: int
    rank: int
    number: int


class Clear(_Frame, frozen=True, kw_only=True, tag=True):
    """End the ranks of this run (TERM, after the grace KILL), say `Cleared`, and stay."""

    run: int
    grace_seconds: float


class Run(_Frame, frozen=True, kw_only=True, tag=True):
    """Start a program: a module under flodl.probe, in the working folder. given: the first line of its input."""

    id: int
    module: str
    given: str = ""


class Give(_Frame, frozen=True, kw_only=True, tag=True):
    """One more line to a program's input; None: there are no more."""

    id: int
    line: str | None


class Drop(_Frame, frozen=True, kw_only=True, tag=True):
    """End a program now."""

    id: int


class Ping(_Frame, frozen=True, kw_only=True, tag=True):
    """Say `Pong`. limit_seconds: while a run is here, silence of the controller for so long is its loss; 0: never."""

    limit_seconds: float = 0.0


class Stop(_Frame, frozen=True, kw_only=True, tag=True):
    """End all ranks (TERM, after the grace KILL), then yourself."""

    grace_seconds: float


Order = Warm | Start | Restart | Signal | Clear | Run | Give | Drop | Ping | Stop

# ------------------------------------------------------------------------------------------- agent to controller


class Facts(_Frame, frozen=True, kw_only=True, tag=True):
    """What host this is."""

    facts: dict[str, Any]


class TorchFacts(_Frame, frozen=True, kw_only=True, tag=True):
    """The warm process is ready, and what torch it has loaded."""

    facts: dict[str, str]


class Pong(_Frame, frozen=True, kw_only=True, tag=True):
    """The answer to a ping."""


class Started(_Frame, frozen=True, kw_only=True, tag=True):
    """A rank lives. start_time: clock ticks since boot. incarnation: 0 for the run's first process of this rank."""

    run: int
    rank: int
    pid: int
    start_time: int
    incarnation: int = 0


class Said(_Frame, frozen=True, kw_only=True, tag=True):
    """A line of a rank's output (-1: of the host's own processes)."""

    run: int = NO_RUN
    rank: int
    text: str


class Exited(_Frame, frozen=True, kw_only=True, tag=True):
    """A rank has ended. code: its exit code, negative for a signal. incarnation: as in `Started`."""

    run: int
    rank: int
    code: int
    incarnation: int = 0


class Cleared(_Frame, frozen=True, kw_only=True, tag=True):
    """No rank of this run is left."""

    run: int


class Told(_Frame, frozen=True, kw_only=True, tag=True):
    """A line of a program's output."""

    id: int
    line: str


class Ran(_Frame, frozen=True, kw_only=True, tag=True):
    """A program has ended. errors: the last lines that it wrote to its standard error."""

    id: int
    code: int
    errors: tuple[str, ...] = ()


class Failed(_Frame, frozen=True, kw_only=True, tag=True):
    """The agent cannot do what it was told."""

    run: int = NO_RUN
    text: str


Word = Facts | TorchFacts | Pong | Started | Said | Exited | Cleared | Told | Ran | Failed

_orders = msgspec.json.Decoder(Order)
_words = msgspec.json.Decoder(Word)


def encode_line(frame: Order | Word) -> bytes:
    """The frame's line, with its newline."""
    return msgspec.json.encode(frame) + b"\n"


def decode_order(line: bytes) -> Order:
    """Raises msgspec.MsgspecError."""
    return _orders.decode(line)


def decode_word(line: bytes) -> Word:
    """Raises msgspec.MsgspecError."""
    return _words.decode(line)


def ending(code: int) -> str:
    """How a process ended, in words. code: its exit code, negative for a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


class LineSplitter:
    """Bytes in as they come, whole lines out. A line beyond `limit_bytes` comes in pieces of that size."""

    def __init__(self, limit_bytes: int = LINE_LIMIT_BYTES) -> None:
        self._rest = bytearray()
        self._limit = limit_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Lines that are whole now, without their newlines."""
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = bytes(self._rest) + whole[0]
            self._rest.clear()
        self._rest += rest
        lines = [piece for line in whole for piece in self._pieces(line)]
        while len(self._rest) > self._limit:
            lines.append(bytes(self._rest[: self._limit]))
            del self._rest[: self._limit]
        return lines

    def rest(self) -> list[bytes]:
        """What stands there without a newline at the end of the stream."""
        last = bytes(self._rest)
        self._rest.clear()
        return [last] if last else []

    def _pieces(self, line: bytes) -> list[bytes]:
        if len(line) <= self._limit:
            return [line]
        return [line[start : start + self._limit] for start in range(0, len(line), self._limit)]
