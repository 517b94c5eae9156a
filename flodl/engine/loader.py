"""Loader processes: they fetch whole batches ahead, and end with their rank.

Each is forked from the rank, so that the data set is shared, and has a few slots of memory that both see: a batch's
tensors travel there, everything else of it over a pipe. (torch's DataLoader hands a file descriptor over for every
tensor, which costs a rank on a busy host more than 2 ms per batch, and its queue of batches cannot be refilled at a
window's edge.) What goes to a process is tiny, so that nobody ever waits for the other to read.

A process ignores SIGTERM and SIGINT, which reach the whole group of a rank: the rank decides when it needs no data.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import multiprocessing
import os
import pickle
import signal
import traceback
import warnings
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

import torch
from torch import Tensor

from flodl.decide.messages import Range
from flodl.engine.lifeline import die_with_parent
from flodl.engine.reading import Reader
from flodl.errors import FlodlError

__all__ = ["Slot", "Workers"]

SLOT_BYTES = 256 << 20  # address space: what no batch touches takes no memory. A larger batch goes over the pipe
ALIGNMENT = 64
LEAVE_SECONDS = 5.0
IGNORED = (signal.SIGTERM, signal.SIGINT)

Pieces = tuple[Range, ...]


@dataclass(frozen=True)
class _Failure:
    """What reading raised, in words."""

    message: str
    trace: str


class Workers:
    """The loader processes of one rank, used from one thread. on_the_way: batches sent and not yet taken, in order."""

    def __init__(self, reader: Reader, num_workers: int, prefetch: int) -> None:
        self.on_the_way: deque[Pieces] = deque()
        self._reader = reader
        self._hands: deque[_Hand] = deque()  # who fetches what is on the way
        with _undisturbed():
            self._all = [_Hand(reader, prefetch) for _ in range(num_workers)]
        # An orderly exit would wait for them otherwise.
        self._end = Finalize(self, _end, args=(self._all,), exitpriority=100)

    @property
    def pids(self) -> tuple[int, ...]:
        """The numbers of the processes."""
        return tuple(hand.process.pid or 0 for hand in self._all)

    @property
    def has_room(self) -> bool:
        """Whether another batch may be sent."""
        return any(hand.has_room for hand in self._all)

    @property
    def is_ready(self) -> bool:
        """Whether the first batch on the way is there."""
        return bool(self._hands) and self._hands[0].is_ready

    def send(self, pieces: Pieces) -> None:
        """Have a batch fetched by whoever has the least to do."""
        hand = min(self._all, key=lambda one: one.waiting)
        hand.order(pieces)
        self._hands.append(hand)
        self.on_the_way.append(pieces)

    def take(self) -> Any:
        """The first batch on the way, in memory of this process alone. Raises FlodlError: what reading it raised."""
        inputs = self._answer(wanted=True)
        if isinstance(inputs, _Failure):
            error = FlodlError(inputs.message)
            error.add_note(f"in a loader process:\n{inputs.trace}")
            raise error
        return inputs

    def drop(self) -> None:
        """Wait for the first batch on the way, and forget it."""
        self._answer(wanted=False)

    def close(self) -> None:
        """End the processes."""
        self._end()

    def _answer(self, *, wanted: bool) -> Any:
        hand, pieces = self._hands.popleft(), self.on_the_way.popleft()
        try:
            return hand.answer(wanted)
        except (EOFError, OSError):
            raise FlodlError(
                f"{self._reader.name}: a loader process {hand.death()} while it read positions "
                f"{', '.join(f'{piece.start} to {piece.stop - 1}' for piece in pieces)} of epoch {pieces[0].epoch + 1}"
            ) from None


class Slot:
    """Memory that a rank and its loader process share, for one batch at a time."""

    def __init__(self, size_bytes: int = SLOT_BYTES) -> None:
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        self._memory = torch.frombuffer(mmap.mmap(-1, size_bytes, flags), dtype=torch.uint8)

    def pack(self, value: Any) -> bytes:
        """Put the value's tensors into the slot; returns the rest of it."""
        text = io.BytesIO()
        _Packer(text, self._memory).dump(value)
        return text.getvalue()

    def unpack(self, text: bytes) -> Any:
        """The value again; its tensors are copies, and the slot is free."""
        return _Unpacker(io.BytesIO(text), self._memory).load()


