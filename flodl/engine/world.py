"""The live World: ranks are processes, reached over the link and watched by their agents.

Events are stamped with this process's monotonic clock as they are handed to the coordinator. A rank that ends before
its goodbye has died, whatever its exit code; a goodbye is never counted as a death. What agents and ranks write is
passed on line by line; the last twenty lines of each rank are kept. A rank that is started again is another process,
with keys of its own: what is still said of or by its earlier ones is dropped here.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

import msgspec

from flodl.decide.messages import (
    Average,
    Command,
    Cut,
    Dismiss,
    EndBy,
    Event,
    Finish,
    FormGroup,
    Goodbye,
    RankDied,
    RankReady,
    Restart,
    RunWindow,
    StopRequested,
    StopStatus,
    TimeReached,
    WindowDone,
)
from flodl.decide.roster import Place
from flodl.decide.timeouts import Timeouts
from flodl.decide.vigil import Vigil
from flodl.engine.errands import ending
from flodl.engine.payload import reborn
from flodl.engine.server import Endpoints, LinkServer, Listen
from flodl.engine.serving import ReadPart
from flodl.errors import FlodlError, Interrupted, NotReady
from flodl.ports import FanOut, HostLaunch, HostNotice, UploadSink
from flodl.spec.cluster import JoinSpec

__all__ = ["LiveWorld"]

KEPT_LINES = 20
POLL_SECONDS = 0.5
LOOKS_PER_BEAT = 4

OnLine = Callable[[int, str, str], None]  # rank (-1: the host's own), host label, text


class LiveWorld:
    """Made by `open`; `launch` starts the ranks in the background."""

    def __init__(self, places: Sequence[Place], fan_out: FanOut, on_line: OnLine, limits: Timeouts) -> None:
        self._places = {place.rank: place for place in places}
        self._fan_out = fan_out
        self._on_line = on_line
        self._limits = limits
        self._vigil = Vigil(limits, {place.rank: place.host for place in places})
        self._verdicts: deque[Event] = deque()
        self._look_at = 0.0
        self._news: queue.SimpleQueue[Event | FlodlError] = queue.SimpleQueue()
        self._lines: dict[int, deque[str]] = {rank: deque(maxlen=KEPT_LINES) for rank in (-1, *self._places)}
        self._ready: set[int] = set()
        self._left: set[int] = set()  # said goodbye, or were reported dead
        self._leaving: set[int] = set()  # said goodbye, be it that nobody has read that yet
        self._incarnations = dict.fromkeys(self._places, 0)
        self._secrets: dict[int, bytes] = {}  # rank -> what its host's agent was told
        self._generation = 0
        self._ready_by: float | None = None
        self._join = JoinSpec()
        self._hurried = False
        self._closed = False
        self._server: LinkServer | None = None
        self._threads: list[threading.Thread] = []

    @classmethod
    def open(
        cls,
        places: Sequence[Place],
        fan_out: FanOut,
        *,
        listen: Listen,
        open_upload: Callable[[int, str], UploadSink],
        read: ReadPart | None = None,
        on_line: OnLine = lambda rank, host, text: None,
    ) -> LiveWorld:
        """Listen for these ranks. Raises NotReady. on_line, open_upload and read are called in other threads."""
        world = cls(places, fan_out, on_line, listen.limits)
        world._server = LinkServer.bind(listen, on_event=world._hear, open_upload=open_upload, read=read)
        return world

    @property
    def endpoints(self) -> Endpoints:
        """Where ranks dial."""
        return self.server.endpoints

    @property
    def server(self) -> LinkServer:
        """The controller's side of the link."""
        assert self._server is not None
        return self._server

    def launch(self, hosts: Sequence[HostLaunch], join: JoinSpec) -> None:
        """Start the ranks; returns at once. A failure raises from `next_event`, and so do ranks that are not ready in
        time, unless enough of them are: then the others are given up."""
        self._join = join
        self._secrets = {rank: host.secret for host in hosts for rank in host.ranks}
        self._ready_by = time.monotonic() + join.timeout_seconds
        for work in (lambda: self._start(hosts), self._watch):
            thread = threading.Thread(target=work, name="flodl-world", daemon=True)
            self._threads.append(thread)
            thread.start()

    # ---------------------------------------------------------------------------------------------- World's port

    def next_event(self, timeout_seconds: float, deadline: float | None = None) -> Event | None:
        """The next event, stamped; None when none came in time, `TimeReached` when none came before the deadline.

        Raises NotReady where the start failed, Interrupted after `hurry`.
        """
        self._look()
        if self._verdicts:
            return self._verdicts.popleft()
        limit = min(timeout_seconds, self._limits.heartbeat / LOOKS_PER_BEAT)
        if self._ready_by is not None:
            limit = min(limit, max(0.0, self._ready_by - time.monotonic()))
        if deadline is not None:
            limit = min(limit, max(0.0, deadline - time.monotonic()))
        try:
            news = self._news.get(timeout=limit)
        except queue.Empty:
            self._check_ready()
            now = time.monotonic()
            return TimeReached(at=now) if deadline is not None and now >= deadline else None
        if isinstance(news, FlodlError):
            raise news
        if isinstance(news, RankDied) and self._is_old(news):
            return self.next_event(0.0, deadline)
        self._heed(news)
        return msgspec.structs.replace(news, at=time.monotonic())

    def _is_old(self, news: RankDied) -> bool:
        """A goodbye came first, or it was told already, or it is of a process that was replaced."""
        return news.rank in self._left or news.incarnation != self._incarnations[news.rank]

    def _heed(self, news: Event) -> None:
        """What an event changes in this world."""
        if isinstance(news, RankReady):
            self._ready.add(news.rank)
            if self._ready | self._left >= self._places.keys():
                self._ready_by = None
        elif isinstance(news, WindowDone):
            self._vigil.window(news.rank, (news.compute_ms + news.data_wait_ms) / 1000.0)
        elif isinstance(news, Goodbye | RankDied):
            self._left.add(news.rank)
            self._vigil.release(news.rank)
            if isinstance(news, RankDied):
                self.server.evict(news.rank)

    def _look(self) -> None:
        """Judge what was heard, a few times per heartbeat; who is declared dead is ended where it may still run."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + self._limits.heartbeat / LOOKS_PER_BEAT
        for rank in tuple(self._leaving):
            self._vigil.release(rank)
        for event in self._vigil.judge(now, self.server.sightings()):
            if isinstance(event, RankDied):
                event = msgspec.structs.replace(event, incarnation=self._incarnations[event.rank])  # noqa: PLW2901
                self._heed(event)
                self._fan_out.signal(event.rank, signal.SIGKILL)
            self._verdicts.append(event)

    def execute(self, command: Command) -> None:
        """Send an order to its ranks, start and end processes. Orders to nobody (Alert, End) are the listeners'."""
        if isinstance(command, FormGroup):
            for old in range(self._generation, command.generation):
                self.server.forget_generation(old)
            self._generation = command.generation
        if isinstance(command, FormGroup | RunWindow | Average | Cut | Finish):
            now = time.monotonic()
            for rank in command.to:
                self._vigil.order(rank, now, command)
                self.server.send(rank, command)
        elif isinstance(command, Restart):
            self._restart(command)
        elif isinstance(command, Dismiss):
            self._left.add(command.rank)
            self._vigil.release(command.rank)
            self.server.evict(command.rank)
            self._fan_out.signal(command.rank, signal.SIGKILL)

    def _restart(self, command: Restart) -> None:
        """Another process for a rank: whatever is left of its earlier one is ended first."""
        rank = command.rank
        self._fan_out.signal(rank, signal.SIGKILL)
        self._incarnations[rank] = command.incarnation
        self._left.discard(rank)
        self._leaving.discard(rank)
        keys = self.server.readmit(rank, command.incarnation)
        self._vigil.watch(rank)
        self._fan_out.restart(rank, command.incarnation, reborn(self._secrets[rank], rank, command.incarnation, keys))

    def close(self) -> None:
        """End everything that this world started: TERM, KILL after ten seconds; after `hurry` KILL at once."""
        if self._closed:
            return
        self._closed = True
        self._fan_out.close(0.0 if self._hurried else self._limits.grace)
        for thread in self._threads:
            thread.join(POLL_SECONDS * 4)
        for notice in self._fan_out.poll(0.0):
            if notice.kind == "line":  # last words, of hosts and about them
                self._note(notice)
        self.server.close()

    # -------------------------------------------------------------------------------------------- from elsewhere

    def request_stop(self, reason: str, status: StopStatus = "interrupted") -> None:
        """Ask for an orderly end. Safe in a signal handler and in any thread."""
        self._news.put(StopRequested(at=0.0, reason=reason, status=status))

    def tell(self, event: Event) -> None:
        """Something that the record has to say. Safe in any thread; stamped when it is handed on."""
        self._news.put(event)

    def end_by(self, seconds_left: float, rule: str) -> None:
        """Tell that the run has to be over in so many seconds from now."""
        self._news.put(EndBy(at=0.0, seconds_left=seconds_left, rule=rule))

    def hurry(self, reason: str) -> None:
        """End now: the next `next_event` raises Interrupted, and `close` gives no grace. Safe in a signal handler."""
        self._hurried = True
        self._news.put(Interrupted(reason, exit_code=130))
        threading.Thread(target=self._fan_out.close, args=(0.0,), name="flodl-hurry", daemon=True).start()

    def last_lines(self, rank: int) -> tuple[str, ...]:
        """The last lines that a rank (-1: agents and warm processes) wrote."""
        return tuple(self._lines[rank])

    # ------------------------------------------------------------------------------------------------- threads

    def _hear(self, event: Event) -> None:
        """A rank says so. Whoever leaves falls silent, however late the drive reads of it (a disk may hold it up)."""
        if isinstance(event, Goodbye):
            self._leaving.add(event.rank)
        self._news.put(event)

    def _start(self, hosts: Sequence[HostLaunch]) -> None:
        try:
            self._fan_out.start(hosts)
        except FlodlError as error:
            self._news.put(error)

    def _watch(self) -> None:
        while not self._closed:
            for notice in self._fan_out.poll(POLL_SECONDS):
                self._note(notice)

    def _note(self, notice: HostNotice) -> None:
        if notice.kind == "line":
            self._lines[notice.rank].append(notice.text)
            with contextlib.suppress(OSError):  # a full disk costs lines, not the watch over the ranks
                self._on_line(notice.rank, notice.host, notice.text)
        elif notice.kind == "exit":
            how = ending(notice.code) + (" and no goodbye" if notice.code >= 0 else "")
            self._news.put(RankDied(at=0.0, rank=notice.rank, cause=how, incarnation=notice.incarnation))
        elif notice.kind == "gone":
            self._mourn_host(notice, self._places)
        elif notice.kind == "silent":  # ranks that are heard go on, and those that were are the vigil's affair
            self._mourn_host(notice, self._places.keys() - self.server.sightings().keys() - self._left)

    def _mourn_host(self, notice: HostNotice, ranks: Collection[int]) -> None:
        for rank in sorted(ranks):
            if self._places[rank].host == notice.host:
                self._mourn(rank, f"its host is lost: {notice.text}", can_return=False)

    def _mourn(self, rank: int, how: str, *, can_return: bool = True) -> None:
        now = self._incarnations[rank]
        self._news.put(RankDied(at=0.0, rank=rank, cause=how, can_return=can_return, incarnation=now))

    def _check_ready(self) -> None:
        if self._ready_by is None or time.monotonic() < self._ready_by:
            return
        limit = f"not ready within cluster.controller.join.timeout_seconds={self._join.timeout_seconds:g}"
        missing = [self._places[rank] for rank in sorted(self._places.keys() - self._ready - self._left)]
        if self._join.min_ranks is not None and len(self._ready - self._left) >= self._join.min_ranks:
            self._ready_by = None
            for place in missing:
                self._fan_out.signal(place.rank, signal.SIGKILL)
                self._mourn(place.rank, limit)
            return
        names = ", ".join(f"rank {place.rank} ({place.host} {place.device})" for place in missing)
        lines = [line for place in missing[:1] for line in self.last_lines(place.rank)]
        raise NotReady(f"{limit}: {names}" + "".join(f"\n  | {line}" for line in lines))
