"""The agent of a host: a single-threaded loop between the controller's stream and the host's warm process.

    python -P -m flodl.engine.agent MARKER

Prints MARKER on a line, then frames (see `errands`). Its life hangs on its standard input: at the end of that stream,
for whatever reason, it ends every rank it has started (TERM, then KILL) and itself; and when it is killed, the kernel
kills its warm process and that one's ranks. Ranks' output is forwarded line by line.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from flodl.engine.birth import encode_birth
from flodl.engine.errands import (
    Exited,
    Facts,
    Failed,
    LineSplitter,
    Said,
    Signal,
    Start,
    Started,
    TorchFacts,
    Warm,
    Word,
    decode_order,
    encode_line,
    ending,
)
from flodl.engine.facts import host_facts
from flodl.engine.payload import decode_host_secret

__all__ = ["Agent", "main"]

ORPHAN_GRACE_SECONDS = 2.0  # the controller is gone: nothing may be left five seconds later
LAST_WORDS_SECONDS = 1.0
READ_BYTES = 65536
RANK_LINE_BYTES = 16384
DRAIN_READS = 64
HOST = -1


class Agent:
    """One host's ranks. `serve` returns when all of them are gone. A byte on `stop_fd` ends it like a lost stream."""

    def __init__(self, orders_fd: int, words_fd: int, stop_fd: int) -> None:
        self._stop_fd = stop_fd
        self._orders_fd = orders_fd
        self._words_fd = words_fd
        self._orders = LineSplitter()
        self._selector = selectors.DefaultSelector()
        self._warm: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._is_warm = False
        self._waiting: list[Start] = []
        self._alive: set[int] = set()
        self._outputs: dict[int, list[_Output]] = {}
        self._kill_at: float | None = None  # stopping since a moment ago; KILL then
        self._over = False
        self._is_lost = False  # why was said, and every end that follows from it is no news

    def serve(self) -> None:
        """Obey until told to stop or until the controller is gone; leave nothing behind."""
        self._watch(self._orders_fd, self._hear_controller)
        self._watch(self._stop_fd, self._hear_signal)
        self._say(Facts(facts=dict(host_facts())))
        try:
            while not self._over:
                self._turn()
        finally:
            self._end_warm()

    def stop(self, grace_seconds: float) -> None:
        """TERM to all ranks now, KILL after the grace. A second call can only shorten the grace."""
        kill_at = time.monotonic() + grace_seconds
        if self._kill_at is None:
            self._signal_all(signal.SIGTERM)
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)
        self._waiting.clear()

    # ----------------------------------------------------------------------------------------------- the loop

    def _turn(self) -> None:
        if self._kill_at is not None:
            if not self._alive:
                self._over = True
                return
            if time.monotonic() >= self._kill_at:
                self._signal_all(signal.SIGKILL)
                self._kill_at = time.monotonic() + LAST_WORDS_SECONDS
                if self._warm is None or self._warm.poll() is not None:
                    self._alive.clear()
        limit = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
        for key, _ in self._selector.select(limit):
            if key.fd in self._selector.get_map():  # an earlier one of this turn may have closed it
                key.data()

    def _watch(self, fd: int, then: Callable[[], object]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, then)

    def _unwatch(self, fd: int) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(fd)

    def _say(self, word: Word) -> None:
        rest = memoryview(encode_line(word))
        try:
            while rest:
                rest = rest[os.write(self._words_fd, rest) :]
        except OSError:  # nobody listens any more
            self.stop(ORPHAN_GRACE_SECONDS)

    # ------------------------------------------------------------------------------------------ the controller

    def _hear_controller(self) -> None:
        try:
            data = os.read(self._orders_fd, READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._unwatch(self._orders_fd)
            self.stop(ORPHAN_GRACE_SECONDS)
        for line in self._orders.feed(data):
            try:
                self._obey(line)
            except (msgspec.MsgspecError, OSError, ValueError) as error:
                self._say(Failed(text=f"{type(error).__name__}: {error}"))

    def _hear_signal(self) -> None:
        numbers = os.read(self._stop_fd, READ_BYTES)
        self._fail(f"its agent was told to end by {signal.Signals(numbers[0]).name}")
        self.stop(ORPHAN_GRACE_SECONDS)

    def _fail(self, why: str) -> None:
        """Say the first cause, unless the ranks are being ended already: their ends then have another one."""
        if self._kill_at is None:
            self._is_lost = True
            self._say(Failed(text=why))

    def _obey(self, line: bytes) -> None:
        order = decode_order(line)
        if isinstance(order, Warm):
            self._warm_up(order)
        elif isinstance(order, Start):
            self._waiting.append(order)
            self._start_waiting()
        elif isinstance(order, Signal):
            self._order_warm(do="signal", rank=order.rank, number=order.number)
        else:
            self.stop(order.grace_seconds)

    # -------------------------------------------------------------------------------------------- the warm process

    def _warm_up(self, order: Warm) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        output_read, output_write = os.pipe2(os.O_CLOEXEC)
        try:
            self._warm = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "flodl.engine.warm",
                    str(theirs.fileno()),
                    str(os.getpid()),
                    *order.preload,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                env=os.environ | _threads_env(order.threads) | order.env,
                cwd=order.path or None,
                pass_fds=[theirs.fileno()],
            )
        finally:
            theirs.close()
            os.close(output_write)
        self._channel = ours
        self._watch(ours.fileno(), self._hear_warm)
        self._read_output(HOST, output_read)

    def _hear_warm(self) -> None:
        assert self._channel is not None
        try:
            data = self._channel.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._lose_warm()
            return
        word: dict[str, Any] = json.loads(data)
        if word["word"] == "warm":
            self._is_warm = True
            self._say(TorchFacts(facts=word["facts"]))
            self._start_waiting()
        elif word["word"] == "started":
            self._say(Started(rank=word["rank"], pid=word["pid"], start_time=word["start_time"]))
        else:
            self._bury(word["rank"], word["code"])

    def _lose_warm(self) -> None:
        """The warm process is gone: the kernel has killed its ranks, and nothing is left to do here."""
        assert self._channel is not None
        assert self._warm is not None
        self._unwatch(self._channel.fileno())
        code = self._warm.wait()
        for output in self._outputs.get(HOST, []):
            output.drain()
        self._fail(f"its warm process {ending(code)}")
        for rank in sorted(self._alive):
            self._bury(rank, -signal.SIGKILL)
        self.stop(0.0)

    def _start_waiting(self) -> None:
        if not self._is_warm:
            return
        for start in self._waiting:
            secret = decode_host_secret(start.secret)
            for rank in start.ranks:
                self._fork(rank, encode_birth(secret.payloads[rank], secret.env))
        self._waiting.clear()

    def _fork(self, rank: int, born: bytes) -> None:
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
        self._alive.add(rank)
        self._read_output(rank, out_read)
        self._read_output(rank, err_read)

    def _bury(self, rank: int, code: int) -> None:
        for output in self._outputs.pop(rank, []):
            output.drain()
            output.close()
        self._alive.discard(rank)
        if not self._is_lost:
            self._say(Exited(rank=rank, code=code))

    def _order_warm(self, **order: Any) -> None:
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(json.dumps(order).encode("ascii"))

    def _signal_all(self, number: int) -> None:
        for rank in sorted(self._alive):
            self._order_warm(do="signal", rank=rank, number=number)

    def _end_warm(self) -> None:
        if self._warm is not None and self._warm.poll() is None:
            self._warm.kill()
            self._warm.wait()

    # ------------------------------------------------------------------------------------------------- output

    def _read_output(self, rank: int, fd: int) -> None:
        output = _Output(self, rank, fd)
        self._outputs.setdefault(rank, []).append(output)
        self._watch(fd, output.read)


