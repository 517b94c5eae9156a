"""One run on real devices, from a job to its result: hosts, keys, link, ranks, the drive, and a tidy end.

The controller is never a rank, loads no torch and touches no GPU. Whatever happens, what was started is ended; agents
stay where fleets are kept (`flodl.engine.fleet.keep`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from rich.console import Console

from flodl import drive
from flodl.caller import Caller
from flodl.decide.messages import End, Event
from flodl.decide.own_loop import Decider, decider
from flodl.decide.roster import Place, resolve_mode, roster
from flodl.decide.timeouts import timeouts_of
from flodl.desk import Desk
from flodl.engine.facts import num_cores
from flodl.engine.fleet import the_fleet
from flodl.engine.inprocess import InProcessWorld, payload_here
from flodl.engine.keys import make_keys
from flodl.engine.launches import launches, threads_by_host, told
from flodl.engine.server import Listen
from flodl.engine.signals import SignalWatch
from flodl.engine.world import LiveWorld
from flodl.errors import ConfigError, FlodlError
from flodl.muster import Mustered, muster, pass_gate, transport_of
from flodl.origin import Origin, origin_of
from flodl.ports import Fleet, UploadSink
from flodl.probe.clock import seconds_until
from flodl.probe.gpus import count_gpus
from flodl.probe.here import is_here
from flodl.probe.watching import GpuWatch
from flodl.record.folder import RunFolder
from flodl.record.keeper import Keeper, Owner
from flodl.record.result import Result, failed_result, result
from flodl.record.text import clean, short_path
from flodl.report.leave import leave_run_page
from flodl.report.onward import ended_early, onward
from flodl.report.rig import rig_line
from flodl.report.summary import print_summary
from flodl.report.terminal import PlainTerminal, Terminal, terminal, terminal_console
from flodl.spec.codec import canonical_json, sha256
from flodl.spec.job import JobSpec
from flodl.story import Story

__all__ = ["resolved", "run"]

PATIENCE = 5  # signals, while a result is written


def run(
    job: JobSpec,
    folder: RunFolder,
    *,
    listeners: Iterable[drive.Listener] = (),
    console: Console | None = None,
    begun: float | None = None,
    caller: Caller | None = None,
) -> End:
    """Train `job`, write everything into `folder`, print what a person should see.

    begun: when the command was given (time.monotonic()); now where it is not told. caller: the program that asked for
    it, where one did. Returns how it ended; raises ConfigError before anything is started, NotReady where the start
    fails, Interrupted after a second signal. The folder holds a result in every case.
    """
    console = terminal_console() if console is None else console
    story = Story(folder, time.monotonic() if begun is None else begun, caller)
    desk = Desk(folder, story.say)
    try:
        folder.write_spec(canonical_json(job), sha256(job))
        desk.open(job)
        # Where a detached run's output goes its log is written too: what both would say is said once.
        watched = Console(quiet=True) if job.launch.detach else console
        with closing(folder):
            end = _trained(job, story, (*listeners, desk.observe), watched)
            found = _written(end, story)
            _take_leave(desk, found, story)
    except (Exception, KeyboardInterrupt) as error:
        told = story.failure(error)
        failed = failed_result(told, story.told(), story.totals())
        with suppress(OSError):  # a full disk refuses this too
            _leave(folder, failed)
        _take_leave(desk, failed, story)
        _part_failed(story, failed, console, job, told)
        if told is error:
            raise
        raise told from error
    _part(story, found, console, job)
    return end


def resolved(job: JobSpec, places: Sequence[Place]) -> JobSpec:
    """The job as the coordinator runs it: `auto` became a mode. A journal is replayed with this job."""
    return job.replace(elche=job.elche.resolved(resolve_mode(places)))


def _trained(job: JobSpec, story: Story, listeners: tuple[drive.Listener, ...], console: Console) -> End:
    """How the run ended. A signal while what was started is tidied up finds one that is over, and breaks off no more
    than that."""
    try:
        return (_train_here if job.debug.inprocess else _train)(job, story, listeners, console)
    except KeyboardInterrupt:
        if story.end is None:
            raise
        story.is_late_signalled = True
        return story.end


@contextmanager
def _over(story: Story) -> Iterator[None]:
    """The run is over: a signal breaks off what is done in here, and changes nothing of what became of the run."""
    try:
        yield
    except KeyboardInterrupt:
        story.is_late_signalled = True


def _train(job: JobSpec, story: Story, listeners: tuple[drive.Listener, ...], console: Console) -> End:
    def say(text: str) -> None:
        for line in text.splitlines():  # a table keeps its lines
            story.folder.log.append(line)
            console.print(clean(line), markup=False, highlight=False, soft_wrap=True)

    origin = origin_of(job, say)
    hosts = ", ".join(host.host for host in job.cluster.workers)
    story.folder.log.append(f"hosts are prepared, met and looked at: {clean(hosts)}")
    with the_fleet(transport_of(job), story.caller.open_agent) as fleet:
        with story.folder.status.refreshed():
            mustered = muster(job, fleet, say)
        job = resolved(job.replace(elche=job.elche.resolved(mustered.mode)), mustered.places)
        story.meet(job, mustered.places)
        return _train_on(_Scene(job, mustered, fleet, origin), story, listeners, console)


class _Scene(NamedTuple):
    """What a run needs, gathered."""

    job: JobSpec
    mustered: Mustered
    fleet: Fleet
    origin: Origin


def _coordinator(job: JobSpec, places: Sequence[Place], story: Story) -> Decider:
    """Who decides the run; what it adds up to is known from now on, and written down."""
    coordinator = decider(job, places)
    story.add_up = coordinator.totals
    story.folder.start_journal(sha256(job), places)
    return coordinator


def _keeper(coordinator: Decider, folder: RunFolder, job: JobSpec, num_ranks: int) -> tuple[Keeper, _Door]:
    """Who keeps the run's bundles; what it tells comes in through a door that opens with the world."""
    door = _Door()
    owner = Owner(run_id=folder.run_id, spec_sha256=sha256(job), world_size=num_ranks)
    store = folder.bundles(job.checkpoint)
    return Keeper(store, owner, fixed=lambda: coordinator.fixed, tell=door.tell), door


