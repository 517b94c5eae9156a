"""What travels between a rank and the controller: msgpack, strictly typed, never pickle.

A frame is (run id, message). A frame of another run, of an unknown type or with an unknown field is dropped and
counted by the receiver; it never raises there. Beside the coordinator's events and commands the control socket
carries the link's own few messages: a greeting, heartbeats, and the questions of the rank's Store. The bulk socket
carries uploads: a header frame, and for parts a second frame with the bytes.
"""

from __future__ import annotations

import math
from typing import Literal, TypeVar

import msgspec

from flodl.decide.messages import (
    Average,
    AveragingDone,
    BundleKept,
    Cut,
    Finish,
    FormGroup,
    Goodbye,
    GroupFormed,
    RankFailed,
    RankReady,
    RunWindow,
    WindowDone,
)

__all__ = [
    "BULK_LIMIT_BYTES",
    "CONTROL_LIMIT_BYTES",
    "PART_BYTES",
    "Answer",
    "Ask",
    "Beat",
    "BulkDown",
    "BulkUp",
    "Credit",
    "Down",
    "Evicted",
    "Hello",
    "Offer",
    "Part",
    "Piece",
    "Pulse",
    "RankCommand",
    "RankEvent",
    "StoreOp",
    "Stored",
    "Up",
    "Want",
    "Welcome",
    "Whole",
    "bulk_down",
    "bulk_up",
    "down",
    "encode",
    "nonfinite_field",
    "up",
]

CONTROL_LIMIT_BYTES = 4 << 20  # a window of a thousand ranks is far below; a stranger's gigabyte is not
PART_BYTES = 1 << 20
BULK_LIMIT_BYTES = PART_BYTES + 4096

StoreOp = Literal["ping", "set", "get", "wait", "add", "append", "compare_set", "delete", "check", "num_keys"]
RankEvent = RankReady | GroupFormed | WindowDone | AveragingDone | Goodbye | RankFailed | BundleKept
RankCommand = FormGroup | RunWindow | Average | Cut | Finish

_T = TypeVar("_T")


class _Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Frozen and strict; defaults are left out on the wire."""


# -------------------------------------------------------------------------------------------- rank to controller


class Hello(_Message, frozen=True, kw_only=True, tag=True):
    """The first frame of a connection. Who it is, its key has already said."""

    pid: int = 0


class Beat(_Message, frozen=True, kw_only=True, tag=True):
    """A sign of life. progress: counted by the training loop itself, so that a thread alone proves nothing."""

    progress: int
    activity: str = ""


class Ask(_Message, frozen=True, kw_only=True, tag=True):
    """A question to the run's key-value store; `ping` asks nothing and shows that all earlier frames were read."""

    id: int
    op: StoreOp
    keys: tuple[str, ...] = ()
    value: bytes = b""
    expected: bytes = b""
    amount: int = 0
    timeout_ms: int = 0


# -------------------------------------------------------------------------------------------- controller to rank


class Welcome(_Message, frozen=True, kw_only=True, tag=True):
    """The answer to `Hello`."""


class Pulse(_Message, frozen=True, kw_only=True, tag=True):
    """The controller lives, and hears this rank's connection."""


class Evicted(_Message, frozen=True, kw_only=True, tag=True):
    """This rank was declared dead: whatever it says is not heard any more. It ends itself."""


class Answer(_Message, frozen=True, kw_only=True, tag=True):
    """The answer to an `Ask`. error: why there is none, "" where there is."""

    id: int
    value: bytes = b""
    number: int = 0
    error: str = ""


# ---------------------------------------------------------------------------------------------------------- bulk


class Offer(_Message, frozen=True, kw_only=True, tag=True):
    """An upload begins. size: of the whole, in bytes; -1 where it is not known beforehand."""

    name: str
    size: int = -1


class Part(_Message, frozen=True, kw_only=True, tag=True):
    """The next bytes are in the frame beside this header."""


class Whole(_Message, frozen=True, kw_only=True, tag=True):
    """All parts are sent. sha256: hex digest over them."""

    sha256: str


class Want(_Message, frozen=True, kw_only=True, tag=True):
    """A rank asks for bytes of what the run goes on from."""

    name: str
    offset: int


class Piece(_Message, frozen=True, kw_only=True, tag=True):
    """The answer to `Want`; the bytes are in the frame beside this header. total: size of the whole."""

    offset: int
    total: int = 0
    error: str = ""


class Credit(_Message, frozen=True, kw_only=True, tag=True):
    """So many bytes are on the controller's side; the sender keeps a bounded part in flight."""

    received: int


class Stored(_Message, frozen=True, kw_only=True, tag=True):
    """The upload is whole and in place, or it is not and `error` says why."""

    error: str = ""


class Up(msgspec.Struct, frozen=True, array_like=True):
    """A frame of a rank."""

    run: str
    message: (
        RankReady | GroupFormed | WindowDone | AveragingDone | Goodbye | RankFailed | BundleKept | Hello | Beat | Ask
    )


class Down(msgspec.Struct, frozen=True, array_like=True):
    """A frame of the controller."""

    run: str
    message: FormGroup | RunWindow | Average | Cut | Finish | Welcome | Pulse | Evicted | Answer


class BulkUp(msgspec.Struct, frozen=True, array_like=True):
    """A header of a rank on the bulk socket."""

    run: str
    message: Offer | Part | Whole | Want


class BulkDown(msgspec.Struct, frozen=True, array_like=True):
    """A header of the controller on the bulk socket."""

    run: str
    message: Credit | Stored | Piece


_encoder = msgspec.msgpack.Encoder()
_up = msgspec.msgpack.Decoder(Up)
_down = msgspec.msgpack.Decoder(Down)
_bulk_up = msgspec.msgpack.Decoder(BulkUp)
_bulk_down = msgspec.msgpack.Decoder(BulkDown)


def encode(frame: Up | Down | BulkUp | BulkDown) -> bytes:
    """The frame's bytes."""
    return _encoder.encode(frame)


def up(data: bytes, run: str) -> Up | None:
    """A rank's frame, or None where it is malformed or of another run."""
    return _strict(_up, data, run)


def down(data: bytes, run: str) -> Down | None:
    """A frame of the controller, or None."""
    return _strict(_down, data, run)


def bulk_up(data: bytes, run: str) -> BulkUp | None:
    """A rank's bulk header, or None."""
    return _strict(_bulk_up, data, run)


def bulk_down(data: bytes, run: str) -> BulkDown | None:
    """A bulk header of the controller, or None."""
    return _strict(_bulk_down, data, run)


def nonfinite_field(message: msgspec.Struct) -> str:
    """The name of the first field that holds NaN or an infinity, "" where all are finite (JSON has neither)."""
    for name in message.__struct_fields__:
        if not _finite(getattr(message, name)):
            return name
    return ""


def _finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(_finite(item) for item in value.values())
    if isinstance(value, tuple):
        return all(_finite(item) for item in value)
    return not isinstance(value, msgspec.Struct) or not nonfinite_field(value)


def _strict(decoder: msgspec.msgpack.Decoder[_T], data: bytes, run: str) -> _T | None:
    try:
        frame = decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return frame if frame.run == run else None  # type: ignore[attr-defined]
