"""What goes over an agent's standard input and output: JSON, one frame a line, after a random marker.

The streams may come from a local pipe or through SSH; nothing here knows. Whatever precedes the marker on standard
output is login noise. Bytes (secrets) travel as base64; they are for this channel only.
"""

from __future__ import annotations

import signal
from typing import Any

import msgspec

__all__ = [
    "Exited",
    "Facts",
    "Failed",
    "LineSplitter",
    "Order",
    "Said",
    "Signal",
    "Start",
    "Started",
    "Stop",
    "TorchFacts",
    "Warm",
    "Word",
    "decode_order",
    "decode_word",
    "encode_line",
    "ending",
]

LINE_LIMIT_BYTES = 64 << 20  # one frame; secrets of a big host are kilobytes


class _Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Strict."""


# ------------------------------------------------------------------------------------------- controller to agent


class Warm(_Frame, frozen=True, kw_only=True, tag=True):
    """Start the warm process. env, threads: of every rank. path: working folder ("": here). preload: modules."""

    env: dict[str, str] = {}
    threads: int = 1
    path: str = ""
    preload: tuple[str, ...] = ()


class Start(_Frame, frozen=True, kw_only=True, tag=True):
    """Fork these ranks. secret: an encoded HostSecret."""

    ranks: tuple[int, ...]
    devices: tuple[str, ...]
    secret: bytes


class Signal(_Frame, frozen=True, kw_only=True, tag=True):
    """Signal one rank's process group."""

    rank: int
    number: int


class Stop(_Frame, frozen=True, kw_only=True, tag=True):
    """End all ranks (TERM, after the grace KILL), then yourself."""

    grace_seconds: float


Order = Warm | Start | Signal | Stop

# ------------------------------------------------------------------------------------------- agent to controller


class Facts(_Frame, frozen=True, kw_only=True, tag=True):
    """What host this is."""

    facts: dict[str, Any]


class TorchFacts(_Frame, frozen=True, kw_only=True, tag=True):
    """The warm process is ready, and what torch it has loaded."""

    facts: dict[str, str]


class Started(_Frame, frozen=True, kw_only=True, tag=True):
    """A rank lives. start_time: clock ticks since boot."""

    rank: int
    pid: int
    start_time: int


class Said(_Frame, frozen=True, kw_only=True, tag=True):
    """A line of a rank's output (-1: of the host's own processes)."""

    rank: int
    text: str


class Exited(_Frame, frozen=True, kw_only=True, tag=True):
    """A rank has ended. code: its exit code, negative for a signal."""

    rank: int
    code: int


class Failed(_Frame, frozen=True, kw_only=True, tag=True):
    """The agent cannot do what it was told."""

    text: str


Word = Facts | TorchFacts | Started | Said | Exited | Failed

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