class _Output:
    """One stream of one rank."""

    def __init__(self, agent: Agent, rank: int, fd: int) -> None:
        os.set_blocking(fd, False)
        self._agent = agent
        self._rank = rank
        self._fd = fd
        self._splitter = LineSplitter(RANK_LINE_BYTES)

    def read(self) -> bool:
        """Forward what is there; False where nothing is."""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return False
        lines = self._splitter.feed(data) if data else self._splitter.rest()
        for line in lines:
            self._agent._say(Said(rank=self._rank, text=line.decode("utf-8", errors="backslashreplace")))
        if not data:
            self._agent._unwatch(self._fd)
        return bool(data)

    def drain(self) -> None:
        """Forward everything that is there."""
        for _ in range(DRAIN_READS):  # bounded: what a rank has set loose may go on writing
            if not self.read():
                return

    def close(self) -> None:
        """No more from here; a last line without its newline counts."""
        for line in self._splitter.rest():
            self._agent._say(Said(rank=self._rank, text=line.decode("utf-8", errors="backslashreplace")))
        self._agent._unwatch(self._fd)
        os.close(self._fd)


def _threads_env(threads: int) -> dict[str, str]:
    return {
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PYTHONUNBUFFERED": "1",
    }


def main(marker: str) -> None:
    """Serve on standard input and output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the controller's affair
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    words = os.dup(1)
    os.dup2(2, 1)  # whatever prints by accident does not end up between the frames
    os.write(words, marker.encode("ascii") + b"\n")
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake)  # select() goes on sleeping through a handler
    signal.signal(signal.SIGTERM, lambda *_: None)
    Agent(0, words, woken).serve()


if __name__ == "__main__":
    main(sys.argv[1])