class _Packer(pickle.Pickler):
    """Plain dense tensors are written into the memory, one after the other; what else there is, is pickled."""

    def __init__(self, text: io.BytesIO, memory: Tensor) -> None:
        super().__init__(text, protocol=pickle.HIGHEST_PROTOCOL)
        self._memory = memory
        self._next = 0

    def persistent_id(self, obj: Any) -> tuple[int, torch.dtype, tuple[int, ...]] | None:
        if type(obj) is not Tensor or obj.layout is not torch.strided or obj.requires_grad or obj.is_quantized:
            return None
        if obj.device.type != "cpu" or self._next + obj.nbytes > len(self._memory):
            return None
        place = (self._next, obj.dtype, tuple(obj.shape))
        _view(self._memory, place).copy_(obj)
        self._next += -(-obj.nbytes // ALIGNMENT) * ALIGNMENT
        return place


class _Unpacker(pickle.Unpickler):
    def __init__(self, text: io.BytesIO, memory: Tensor) -> None:
        super().__init__(text)
        self._memory = memory

    def persistent_load(self, pid: tuple[int, torch.dtype, tuple[int, ...]]) -> Tensor:
        return _view(self._memory, pid).clone()


def _view(memory: Tensor, place: tuple[int, torch.dtype, tuple[int, ...]]) -> Tensor:
    start, dtype, shape = place
    size = dtype.itemsize
    for length in shape:
        size *= length
    return memory[start : start + size].view(dtype).view(shape)


class _Hand:
    """One loader process as its rank sees it. It answers in the order of its orders, which use its slots in turn."""

    def __init__(self, reader: Reader, prefetch: int) -> None:
        self.waiting = 0
        self._answered = 0
        self._slots = [Slot() for _ in range(prefetch)]
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        work = (os.getpid(), reader, theirs, self._slots)
        self.process: BaseProcess = context.Process(target=_serve, args=work, name="loader", daemon=True)
        self.process.start()
        theirs.close()  # now its death ends the pipe

    @property
    def has_room(self) -> bool:
        return self.waiting < len(self._slots)

    @property
    def is_ready(self) -> bool:
        return self._pipe.poll()

    def order(self, pieces: Pieces) -> None:
        self.waiting += 1
        with contextlib.suppress(OSError):  # it is dead: told when its answer is missed
            self._pipe.send([(piece.epoch, piece.start, piece.stop) for piece in pieces])

    def answer(self, wanted: bool) -> Any:
        text = self._pipe.recv_bytes()
        slot = self._slots[self._answered % len(self._slots)]
        self.waiting, self._answered = self.waiting - 1, self._answered + 1
        return slot.unpack(text) if wanted else None

    def death(self) -> str:
        """How it ended, in words."""
        self.process.join(LEAVE_SECONDS)
        code = self.process.exitcode
        if code is None:
            return "closed its pipe"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"

    def dismiss(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(None)

    def bury(self) -> None:
        self.process.join(LEAVE_SECONDS)
        if self.process.is_alive():  # it still reads
            self.process.kill()
            self.process.join()
        self._pipe.close()


def _end(hands: list[_Hand]) -> None:
    for hand in hands:
        hand.dismiss()
    for hand in hands:
        hand.bury()


@contextlib.contextmanager
def _undisturbed() -> Any:
    """Fork without a signal in between, which a process would not ignore yet, and without advice about threads."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# ---------------------------------------------------------------------------------------------- in the loader process


def _serve(rank_pid: int, reader: Reader, pipe: Connection, slots: list[Slot]) -> None:
    """Be a loader process until the rank says so or is gone."""
    die_with_parent(rank_pid)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
    torch.set_num_threads(1)
    answered = 0
    with contextlib.suppress(EOFError, OSError):
        while (order := pipe.recv()) is not None:
            pieces = [Range(*piece) for piece in order]
            pipe.send_bytes(_read(reader, pieces, slots[answered % len(slots)]))
            answered += 1


def _read(reader: Reader, pieces: list[Range], slot: Slot) -> bytes:
    try:
        return slot.pack(reader.batch(pieces))
    except FlodlError as error:
        return slot.pack(_Failure(str(error), traceback.format_exc()))
    except Exception as error:  # noqa: BLE001  what cannot be sent, memory that is not there
        told = f"{reader.name}: a batch cannot be handed over: {type(error).__name__}: {error}"
        return slot.pack(_Failure(told, traceback.format_exc()))
