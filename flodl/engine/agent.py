"""The agent of a host: a single-threaded loop between the controller's stream and the host's warm process.

    python -P -m flodl.engine.agent MARKER

Prints MARKER on a line, then frames (see `errands`). Its life hangs on its standard input: at the end of that stream,
for whatever reason, it ends every rank it has started (TERM, then KILL) and itself; and when it is killed, the kernel
kills its warm process and that one's ranks. It serves one run after another: between two of them only the warm process
lives. Ranks' output is forwarded line by line.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Mapping

import msgspec

from flodl.engine.birth import encode_birth
from flodl.engine.errands import (
    NO_RUN,
    Clear,
    Cleared,
    Drop,
    Exited,
    Facts,
    Failed,
    Give,
    LineSplitter,
    Order,
    Ping,
    Pong,
    Restart,
    Run,
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
from flodl.engine.incubator import Incubator
from flodl.engine.payload import decode_host_secret
from flodl.engine.programs import Programs
from flodl.engine.warming import Begin, begin_forked, begin_program
from flodl.engine.watch import Watch

__all__ = ["Agent", "main"]

ORPHAN_GRACE_SECONDS = 2.0  # the controller is gone: nothing may be left five seconds later
LAST_WORDS_SECONDS = 1.0
READ_BYTES = 65536
PIPE_BUF = 4096  # so much a writable pipe takes without blocking


class Agent:
    """One host's ranks. `serve` returns when all of them are gone. A byte on `stop_fd` ends it like a lost stream."""

    def __init__(
        self, descriptors: tuple[int, int, int], facts: Mapping[str, str | int], begin: Begin = begin_program
    ) -> None:
        """descriptors: of orders, words and stops. facts: what it says of its host. begin: its warm process."""
        orders_fd, words_fd, stop_fd = descriptors
        self._facts = facts
        self._stop_fd = stop_fd
        self._orders_fd = orders_fd
        self._words_fd = words_fd
        self._orders = LineSplitter()
        self._watch = Watch()
        self._incubator = Incubator(self._watch, self, begin)
        self._programs = Programs(self._watch, self._say)
        self._path = ""
        self._run = NO_RUN
        self._unborn: dict[int, bytes] = {}  # rank -> what it is told; they wait for the warm process, or for an end
        self._incarnations: dict[int, int] = {}  # of the ranks that are forked next
        self._born: dict[int, int] = {}  # and of those that were
        self._why_cold = "it was not told to warm up"
        self._heard_at = time.monotonic()  # the controller
        self._limit_seconds = 0.0  # of its silence, while a run is here
        self._kill_at: float | None = None  # ranks were told to end; KILL then
        self._is_unread = False  # what it says
        self._is_leaving = False  # and then itself
        self._is_over = False
        self._is_lost = False  # why was said, and every end that follows from it is no news

    def serve(self) -> None:
        """Obey until told to stop or until the controller is gone; leave nothing behind."""
        self._watch.reading(self._orders_fd, self._hear_controller)
        self._watch.reading(self._stop_fd, self._hear_signal)
        self._say(Facts(facts=dict(self._facts)))
        try:
            while not self._is_over:
                self._turn()
        finally:
            self._programs.end()
            self._incubator.end()

    def stop(self, grace_seconds: float) -> None:
        """End the ranks as `clear` does, then leave."""
        self._is_leaving = True
        self.clear(grace_seconds)

    def clear(self, grace_seconds: float) -> None:
        """TERM to all ranks now, KILL after the grace. A second call can only shorten the grace."""
        kill_at = time.monotonic() + grace_seconds
        if self._kill_at is None:
            self._incubator.signal_all(signal.SIGTERM)
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)
        self._unborn.clear()

    # ----------------------------------------------------------------------------------------------- the loop

    def _turn(self) -> None:
        self._mind_silence()
        if self._kill_at is not None:
            if not self._incubator.alive:
                self._end_run()
                return
            if time.monotonic() >= self._kill_at:
                self._incubator.signal_all(signal.SIGKILL)
                self._kill_at = time.monotonic() + LAST_WORDS_SECONDS
        dues = [due for due in (self._kill_at, self._silent_at) if due is not None]
        self._watch.turn(max(0.0, min(dues) - time.monotonic()) if dues else None)

    @property
    def _silent_at(self) -> float | None:
        """When the controller is lost unless it is heard before; None where its silence means nothing."""
        if not self._limit_seconds or self._run == NO_RUN or self._kill_at is not None:
            return None
        return self._heard_at + self._limit_seconds

    def _mind_silence(self) -> None:
        """A partition brings no end of the stream: on this side of it ranks and agent end by themselves."""
        due, now = self._silent_at, time.monotonic()
        if due is not None and now >= due:
            self._fail(f"its agent heard nothing from the controller for {now - self._heard_at:.1f} s")
            self.stop(ORPHAN_GRACE_SECONDS)

    def _end_run(self) -> None:
        """No rank is left."""
        self._is_over = self._is_leaving
        self._kill_at = None
        run, self._run = self._run, NO_RUN
        if not self._is_leaving:
            self._say(Cleared(run=run))

    def _say(self, word: Word) -> None:
        rest = memoryview(encode_line(word))
        try:
            while rest and self._has_room():
                rest = rest[os.write(self._words_fd, rest[:PIPE_BUF]) :]
        except OSError:
            self._is_unread = True
        if self._is_unread:  # nobody listens any more
            self.stop(ORPHAN_GRACE_SECONDS)

    def _has_room(self) -> bool:
        """Behind a cut line nobody reads, and that must not keep the ranks alive."""
        if not self._is_unread:
            limit = LAST_WORDS_SECONDS if self._kill_at is not None else self._limit_seconds or None
            self._is_unread = not select.select([], [self._words_fd], [], limit)[1]
        return not self._is_unread

    # ------------------------------------------------------------------------------------------ the controller

    def _hear_controller(self) -> None:
        try:
            data = os.read(self._orders_fd, READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._watch.forget(self._orders_fd)
            self.stop(ORPHAN_GRACE_SECONDS)
        else:
            self._mind_silence()  # what was said while this process slept comes too late
            self._heard_at = time.monotonic()
        for line in self._orders.feed(data):
            try:
                self._obey(decode_order(line))
            except (msgspec.MsgspecError, OSError, ValueError) as error:
                self._say(Failed(run=self._run, text=f"{type(error).__name__}: {error}"))

    def _hear_signal(self) -> None:
        numbers = os.read(self._stop_fd, READ_BYTES)
        self._fail(f"its agent was told to end by {signal.Signals(numbers[0]).name}")
        self.stop(ORPHAN_GRACE_SECONDS)

    def _fail(self, why: str) -> None:
        """Say the first cause, unless the ranks are being ended already: their ends then have another one."""
        if self._kill_at is None:
            self._is_lost = True
            self._say(Failed(run=self._run, text=why))

    def _obey(self, order: Order) -> None:
        if isinstance(order, Warm):
            self._warm_up(order)
        elif isinstance(order, Start):
            self._begin(order)
        elif isinstance(order, Restart):
            self._begin_again(order)
        elif isinstance(order, Signal):
            if order.run == self._run:
                self._incubator.signal(order.rank, order.number)
        elif isinstance(order, Clear):
            if order.run == self._run:
                self.clear(order.grace_seconds)
            else:
                self._say(Cleared(run=order.run))
        elif isinstance(order, Run | Give | Drop | Ping):
            self._serve(order)
        else:
            self.stop(order.grace_seconds)

    def _serve(self, order: Run | Give | Drop | Ping) -> None:
        """What has nothing to do with ranks."""
        if isinstance(order, Run):
            self._programs.start(order, self._path)
        elif isinstance(order, Give):
            self._programs.give(order.id, order.line)
        elif isinstance(order, Drop):
            self._programs.drop(order.id)
        else:
            self._limit_seconds = order.limit_seconds
            self._say(Pong())

    # ------------------------------------------------------------------------------------------------- the ranks

    def _warm_up(self, order: Warm) -> None:
        self._path = order.path
        if self._incubator.alive:
            raise ValueError("ranks live here: their warm process cannot be replaced")
        try:
            self._incubator.warm_up(order)
        except OSError as error:
            self._why_cold = str(error)
            self._say(Failed(text=self._why_cold))

    def _begin(self, order: Start) -> None:
        if self._run != NO_RUN:
            self._say(Failed(run=order.run, text="another run is under way on this host"))
            return
        self._run, self._is_lost = order.run, False
        self._heard_at, self._limit_seconds = time.monotonic(), 0.0
        secret = decode_host_secret(order.secret)
        self._unborn = {rank: encode_birth(secret.payloads.get(rank, b""), secret.env) for rank in order.ranks}
        self._incarnations = dict.fromkeys(order.ranks, 0)
        if self._incubator.is_ready:
            self._fork()
        elif not self._incubator.has_process:
            self._fail(self._why_cold)

    def _begin_again(self, order: Restart) -> None:
        """A rank once more; nothing of a run that is over, or is being ended, is begun."""
        if order.run != self._run or self._kill_at is not None:
            return
        secret = decode_host_secret(order.secret)
        self._unborn[order.rank] = encode_birth(secret.payloads[order.rank], secret.env)
        self._incarnations[order.rank] = order.incarnation
        if self._incubator.is_ready:
            self._fork()

    def _fork(self) -> None:
        for rank in sorted(self._unborn.keys() - self._incubator.alive):
            self._born[rank] = self._incarnations[rank]
            self._incubator.fork(rank, self._unborn.pop(rank))

    def is_warm(self, facts: dict[str, str]) -> None:
        """The warm process has loaded torch: whoever waited for it is forked."""
        self._say(TorchFacts(facts=facts))
        self._fork()

    def is_born(self, rank: int, pid: int, start_time: int) -> None:
        """A rank lives."""
        born = self._born[rank]
        self._say(Started(run=self._run, rank=rank, pid=pid, start_time=start_time, incarnation=born))

    def has_said(self, rank: int, text: str) -> None:
        """A line of output."""
        self._say(Said(run=self._run, rank=rank, text=text))

    def has_ended(self, rank: int, code: int) -> None:
        """A rank is gone."""
        if not self._is_lost:
            self._say(Exited(run=self._run, rank=rank, code=code, incarnation=self._born[rank]))
        if rank in self._unborn and self._incubator.is_ready:
            self._fork()

    def is_cold(self, code: int) -> None:
        """The warm process is gone. With a run that is the end of it; without one, a later order warms anew."""
        self._why_cold = f"its warm process {ending(code)}"
        self._fail(self._why_cold)
        if self._run != NO_RUN:
            self.stop(0.0)


def main(marker: str, *, is_forked: bool = False, is_one_threaded: bool = False) -> None:
    """Serve on standard input and output. is_forked: from the program; its ranks are to be of this very process.
    is_one_threaded: and compute in one thread each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the controller's affair
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    words = os.dup(1)
    os.dup2(2, 1)  # whatever prints by accident does not end up between the frames
    os.write(words, marker.encode("ascii") + b"\n")
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake)  # select() goes on sleeping through a handler
    signal.signal(signal.SIGTERM, lambda *_: None)
    facts = host_facts()
    if is_one_threaded:
        facts["cores"] = 1
    Agent((0, words, woken), facts, begin_forked if is_forked else begin_program).serve()


if __name__ == "__main__":
    main(sys.argv[1])
