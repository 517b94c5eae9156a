"""The controller's end of one agent's streams. Transport-agnostic: a local pipe and an SSH channel look the same.

A session outlives the runs that it serves. A run takes part in it (`join`), is told what belongs to its own number
alone, and leaves it; programs that run beside have numbers of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import IO, Protocol

import msgspec

from flodl.engine.errand import HostErrand
from flodl.engine.errands import (
    Clear,
    Cleared,
    Exited,
    Facts,
    Failed,
    LineSplitter,
    Order,
    Ping,
    Pong,
    Ran,
    Run,
    Said,
    Started,
    Told,
    TorchFacts,
    Word,
    decode_word,
    encode_line,
    ending,
)
from flodl.errors import HostUnready
from flodl.ports import Greeting, HostCall, HostNotice

__all__ = ["AgentStreams", "Session"]

KEPT_LINES = 20
READ_BYTES = 65536
UNANSWERED_PINGS = 32  # more are not sent: an agent that sleeps does not read, and a pipe is soon full
NO_FLODL = re.compile(r"No module named '?(flodl|msgspec)\b")


class AgentStreams(Protocol):
    """A running agent: its standard streams, and how to end and await it. stdout and stderr have `read1`."""

    @property
    def stdin(self) -> IO[bytes]: ...
    @property
    def stdout(self) -> IO[bytes]: ...
    @property
    def stderr(self) -> IO[bytes]: ...

    def wait(self, timeout_seconds: float) -> int | None:
        """Its exit code; None when it still runs after that time."""
        ...

    def kill(self) -> None:
        """End it now."""
        ...


class _Part:
    """A run's part in this session. trouble: why it cannot go on here."""

    def __init__(self, run: int, ranks: frozenset[int], on_notice: Callable[[HostNotice], None]) -> None:
        self.run = run
        self.ranks = ranks
        self.on_notice = on_notice
        self.started: set[int] = set()
        self.trouble = ""
        self.is_cleared = False