class _Door:
    """Events on their way into a world that is not there yet."""

    def __init__(self) -> None:
        self.world: LiveWorld | InProcessWorld | None = None

    def tell(self, event: Event) -> None:
        """Hand it in."""
        if self.world is not None:
            self.world.tell(event)


def _open_upload(keeper: Keeper, folder: RunFolder) -> Callable[[int, str], UploadSink]:
    return lambda rank, name: keeper.open_upload(rank, name) or folder.open_upload(rank, name)


def _train_on(scene: _Scene, story: Story, listeners: tuple[drive.Listener, ...], console: Console) -> End:
    job, mustered, fleet, origin = scene
    folder, controller, places = story.folder, job.cluster.controller, mustered.places
    coordinator = _coordinator(job, places, story)
    keeper, door = _keeper(coordinator, folder, job, len(places))
    limits = timeouts_of(job.membership.timeout_scale)
    keys = make_keys(place.rank for place in places)
    world = LiveWorld.open(
        places,
        fleet.fan_out(),
        listen=Listen(controller.bind or controller.host, controller.port, folder.run_id, keys, limits),
        open_upload=_open_upload(keeper, folder),
        read=origin.read,
        on_line=story.line,
    )
    door.world = world
    with closing(world), closing(keeper), closing(GpuWatch.begin(fleet, mustered.gpus)) as gpus:
        story.watch(gpus)
        endpoints, threads = told(controller, world.endpoints), mustered.threads
        rig = rig_line(job, places, threads)
        folder.log.append(f"{rig}: every way that the run needs is tried")
        with folder.status.refreshed():
            pass_gate(job, fleet, mustered, endpoints)
        hosts = launches(job, places, run_id=folder.run_id, keys=keys, endpoints=endpoints, threads=threads)
        with SignalWatch(world), terminal(coordinator.view, console, len(places)) as shown:
            story.begin(shown, world)
            folder.log.append("the hosts are ready: ranks are started")
            shown.say(rig)
            _begin(job, world, origin)
            tried = world.server.strangers()  # the gate's own connects
            world.launch(hosts, controller.join)
            heard = (folder.observe, keeper.observe, story.observe, shown.observe, story.mourn, *listeners)
            try:
                story.end = end = drive.run(coordinator, world, heard, tick=_tick(story, shown, coordinator))
            finally:
                story.count_strangers(world.server.strangers() - tried)
    story.pass_on()  # what was said of hosts while the run was ended
    folder.status.write(coordinator.view(), state=end.status)
    return end


def _tick(story: Story, shown: Terminal, coordinator: Decider) -> drive.Tick:
    def tick() -> None:
        story.pass_on()
        shown.tick()
        story.folder.status.keep(coordinator.view)

    return tick


