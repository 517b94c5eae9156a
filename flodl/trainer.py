"""One run on real devices, from a job to its result: roster, keys, link, agents, the drive, and a tidy end.

The controller is never a rank, loads no torch and touches no GPU. Whatever happens, what was started is ended.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec
from rich.console import Console

from flodl import drive
from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import Command, End, Event, RankDied, RankReady, RunWindow
from flodl.decide.roster import Place, resolve_mode, roster
from flodl.engine.fanout import LocalFanOut
from flodl.engine.inprocess import InProcessWorld, payload_here
from flodl.engine.keys import make_keys
from flodl.engine.launches import launches, threads_per_rank, told
from flodl.engine.server import Listen
from flodl.engine.signals import SignalWatch
from flodl.engine.world import LiveWorld
from flodl.errors import ConfigError, Interrupted, NotReady, RunLost
from flodl.ports import FanOut
from flodl.probe.clock import seconds_until
from flodl.probe.gpus import count_gpus
from flodl.probe.here import is_here
from flodl.record.folder import RunFolder
from flodl.record.result import Result, Run, failed_result, result
from flodl.record.text import clean
from flodl.record.versions import Versions, versions
from flodl.report.rig import hosts_of, rig_line
from flodl.report.summary import print_summary
from flodl.report.terminal import PlainTerminal, Terminal, terminal, terminal_console
from flodl.spec.codec import canonical_json, sha256
from flodl.spec.job import JobSpec

__all__ = ["resolved", "run"]

WORTH_SEEING = re.compile(r"\b(warning|error|exception|traceback|critical|fatal)\b", re.IGNORECASE)
KEPT_SHOWN = 200


def run(
    job: JobSpec,
    folder: RunFolder,
    *,
    fan_out: FanOut | None = None,
    listeners: Iterable[drive.Listener] = (),
    console: Console | None = None,
    begun: float | None = None,
) -> End:
    """Train `job`, write everything into `folder`, print what a person should see.

    begun: when the command was given (time.monotonic()); now where it is not told. Returns how it ended; raises
    ConfigError before anything is started, NotReady where the start fails, Interrupted after a second signal. The
    folder holds a result in every case.
    """
    begun = time.monotonic() if begun is None else begun
    console = terminal_console() if console is None else console
    story = _Story(folder, begun)
    try:
        folder.write_spec(canonical_json(job), sha256(job))
        places = _chosen(job, roster(job, _counted(job)))
        job = resolved(job, places)
        story.meet(job, places)
        with closing(folder):
            if job.debug.inprocess:
                end = _train_here(job, places[0], story, tuple(listeners), console)
            else:
                end = _train(job, places, story, fan_out, tuple(listeners), console)
        _conclude(folder, result(end, story.told()), console)
    except (Exception, KeyboardInterrupt) as error:
        told = story.failure(error)
        with suppress(OSError):  # a full disk refuses this too
            folder.write_result(failed_result(told, story.told()))
        if told is error:
            raise
        raise told from error
    return end


def resolved(job: JobSpec, places: Sequence[Place]) -> JobSpec:
    """The job as the coordinator runs it: `auto` became a mode, and the first dead rank ends the run.

    A journal is replayed with this job.
    """
    elche = job.elche.resolved(resolve_mode(places))
    return job.replace(elche=elche, membership=job.membership.replace(max_failure=1))


def _train(
    job: JobSpec,
    places: tuple[Place, ...],
    story: _Story,
    fan_out: FanOut | None,
    listeners: tuple[drive.Listener, ...],
    console: Console,
) -> End:
    folder, controller = story.folder, job.cluster.controller
    coordinator = Coordinator(job, places)
    folder.start_journal(sha256(job), places)
    keys = make_keys(place.rank for place in places)
    world = LiveWorld.open(
        places,
        LocalFanOut(withheld=job.cluster.env_pass) if fan_out is None else fan_out,
        listen=Listen(controller.bind or controller.host, controller.port, folder.run_id, keys),
        open_upload=folder.open_upload,
        on_line=story.line,
    )
    with SignalWatch(world), closing(world), terminal(coordinator.view, console, len(places)) as shown:
        story.shown = shown
        shown.say(rig_line(job, places, {host: threads_per_rank(len(places)) for host in hosts_of(places)}))
        hosts = launches(job, places, run_id=folder.run_id, keys=keys, endpoints=told(controller, world.endpoints))
        world.launch(hosts, join_seconds=controller.join.timeout_seconds)
        if job.stop.at is not None:
            world.end_by(seconds_until(job.stop.at), f"stop.at={job.stop.at}")

        def tick() -> None:
            story.pass_on()
            shown.tick()
            folder.status.keep(coordinator.view)

        heard = (folder.observe, story.observe, shown.observe, story.mourn, *listeners)
        try:
            end = drive.run(coordinator, world, heard, tick=tick)
        finally:
            story.pass_on()
    folder.status.write(coordinator.view(), state=end.status)
    return end


def _train_here(
    job: JobSpec, place: Place, story: _Story, listeners: tuple[drive.Listener, ...], console: Console
) -> End:
    """The one rank is this process: its output is the terminal's, and its signals are the debugger's."""
    folder, coordinator = story.folder, Coordinator(job, (place,))
    folder.start_journal(sha256(job), (place,))
    world = InProcessWorld(folder.open_upload)
    threads = threads_per_rank(1)
    with PlainTerminal(coordinator.view, console) as shown:
        story.shown = shown
        shown.say(f"{rig_line(job, (place,), {place.host: threads})}, in this process")
        if job.stop.at is not None:
            world.end_by(seconds_until(job.stop.at), f"stop.at={job.stop.at}")
        heard = (folder.observe, story.observe, shown.observe, *listeners)
        payload = payload_here(job, place, folder.run_id, threads)
        end = world.while_driven(lambda: drive.run(coordinator, world, heard), payload)
    folder.status.write(coordinator.view(), state=end.status)
    return end


def _chosen(job: JobSpec, places: tuple[Place, ...]) -> tuple[Place, ...]:
    """The devices that train: all, or for a debugger the first."""
    return places[:1] if job.debug.inprocess else places


def _counted(job: JobSpec) -> dict[str, int]:
    """Host label -> GPUs. Raises ConfigError for a host that is not this machine."""
    elsewhere = [host.host for host in job.cluster.workers if not is_here(host)]
    if elsewhere:
        raise ConfigError(f"cluster.workers: {', '.join(elsewhere)}: only hosts of this machine can be reached so far")
    return {host.host: count_gpus() for host in job.cluster.workers}


def _conclude(folder: RunFolder, found: Result, console: Console) -> None:
    folder.write_result(found)
    print_summary(found, console)


class _Story:
    """What is gathered beside the coordinator: who the ranks are, when the first step came, what they wrote."""

    def __init__(self, folder: RunFolder, begun: float) -> None:
        self.folder = folder
        self.shown: Terminal | None = None
        self._begun = begun
        self._run = Run(mode="auto", average="auto", world_size=0, run_id=folder.run_id)
        self._places: dict[int, Place] = {}
        self._first_step_at: float | None = None
        self._rank_versions: dict[int, dict[str, str]] = {}
        self._lines: deque[tuple[str, str]] = deque(maxlen=KEPT_SHOWN)

    def meet(self, job: JobSpec, places: Sequence[Place]) -> None:
        """The roster is known."""
        self._places = {place.rank: place for place in places}
        self._run = Run(
            name=job.name,
            run_id=self.folder.run_id,
            mode=job.elche.mode,
            average=job.elche.averages,
            world_size=len(places),
            hosts=hosts_of(places),
        )

    def line(self, rank: int, host: str, text: str) -> None:
        """A line of a rank (-1: of the host's own processes). Called in another thread: only the rank's log is written
        here, the terminal and the controller's log get it in `pass_on`."""
        place = self._places.get(rank)
        if place is None:
            self._lines.append((f"[{host}]", text))
            return
        log = self.folder.rank_log(host, rank, place.device)
        said = log.append(text)
        if WORTH_SEEING.search(said):
            self._lines.append((log.prefix, said))

    def pass_on(self) -> None:
        """Show what came in since the last call."""
        while self._lines:
            prefix, text = self._lines.popleft()
            self.folder.log.append(f"{prefix} {text}")
            if self.shown is not None:
                self.shown.foreign(prefix, clean(text))

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """A listener: the ranks' versions, the moment of the first window."""
        if isinstance(event, RankReady):
            self._rank_versions[event.rank] = dict(event.versions)
        if self._first_step_at is None and any(isinstance(command, RunWindow) for command in commands):
            self._first_step_at = time.monotonic()

    def mourn(self, event: Event, commands: Sequence[Command]) -> None:
        """A listener: a dead rank's last lines."""
        if isinstance(event, RankDied) and self.shown is not None:
            place = self._places[event.rank]
            log = self.folder.rank_log(place.host, place.rank, place.device)
            for text in tuple(log.tail):
                self.shown.foreign(log.prefix, text)

    def failure(self, error: Exception | KeyboardInterrupt) -> Exception:
        """The error as a person should be told it: a folder that cannot be written in is no bug of ours."""
        if isinstance(error, KeyboardInterrupt):
            return Interrupted("a signal before anything was started")
        if not isinstance(error, OSError) or not error.strerror:
            return error
        kind = NotReady if self._first_step_at is None else RunLost
        return kind(f"{error.filename or self.folder.path}: {error.strerror}")

    def told(self) -> Run:
        """What the result says beside the coordinator's totals."""
        first = self._first_step_at
        return msgspec.structs.replace(
            self._run,
            startup_seconds=0.0 if first is None else first - self._begun,
            checkpoints=self.folder.checkpoints,
            versions=self._versions(),
        )

    def _versions(self) -> Versions:
        return msgspec.structs.replace(versions(Path.cwd()), ranks=self._rank_versions)
