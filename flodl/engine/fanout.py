"""The FanOut of one run: a view on the agents of a fleet. Closing it ends the run's ranks; the agents stay."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from flodl.engine.errands import Restart, Signal, Start, Warm
from flodl.engine.session import Session
from flodl.errors import NotReady
from flodl.ports import HostLaunch, HostNotice

__all__ = ["RunFanOut"]

STARTED_SECONDS = 120.0  # a first import of torch from a cold disk
LAST_SECONDS = 2.0
LEFT_BEHIND = (
    "warning: no answer within {:g} s of the end: this host is left behind; what still runs there ends by itself when "
    "it has not heard the controller for a while"
)


class RunFanOut:
    """ports.FanOut. run: its number, of which the fleet gives each once. session_of: a host's session, or None."""

    def __init__(self, run: int, session_of: Callable[[str], Session | None]) -> None:
        self._run = run
        self._session_of = session_of
        self._notices: queue.SimpleQueue[HostNotice] = queue.SimpleQueue()
        self._joined: list[tuple[HostLaunch, Session]] = []
        self._changed = threading.Condition()
        self._closed = False
        self._is_over = threading.Event()  # nobody is told any more that the controller lives

    def start(self, hosts: Sequence[HostLaunch]) -> None:
        """Start one process per device on hosts that were met. All or nothing: raises NotReady with every cause."""
        self._refuse([cause for host in hosts if (cause := self._join(host))])
        for host, session in self._joined:
            session.order(Warm(env=host.env, path=host.path, preload=host.preload))
            session.order(Start(run=self._run, ranks=host.ranks, devices=host.devices, secret=host.secret))
            if host.beat_seconds:
                threading.Thread(target=self._beat, args=(host, session), name="flodl-beat", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._troubles() or self._have_started(), STARTED_SECONDS)
            troubles = self._troubles()
            sessions = [session for _, session in self._joined if not session.has_started(self._run)]
        late = [f"{session.host}: did not start its ranks within {STARTED_SECONDS:g} s" for session in sessions]
        self._refuse(troubles or late)

    def poll(self, timeout_seconds: float) -> tuple[HostNotice, ...]:
        """What the agents said since the last call; waits for the first of it."""
        found: list[HostNotice] = []
        try:
            found.append(self._notices.get(timeout=timeout_seconds))
            while True:
                found.append(self._notices.get_nowait())
        except queue.Empty:
            return tuple(found)

    def restart(self, rank: int, incarnation: int, secret: bytes) -> None:
        """Start another process for a rank, once its earlier one has ended; the agent's loss is a notice, and so is
        its silence."""
        for host, session in self._joined:
            if rank not in host.ranks:
                continue
            if session.end is not None:
                self._hear(HostNotice(host=host.label, kind="gone", text=session.end.message))
            elif silence := _silence(host, session):
                self._hear(HostNotice(host=host.label, kind="silent", text=silence))
            else:
                session.order(Restart(run=self._run, rank=rank, incarnation=incarnation, secret=secret))

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to one rank's process group; a rank that is gone is no error."""
        for host, session in self._joined:
            if rank in host.ranks:
                session.order(Signal(run=self._run, rank=rank, number=number))

    def close(self, grace_seconds: float) -> None:
        """End every rank: TERM, then KILL after the grace. An agent that does not manage that is ended, and its host is
        skipped: that is the last notice. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            sessions = [session for _, session in self._joined]
        self._is_over.set()
        for session in sessions:
            session.clear(self._run, grace_seconds)
        begun = time.monotonic()
        end = begun + grace_seconds + LAST_SECONDS
        for session in sessions:
            if not session.await_cleared(self._run, max(0.0, end - time.monotonic())):
                session.kill()
                session.await_cleared(self._run, LAST_SECONDS)
                self._hear(HostNotice(host=session.host, kind="line", text=LEFT_BEHIND.format(end - begun)))

    def _beat(self, host: HostLaunch, session: Session) -> None:
        """Tell the agent that the controller lives, until this run is closed, and the run when it stops answering. (The
        line to it may be open for a long time yet: behind a jump host nobody notices that the host is off.)"""
        was_silent = False
        while not self._is_over.wait(host.beat_seconds):
            session.ping(host.dead_seconds)
            silence = _silence(host, session)
            if silence and not was_silent:
                self._hear(HostNotice(host=host.label, kind="silent", text=silence))
            was_silent = bool(silence)

    def _join(self, host: HostLaunch) -> str:
        with self._changed:
            if self._closed:
                return "the run is being closed"
            session = self._session_of(host.label)
            if session is None:
                return f"{host.label}: was not met"
            cause = session.join(self._run, frozenset(host.ranks), self._hear)
            if not cause:
                self._joined.append((host, session))
            return cause

    def _hear(self, notice: HostNotice) -> None:
        self._notices.put(notice)
        with self._changed:
            self._changed.notify_all()

    def _have_started(self) -> bool:
        return all(session.has_started(self._run) for _, session in self._joined)

    def _troubles(self) -> list[str]:
        if self._closed:
            return ["the run is being closed"]
        return [cause for _, session in self._joined if (cause := session.trouble(self._run))]

    def _refuse(self, causes: Iterable[str]) -> None:
        told = tuple(dict.fromkeys(causes))
        if told:
            self.close(0.0)
            raise NotReady("\n".join(told))


def _silence(host: HostLaunch, session: Session) -> str:
    """That an agent has not been heard for too long, in words; "" while it was, and of one that has ended."""
    seconds = session.silent_seconds
    is_silent = session.end is None and 0.0 < host.dead_seconds < seconds
    return f"nothing was heard from its agent for {seconds:.1f} s" if is_silent else ""