def _train_here(job: JobSpec, story: Story, listeners: tuple[drive.Listener, ...], console: Console) -> End:
    """The one rank is this process: its output is the terminal's, and its signals are the debugger's."""
    place = roster(job, _counted(job))[0]
    job = resolved(job, (place,))
    story.meet(job, (place,))
    folder, coordinator = story.folder, _coordinator(job, (place,), story)
    keeper, door = _keeper(coordinator, folder, job, 1)
    origin = origin_of(job, folder.log.append)
    door.world = world = InProcessWorld(_open_upload(keeper, folder), origin.read)
    threads = threads_by_host(job.cluster, (place,), {place.host: {"cores": num_cores(), "machine": place.host}})
    with closing(keeper), PlainTerminal(coordinator.view, console) as shown:
        story.shown = shown
        shown.say(f"{rig_line(job, (place,), threads)}, in this process")
        _begin(job, world, origin)
        heard = (folder.observe, keeper.observe, story.observe, shown.observe, *listeners)
        payload = payload_here(job, place, folder.run_id, threads[place.host])
        story.end = end = world.while_driven(lambda: drive.run(coordinator, world, heard), payload)
    folder.status.write(coordinator.view(), state=end.status)
    return end


def _begin(job: JobSpec, world: LiveWorld | InProcessWorld, origin: Origin) -> None:
    """What the coordinator has to know before any rank is heard."""
    for event in origin.events():
        world.tell(event)
    if job.stop.at is not None:
        world.end_by(seconds_until(job.stop.at), f"stop.at={job.stop.at}")


def _counted(job: JobSpec) -> dict[str, int]:
    """Host label -> GPUs. Raises ConfigError for a host that is not this machine."""
    elsewhere = [host.host for host in job.cluster.workers if not is_here(host)]
    if elsewhere:
        names = ", ".join(elsewhere)
        raise ConfigError(f"debug.inprocess: {names}: the one rank is this process, which is on no other machine")
    return {host.host: count_gpus() for host in job.cluster.workers}


def _leave(folder: RunFolder, found: Result) -> None:
    """What became of the run, and then a page of it for people: whoever ends us meanwhile costs the page only."""
    folder.write_result(found)
    trouble = leave_run_page(folder, found)
    if trouble:
        with suppress(OSError, ValueError):  # the log may be closed, the disk full
            folder.log.append(trouble)


def _written(end: End, story: Story) -> Result:
    """The result of a run that is over, written, whatever signals come meanwhile."""
    for _ in range(PATIENCE):
        with _over(story):
            found = result(end, story.told())
            _leave(story.folder, found)
            return found
    raise KeyboardInterrupt


def _take_leave(desk: Desk, found: Result, story: Story) -> None:
    """Loggers' last words. The result is written: a signal, or a full disk, costs these and nothing else."""
    with _over(story), suppress(OSError):
        desk.conclude(found)


def _part(story: Story, found: Result, console: Console, job: JobSpec) -> None:
    """Say what became of it; and to whoever asked for the run, whether they were to be stopped meanwhile."""
    with _over(story):
        _conclude(story.folder, found, console, job)
    if story.is_late_signalled:
        story.caller.on_late_signal()


def _part_failed(story: Story, found: Result, console: Console, job: JobSpec, error: Exception) -> None:
    """Say it of a run that an error has ended: where nothing was trained, there is no summary that could tell it."""
    with _over(story), suppress(OSError):
        if not found.samples_done:
            _say_where(story.folder, found, console, job)
            return
        _conclude(story.folder, found, console, job)
        if isinstance(error, FlodlError):
            error.is_told = True


def _conclude(folder: RunFolder, found: Result, console: Console, job: JobSpec) -> None:
    print_summary(found, console)
    _say_where(folder, found, console, job)


def _say_where(folder: RunFolder, found: Result, console: Console, job: JobSpec) -> None:
    """Where the run lies, whatever became of it, its weights where it has saved any, and how it goes on."""
    places = {"report": folder.report_path, "run folder": folder.path, "weights": folder.weights_path}
    for name, path in places.items():
        if path.exists():
            console.print(f"{name}: {short_path(path)}", markup=False, highlight=False, soft_wrap=True)
    further = onward(folder, job) if ended_early(found) else ""
    if further:
        console.print(further, markup=False, highlight=False, soft_wrap=True)