class Session:
    """One agent. What a run hears is called from the session's reading threads, in order."""

    def __init__(self, call: HostCall, streams: AgentStreams, marker: str) -> None:
        self.call = call
        self.greeting = Greeting(host=call.label, facts={})
        self._streams = streams
        self._marker = marker.encode("ascii")
        self._has_begun = False
        self._write_lock = threading.RLock()
        self._changed = threading.Condition()
        self._errors_are_read = threading.Event()
        self._pings = self._pongs = 0
        self._heard_at = time.monotonic()
        self._end: HostUnready | None = None
        self._why = ""
        self._part: _Part | None = None
        self._errands: dict[int, HostErrand] = {}
        self._numbers = itertools.count(1)
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        readers = (self._read_words, self._read_errors)
        self._threads = [threading.Thread(target=read, name="flodl-agent", daemon=True) for read in readers]
        for thread in self._threads:
            thread.start()

    @property
    def host(self) -> str:
        """The host's label."""
        return self.call.label

    @property
    def end(self) -> HostUnready | None:
        """How the agent ended; None while it lives."""
        return self._end

    @property
    def silent_seconds(self) -> float:
        """Since the agent's last word, whatever it was; of a run, since that began at most."""
        return time.monotonic() - self._heard_at

    def order(self, order: Order) -> None:
        """Tell the agent something. An agent that is gone is no error here: its end is a notice."""
        with self._write_lock, contextlib.suppress(OSError, ValueError):
            self._streams.stdin.write(encode_line(order))
            self._streams.stdin.flush()

    # ---------------------------------------------------------------------------------------------- to be met

    def await_facts(self, timeout_seconds: float) -> HostUnready | None:
        """None when the agent has said what host it is; else why not."""
        with self._changed:
            self._changed.wait_for(lambda: self.greeting.facts or self._end, timeout_seconds)
            if self.greeting.facts:
                return None
            late = f"its agent did not answer within {timeout_seconds:g} s"
            return self._end or HostUnready(self.host, "timeout", late, lines=self._lines)

    def measure(self, timeout_seconds: float) -> bool:
        """Note how long one round trip takes; False where nothing comes back."""
        begun, before = time.perf_counter(), self._pongs
        self.ping()
        with self._changed:
            self._changed.wait_for(lambda: self._pongs > before or self._end, timeout_seconds)
            if self._pongs == before:
                return False
            latency_ms = (time.perf_counter() - begun) * 1000
            self.greeting = msgspec.structs.replace(self.greeting, latency_ms=latency_ms)
            return True

    def ping(self, limit_seconds: float = 0.0) -> None:
        """A sign of life. limit_seconds: what the agent's runs then outlive of silence; 0: any."""
        if self._pings - self._pongs < UNANSWERED_PINGS:
            self._pings += 1
            self.order(Ping(limit_seconds=limit_seconds))

    def run(self, module: str, given: str) -> HostErrand:
        """Start a program there. Raises HostUnready where the agent is gone."""
        with self._changed:
            if self._end is not None:
                raise self._end
            number = next(self._numbers)
            errand = self._errands[number] = HostErrand(number, self.order)
        self.order(Run(id=number, module=module, given=given))
        return errand

    # ------------------------------------------------------------------------------------------------ for a run

    def join(self, run: int, ranks: frozenset[int], on_notice: Callable[[HostNotice], None]) -> str:
        """Take part from now on; "" when it does, else why it cannot."""
        with self._changed:
            if self._end is not None:
                return str(self._end)
            if self._part is not None:
                return f"{self.host}: another run of this process is under way there"
            self._part, self._heard_at = _Part(run, ranks, on_notice), time.monotonic()
            return ""

    def has_started(self, run: int) -> bool:
        """Whether all of the run's ranks live, or did."""
        with self._changed:
            return self._part is not None and self._part.run == run and self._part.ranks <= self._part.started

    def trouble(self, run: int) -> str:
        """Why the run cannot go on here; "" while it can."""
        with self._changed:
            part = self._part
            if part is None or part.run != run:
                return f"{self.host}: the run is over"
            return f"{self.host}: {part.trouble}{_told(self._lines)}" if part.trouble else ""

    def clear(self, run: int, grace_seconds: float) -> None:
        """Ask for the end of the run's ranks."""
        self.order(Clear(run=run, grace_seconds=grace_seconds))

    def await_cleared(self, run: int, timeout_seconds: float) -> bool:
        """True when no rank of the run is left; it has left the session then."""
        with self._changed:
            part = self._part
            if part is None or part.run != run:
                return True
            is_clear = self._changed.wait_for(lambda: part.is_cleared or self._end, timeout_seconds)
            if is_clear and self._part is part:
                self._part = None
            return bool(is_clear)

    # --------------------------------------------------------------------------------------------------- its end

    def wait(self, timeout_seconds: float) -> bool:
        """True when the agent has ended and everything it said was read."""
        if self._streams.wait(timeout_seconds) is None:
            return False
        for thread in self._threads:
            thread.join(1.0)
        return True

    def hang_up(self) -> None:
        """Close its standard input: the agent ends itself and its ranks."""
        with self._write_lock, contextlib.suppress(OSError, ValueError):
            self._streams.stdin.close()

    def kill(self) -> None:
        """End the agent now; the kernel ends what it has started."""
        self._streams.kill()

    # ------------------------------------------------------------------------------------- the reading threads'

    def _read_words(self) -> None:
        splitter = LineSplitter()
        while data := _read(self._streams.stdout):
            for line in splitter.feed(data):
                if self._has_begun:
                    self._hear(line)
                elif line.rstrip(b"\r") == self._marker:
                    self._has_begun = True
                else:
                    self._noise(line)
        self._streams.stdout.close()
        self._streams.wait(2.0)
        self._errors_are_read.wait(1.0)  # its last words
        self._bury(self._streams.wait(0.0))

    def _bury(self, code: int | None) -> None:
        with self._changed:
            part, errands = self._part, list(self._errands.values())
            why = self._why or f"its agent {'does not end' if code is None else ending(code)}"
            self._end = HostUnready(self.host, "ended", why) if self._has_begun else self._never_begun(why)
            if part is not None:
                part.trouble = part.trouble or self._end.message
            self._changed.notify_all()
        for errand in errands:
            errand.hear(Ran(id=errand.number, code=-1, errors=(why,)))
        if part is not None:
            part.on_notice(HostNotice(host=self.host, kind="gone", text=self._end.message, code=code or 0))

    def _never_begun(self, why: str) -> HostUnready:
        lines = tuple(self._lines)
        is_bare = any(NO_FLODL.search(line) for line in lines)
        return HostUnready(self.host, "no_flodl" if is_bare else "ended", f"{why} before it began", lines=lines)

    def _read_errors(self) -> None:
        splitter = LineSplitter()
        while data := _read(self._streams.stderr):
            for line in splitter.feed(data):
                self._noise(line)
        self._streams.stderr.close()
        self._errors_are_read.set()

    def _noise(self, line: bytes) -> None:
        self._take(Said(rank=-1, text=line.decode("utf-8", errors="backslashreplace")))

    def _hear(self, line: bytes) -> None:
        try:
            self._take(decode_word(line))
        except msgspec.MsgspecError as error:
            self._noise(b"malformed answer: " + str(error).encode() + b": " + line[:200])

    def _take(self, word: Word) -> None:
        self._heard_at = time.monotonic()
        if isinstance(word, Told | Ran):
            with self._changed:
                known = self._errands.get(word.id) if isinstance(word, Told) else self._errands.pop(word.id, None)
            if known is not None:
                known.hear(word)
            return
        with self._changed:
            part = self._part
            notice = self._note(word, part)
            self._changed.notify_all()
        if part is not None and notice is not None:
            part.on_notice(notice)

    def _note(self, word: Word, part: _Part | None) -> HostNotice | None:
        """Keep what is to be kept; what the run shall hear."""
        if isinstance(word, Said) and word.rank < 0:
            self._lines.append(word.text)
            return HostNotice(host=self.host, kind="line", text=word.text)
        if isinstance(word, Facts):
            self.greeting = msgspec.structs.replace(self.greeting, facts=word.facts, noise=tuple(self._lines))
            return None
        if isinstance(word, TorchFacts):
            self.greeting = msgspec.structs.replace(self.greeting, torch=word.facts)
            return None
        if isinstance(word, Pong):
            self._pongs += 1
            return None
        if isinstance(word, Failed):
            return self._note_failure(word, part)
        assert isinstance(word, Said | Started | Exited | Cleared)
        return _note_rank(self.host, word, part) if part is not None and word.run == part.run else None

    def _note_failure(self, word: Failed, part: _Part | None) -> HostNotice | None:
        if part is None or word.run != part.run:
            self._lines.append(word.text)
            return None
        self._why = part.trouble = part.trouble or word.text
        return HostNotice(host=self.host, kind="line", text=word.text)


def _note_rank(host: str, word: Said | Started | Exited | Cleared, part: _Part) -> HostNotice | None:
    if isinstance(word, Said):
        return HostNotice(host=host, kind="line", rank=word.rank, text=word.text)
    if isinstance(word, Started):
        part.started.add(word.rank)
        name = f"{word.pid} {word.start_time}"
        return HostNotice(host=host, kind="started", rank=word.rank, text=name, incarnation=word.incarnation)
    if isinstance(word, Cleared):
        part.is_cleared = True
        return None
    if word.rank not in part.started:
        part.trouble = part.trouble or f"rank {word.rank} ended with {word.code} at its start"
    return HostNotice(host=host, kind="exit", rank=word.rank, code=word.code, incarnation=word.incarnation)


def _told(lines: Iterable[str]) -> str:
    return "".join(f"\n  | {line}" for line in lines)


def _read(stream: IO[bytes]) -> bytes:
    try:
        return stream.read1(READ_BYTES)  # type: ignore[attr-defined]
    except (OSError, ValueError):
        return b""
