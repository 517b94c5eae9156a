"""The controller's end of one agent's streams. Transport-agnostic: a local pipe and an SSH channel look the same."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import IO, Protocol

import msgspec

from flodl.engine.errands import (
    Exited,
    Facts,
    Failed,
    LineSplitter,
    Order,
    Said,
    Started,
    TorchFacts,
    Word,
    decode_word,
    encode_line,
    ending,
)
from flodl.ports import HostNotice

__all__ = ["AgentStreams", "Session"]

KEPT_LINES = 20
READ_BYTES = 65536


class AgentStreams(Protocol):
    """A running agent: its standard streams, and how to end and await it."""

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


class Session:
    """One agent. on_notice is called from the session's reading threads, in order."""

    def __init__(self, host: str, streams: AgentStreams, marker: str, on_notice: Callable[[HostNotice], None]) -> None:
        self.host = host
        self.ranks: set[int] = set()
        self._streams = streams
        self._marker = marker.encode("ascii")
        self._on_notice = on_notice
        self._write_lock = threading.RLock()
        self._changed = threading.Condition()
        self._has_facts = False
        self._started: set[int] = set()
        self._trouble = ""
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        readers = (self._read_words, self._read_errors)
        self._threads = [threading.Thread(target=read, name="flodl-agent", daemon=True) for read in readers]
        for thread in self._threads:
            thread.start()

    def order(self, order: Order) -> None:
        """Tell the agent something. An agent that is gone is no error here: its end is a notice."""
        with self._write_lock, contextlib.suppress(OSError, ValueError):
            self._streams.stdin.write(encode_line(order))
            self._streams.stdin.flush()

    def await_facts(self, timeout_seconds: float) -> str:
        """ "" when the agent has said what host it is; else why not."""
        return self._await(lambda: self._has_facts, timeout_seconds, "did not answer")

    def await_started(self, timeout_seconds: float) -> str:
        """ "" when all its ranks live; else why not."""
        return self._await(lambda: self.ranks <= self._started, timeout_seconds, "did not start its ranks")

    def give_up(self, why: str) -> None:
        """Whoever waits shall stop waiting."""
        with self._changed:
            self._trouble = self._trouble or why
            self._changed.notify_all()

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

    def _await(self, reached: Callable[[], bool], timeout_seconds: float, else_why: str) -> str:
        with self._changed:
            there = self._changed.wait_for(lambda: reached() or bool(self._trouble), timeout_seconds)
            why = self._trouble or ("" if there else f"{else_why} within {timeout_seconds:g} s")
            return f"{self.host}: {why}" + "".join(f"\n  | {line}" for line in self._lines) if why else ""

    # ------------------------------------------------------------------------------------- the reading threads'

    def _read_words(self) -> None:
        splitter, begun = LineSplitter(), False
        while data := _read(self._streams.stdout):
            for line in splitter.feed(data):
                if begun:
                    self._hear(line)
                elif line.rstrip(b"\r") == self._marker:
                    begun = True
                else:
                    self._noise(line)
        self._streams.stdout.close()
        self._streams.wait(2.0)
        code = self._streams.wait(0.0)
        how = "does not end" if code is None else ending(code)
        self.give_up(f"its agent {how}" + ("" if begun else " before it began"))
        self._on_notice(HostNotice(host=self.host, kind="gone", text=self._trouble, code=code or 0))

    def _read_errors(self) -> None:
        splitter = LineSplitter()
        while data := _read(self._streams.stderr):
            for line in splitter.feed(data):
                self._noise(line)
        self._streams.stderr.close()

    def _noise(self, line: bytes) -> None:
        self._hear_word(Said(rank=-1, text=line.decode("utf-8", errors="backslashreplace")))

    def _hear(self, line: bytes) -> None:
        try:
            self._hear_word(decode_word(line))
        except msgspec.MsgspecError as error:
            self._noise(b"malformed answer: " + str(error).encode() + b": " + line[:200])

    def _hear_word(self, word: Word) -> None:
        with self._changed:
            notice = self._note(word)
            self._changed.notify_all()
        self._on_notice(notice)

    def _note(self, word: Word) -> HostNotice:
        if isinstance(word, Said):
            self._lines.append(word.text)
            return HostNotice(host=self.host, kind="line", rank=word.rank, text=word.text)
        if isinstance(word, Started):
            self._started.add(word.rank)
            return HostNotice(host=self.host, kind="started", rank=word.rank, text=f"{word.pid} {word.start_time}")
        if isinstance(word, Exited):
            if word.rank not in self._started:
                self._trouble = self._trouble or f"rank {word.rank} ended with {word.code} at its start"
            return HostNotice(host=self.host, kind="exit", rank=word.rank, code=word.code)
        if isinstance(word, Failed):
            self._trouble = self._trouble or word.text
            return HostNotice(host=self.host, kind="line", text=word.text)
        assert isinstance(word, Facts | TorchFacts)
        self._has_facts = True
        return HostNotice(host=self.host, kind="facts", text=msgspec.json.encode(word.facts).decode())


def _read(stream: IO[bytes]) -> bytes:
    try:
        return stream.read1(READ_BYTES)  # type: ignore[attr-defined]
    except (OSError, ValueError):
        return b""
