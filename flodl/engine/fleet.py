"""Agents on hosts, met in parallel and kept from one run to the next.

On this machine an agent is a subprocess; how one comes about elsewhere, or in a container, is a function that the fleet
is given, the transport. `keep` makes the fleets of this process outlive the runs that use them, for a sweep: an agent
that has died in between is simply met anew.
"""

from __future__ import annotations

import atexit
import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from flodl.engine.errand import HostErrand
from flodl.engine.errands import Stop, Warm
from flodl.engine.fanout import RunFanOut
from flodl.engine.local import LocalStreams
from flodl.engine.session import AgentStreams, Session
from flodl.errors import HostUnready
from flodl.ports import Greeting, HostCall

__all__ = ["AgentFleet", "OpenStreams", "keep", "release", "the_fleet"]

FACTS_SECONDS = 20.0
PING_SECONDS = 5.0
LAST_SECONDS = 2.0

OpenStreams = Callable[[HostCall, str], AgentStreams]


class AgentFleet:
    """ports.Fleet. transport(call, marker): starts an agent elsewhere; raises HostUnready; called from many threads.
    here: starts one on this machine; None: as a subprocess."""

    def __init__(self, transport: OpenStreams | None = None, here: OpenStreams | None = None) -> None:
        self._transport = transport
        self._here: OpenStreams = LocalStreams if here is None else here
        self._sessions: dict[str, Session] = {}
        self._doors: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._runs = itertools.count(1)
        self._is_closed = False

    def meet(self, calls: Sequence[HostCall]) -> dict[str, Greeting | HostUnready]:
        """Have one warm agent on each host, in parallel. Whom it has met under an equal call is not called again."""
        found: dict[str, Greeting | HostUnready] = {}
        bugs: list[Exception] = []
        changed = threading.Condition()

        def work(call: HostCall) -> None:
            try:
                answer = self._meet(call)
            except Exception as error:  # noqa: BLE001  a transport is somebody else's code; raised below
                bugs.append(error)
                answer = HostUnready(call.label, "protocol", str(error))
            with changed:
                found[call.label] = answer
                changed.notify_all()

        for call in calls:  # how many logins at a time is the transport's business
            threading.Thread(target=work, args=(call,), name="flodl-meet", daemon=True).start()
        with changed:
            changed.wait_for(lambda: len(found) == len({call.label for call in calls}))
        if bugs:
            raise bugs[0]
        return {call.label: found[call.label] for call in calls}

    def run(self, host: str, module: str, given: str = "") -> HostErrand:
        """Start a program on a host that was met; given: the first line of its input. Raises HostUnready."""
        session = self._session(host)
        if session is None:
            raise HostUnready(host, "ended", "was not met")
        return session.run(module, given)

    def fan_out(self) -> RunFanOut:
        """Where one run starts its ranks, on hosts that were met. Closing it ends the ranks, and the agents stay."""
        return RunFanOut(next(self._runs), self._session)

    def close(self, grace_seconds: float) -> None:
        """End every agent and what runs under it. Idempotent."""
        with self._lock:
            self._is_closed = True
            sessions = list(self._sessions.values())
            self._sessions.clear()
        _close(sessions, grace_seconds)

    # ------------------------------------------------------------------------------------------------------ to meet

    def _session(self, host: str) -> Session | None:
        with self._lock:
            return self._sessions.get(host)

    def _meet(self, call: HostCall) -> Greeting | HostUnready:
        with self._lock:
            door = self._doors.setdefault(call.label, threading.Lock())
        with door:
            try:
                session = self._known(call) or self._begin(call)
            except HostUnready as trouble:
                return trouble
            session.order(Warm(env=call.env, path=call.path, preload=call.preload))
            return session.greeting

    def _known(self, call: HostCall) -> Session | None:
        """The living session that serves this call; one that does not is ended."""
        with self._lock:
            session = self._sessions.get(call.label)
        if session is None:
            return None
        if session.end is None and _way(session.call) == _way(call):
            if session.measure(PING_SECONDS):  # a host that was switched off closes no connection
                return session
            session.kill()
        with self._lock:
            self._sessions.pop(call.label, None)
        _close([session], 0.0)
        return None

    def _begin(self, call: HostCall) -> Session:
        """A new agent. Raises HostUnready."""
        with self._lock:
            if self._is_closed:
                raise HostUnready(call.label, "ended", "the fleet was closed")
        marker = f"flodl-{secrets.token_hex(8)}"
        is_elsewhere = not call.here or call.spec.docker is not None
        open_streams = self._transport if is_elsewhere and self._transport is not None else self._here
        session = Session(call, open_streams(call, marker), marker)
        trouble = session.await_facts(FACTS_SECONDS)
        if trouble is None:
            session.measure(PING_SECONDS)
            with self._lock:
                if not self._is_closed:
                    self._sessions[call.label] = session
                    return session
            trouble = HostUnready(call.label, "ended", "the fleet was closed")
        session.kill()
        session.wait(LAST_SECONDS)
        session.hang_up()
        raise trouble


def _way(call: HostCall) -> HostCall:
    """What of a call decides which agent answers: the rest is told to an agent that is there."""
    spec = call.spec
    return HostCall(
        spec=type(spec)(host=spec.host, ssh=spec.ssh, docker=spec.docker),
        here=call.here,
        python=call.python,
        path=call.path if spec.docker is not None else "",  # the compose file's
        withheld=call.withheld,
    )


def _close(sessions: Sequence[Session], grace_seconds: float) -> None:
    for session in sessions:
        session.order(Stop(grace_seconds=grace_seconds))
    end = time.monotonic() + grace_seconds + LAST_SECONDS
    for session in sessions:
        if not session.wait(max(0.0, end - time.monotonic())):
            session.kill()
            session.wait(LAST_SECONDS)
        session.hang_up()


# ------------------------------------------------------------------------------------------------ of this process


class _Kept(msgspec.Struct):
    """Fleets that outlive the runs of this process, by their transport; None where none shall."""

    fleets: dict[OpenStreams | None, AgentFleet] | None = None


_kept = _Kept()
_kept_lock = threading.Lock()


def keep() -> None:
    """From now on the agents of this process stay from one run to the next, until `release` or its end. Idempotent.

    However the process ends, they go with it: their standard input does.
    """
    with _kept_lock:
        if _kept.fleets is None:
            _kept.fleets = {}
            atexit.register(release)


def release() -> None:
    """End the agents that were kept; later runs keep none. Idempotent."""
    with _kept_lock:
        fleets, _kept.fleets = _kept.fleets, None
    for fleet in (fleets or {}).values():
        fleet.close(0.0)


@contextmanager
def the_fleet(transport: OpenStreams | None = None, here: OpenStreams | None = None) -> Iterator[AgentFleet]:
    """The kept fleet of this transport where fleets are kept, else a new one that is closed at the end: always where
    agents of this machine come about in a way of their own (here)."""
    with _kept_lock:
        kept = _kept.fleets if here is None else None
        fleet = None if kept is None else kept.setdefault(transport, AgentFleet(transport))
    if fleet is not None:
        yield fleet
        return
    fleet = AgentFleet(transport, here)
    try:
        yield fleet
    finally:
        fleet.close(0.0)
