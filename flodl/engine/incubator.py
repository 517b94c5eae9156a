"""The agent's side of its warm process: starts it, has it fork ranks, hears how they end, reads what they write."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from typing import Any, Protocol

from flodl.engine.errands import Warm
from flodl.engine.warming import Begin, Begun
from flodl.engine.watch import Output, Watch

__all__ = ["Incubator", "Parent"]

READ_BYTES = 65536
RANK_LINE_BYTES = 16384
HOST = -1


class Parent(Protocol):
    """Whom the incubator tells."""

    def is_warm(self, facts: dict[str, str]) -> None:
        """The warm process has loaded torch."""
        ...

    def is_born(self, rank: int, pid: int, start_time: int) -> None:
        """A rank lives."""
        ...

    def has_said(self, rank: int, text: str) -> None:
        """A line of a rank's (-1: the warm process's) output."""
        ...

    def has_ended(self, rank: int, code: int) -> None:
        """A rank is gone."""
        ...

    def is_cold(self, code: int) -> None:
        """The warm process has ended, and the kernel has killed its ranks."""
        ...


class Incubator:
    """At most one warm process and its ranks. alive: ranks that were asked for and have not ended."""

    def __init__(self, watch: Watch, parent: Parent, begin: Begin) -> None:
        self.alive: set[int] = set()
        self.is_ready = False
        self._watch = watch
        self._parent = parent
        self._order: Warm | None = None
        self._begin = begin
        self._process: Begun | None = None
        self._channel: socket.socket | None = None
        self._outputs: dict[int, list[Output]] = {}

    @property
    def has_process(self) -> bool:
        """Whether there is a warm process, ready or not yet."""
        return self._process is not None

    def warm_up(self, order: Warm) -> None:
        """Have a warm process like this one. Raises OSError where it cannot be started. Only while no rank lives."""
        if self._process is not None and order == self._order:
            return
        self.end()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        output_read, output_write = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = self._begin(order, theirs.fileno(), output_write)
        except OSError:
            ours.close()
            os.close(output_read)
            raise
        finally:
            theirs.close()
            os.close(output_write)
        self._order, self._channel = order, ours
        self._watch.reading(ours.fileno(), self._hear)
        self._read(HOST, output_read)

    def fork(self, rank: int, born: bytes) -> None:
        """Have a rank forked. born: what it is told; no other process of this host may read it."""
        assert self._channel is not None
        letter = os.memfd_create(f"rank{rank}")
        with os.fdopen(os.dup(letter), "wb") as file:
            file.write(born)
        os.lseek(letter, 0, os.SEEK_SET)
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        given = [letter, out_write, err_write]
        socket.send_fds(self._channel, [json.dumps({"do": "fork", "rank": rank}).encode("ascii")], given)
        for fd in given:
            os.close(fd)
        self.alive.add(rank)
        self._read(rank, out_read)
        self._read(rank, err_read)

    def signal(self, rank: int, number: int) -> None:
        """Signal a rank's process group."""
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(json.dumps({"do": "signal", "rank": rank, "number": number}).encode("ascii"))

    def signal_all(self, number: int) -> None:
        """Signal every rank that lives."""
        for rank in sorted(self.alive):
            self.signal(rank, number)

    def end(self) -> None:
        """End the warm process, and with it its ranks. Says nothing more."""
        self.is_ready = False
        if self._channel is not None:
            self._watch.forget(self._channel.fileno())
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for output in self._outputs.pop(HOST, []):
            output.close()

    # ------------------------------------------------------------------------------------------- what it hears

    def _hear(self) -> None:
        assert self._channel is not None
        try:
            data = self._channel.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        word: dict[str, Any] = json.loads(data)
        if word["word"] == "warm":
            self.is_ready = True
            self._parent.is_warm(word["facts"])
        elif word["word"] == "started":
            self._parent.is_born(word["rank"], word["pid"], word["start_time"])
        else:
            self._bury(word["rank"], word["code"])

    def _lose(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        self.end()
        self._parent.is_cold(code)
        for rank in sorted(self.alive):
            self._bury(rank, -signal.SIGKILL)

    def _bury(self, rank: int, code: int) -> None:
        for output in self._outputs.pop(rank, []):
            output.close()
        self.alive.discard(rank)
        self._parent.has_ended(rank, code)

    def _read(self, rank: int, fd: int) -> None:
        output = Output(self._watch, fd, lambda text: self._parent.has_said(rank, text), RANK_LINE_BYTES)
        self._outputs.setdefault(rank, []).append(output)
