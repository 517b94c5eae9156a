"""Where a run's figures go out to its loggers, and a sweep's comparison to those of its arms.

A logger is made and checked before anything is started: a name that may not be called, a wrong argument, a package that
is missing. From then on nothing that it does ends a run or holds it up: see `courier`.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from flodl.courier import Courier
from flodl.decide.messages import CallbackResult, Command, EpochEnded, Event, Goodbye, IntervalEnded, WindowDone
from flodl.engine.trust import Trust, checked
from flodl.errors import ConfigError, FlodlError, Problem
from flodl.ports import LoggedArm, LoggedRun, LoggedSweep, Logger
from flodl.record import figures
from flodl.record.folder import RunFolder
from flodl.record.result import Result
from flodl.record.sweep import SweepFolder
from flodl.report.arm import Arm
from flodl.report.gather import arms_of_sweep
from flodl.spec.codec import job_to_plain, load_spec
from flodl.spec.component import Component
from flodl.spec.job import JobSpec

__all__ = ["Desk", "made", "tell_sweep"]

END_SECONDS = 120.0  # a logger's last words, an upload included ...
PATIENCE_SECONDS = 5.0  # ... of which people are told after so long ...
HURRIED_SECONDS = 3.0  # ... and where a person has interrupted the run

APART = ("logger", "launch", "trusted_targets")  # of a job: what says nothing of the training ...
OF_A_HOST = ("host", "local_devices", "overrides", "speed")  # ... and of a host: what does

Say = Callable[[str], None]


class Desk:
    """One run's. say: tells people, from the caller's thread. Until it is opened it does nothing."""

    def __init__(self, folder: RunFolder, say: Say) -> None:
        self._folder = folder
        self._say = say
        self._couriers: list[Courier] = []
        self._run: LoggedRun | None = None
        self._ends: dict[int, int] = {}  # epoch -> samples of the run at its end

    def open(self, job: JobSpec) -> None:
        """Make the job's loggers. Raises ConfigError; starts nothing yet."""
        sweep = self._folder.sweep
        place = "" if sweep is None else f" {self._folder.path.name}"
        self._couriers = [Courier(name, logger) for name, logger in made(job).items()]
        self._run = LoggedRun(
            name=job.name + place,
            run_id=self._folder.run_id,
            folder=str(self._folder.path),
            sweep="" if sweep is None else str(sweep.absolute()),
            parameters={key: value for key, value in _leaves(job_to_plain(job)) if _is_of_training(key)},
        )

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """A listener of drive.run: hands figures on, and tells what went wrong since."""
        if not self._couriers:
            return
        for command in commands:
            if isinstance(command, EpochEnded):
                end = self._ends[command.metrics.epoch] = (command.metrics.epoch + 1) * command.metrics.samples
                self._log(figures.of_epoch(command.metrics), end)
            elif isinstance(command, IntervalEnded):
                part = command.metrics
                whole = round(part.samples * part.intervals / part.interval)
                self._log(figures.of_interval(part), part.epoch * whole + part.samples)
        if isinstance(event, WindowDone | Goodbye):
            for result in event.callbacks:
                self._evaluated(result)
        self._tell()

    def conclude(self, result: Result) -> None:
        """The run is over. Waits for the loggers, a while."""
        told = figures.of_result(result)
        self._post(lambda logger: logger.end(result.status, told))
        _finish(self._couriers, HURRIED_SECONDS if result.status == "interrupted" else END_SECONDS, self._say)
        self._tell()

    def _evaluated(self, result: CallbackResult) -> None:
        if result.name == "eval" and result.ok:
            newest = max(self._ends.values(), default=0)
            self._log(figures.of_eval(result.values), result.samples_done or self._ends.get(result.epoch, newest))

    def _log(self, told: Mapping[str, float], step: int) -> None:
        at = time.time()
        self._post(lambda logger: logger.log(told, step, at))

    def _post(self, call: Callable[[Logger], None]) -> None:
        """To all of them; the first call of a run is told after its beginning."""
        run, self._run = self._run, None
        for courier in self._couriers:
            if run is not None:
                courier.post(lambda logger: logger.begin(run))
            courier.post(call)

    def _tell(self) -> None:
        for text in _troubles(self._couriers):
            self._say(text)


def made(job: JobSpec) -> dict[str, Logger]:
    """The job's loggers by name. Raises ConfigError with everything that is wrong with any of them."""
    components = {f"logger.{name}": component for name, component in job.logger.items()}
    trees = checked(components, Trust(job.trusted_targets, Path.cwd()))
    problems: list[Problem] = []
    found: dict[str, Logger] = {}
    for name, component in job.logger.items():
        logger = _made(name, component, trees[f"logger.{name}"], problems)
        if logger is not None:
            found[name] = logger
    if problems:
        raise ConfigError(problems)
    return found


def tell_sweep(sweep: SweepFolder, say: Say) -> None:
    """A sweep is over: its comparison goes to every logger that heard of one of its arms, once. Raises nothing."""
    if not sweep.comparison_json_path.is_file():
        return
    try:
        arms = arms_of_sweep(sweep)
        loggers = _loggers_of(sweep, arms)
        text = sweep.comparison_markdown_path.read_text() if loggers else ""
    except (FlodlError, OSError) as error:
        say(f"warning: no logger is told of the comparison: {error}")
        return
    told = LoggedSweep(
        name=f"sweep {sweep.path.parent.name} {sweep.path.name}",
        folder=str(sweep.path),
        text=text,
        arms=tuple(_logged(sweep, arm) for arm in arms),
    )
    couriers = [Courier(name, logger) for name, logger in loggers]
    for courier in couriers:
        courier.post(lambda logger: logger.compare(told))
    _finish(couriers, END_SECONDS, say)
    for line in _troubles(couriers):
        say(line)


def _loggers_of(sweep: SweepFolder, arms: Sequence[Arm]) -> list[tuple[str, Logger]]:
    """Those of the arms that ran in this sweep, each once. Raises ConfigError."""
    own = [arm.folder for arm in arms if arm.attempts and arm.folder and not Path(arm.folder).is_absolute()]
    jobs = [job for folder in own if (job := _job_of(sweep.path / folder)) is not None]
    distinct = {(name, repr(component)): job.replace(logger={name: component})
                for job in jobs for name, component in job.logger.items()}  # fmt: skip
    return [pair for job in distinct.values() for pair in made(job).items()]


def _logged(sweep: SweepFolder, arm: Arm) -> LoggedArm:
    return LoggedArm(
        name=arm.name,
        overrides=arm.overrides,
        status=arm.status,
        folder=str(sweep.path / arm.folder) if arm.folder else "",
        figures={} if arm.result is None else figures.of_result(arm.result),
    )


def _made(name: str, component: Component, tree: dict[str, Any], problems: list[Problem]) -> Logger | None:
    key, callee = f"logger.{name}", tree["_target_"]
    arguments = {argument: value for argument, value in tree.items() if argument != "_target_"}
    if not name:
        problems.append(Problem(key="logger", constraint="a logger has no name"))
        return None
    try:
        logger = callee(**arguments)
    except Exception as error:  # noqa: BLE001 - a logger of the user's may raise anything
        problems.append(Problem(key=key, value=component.name, constraint=f"cannot be made: {error}"))
        return None
    missing = [package for package in getattr(logger, "requires", ()) if importlib.util.find_spec(package) is None]
    if missing:
        extra = getattr(logger, "extra", "")
        remedy = f"pip install 'flodl[{extra}]'" if extra else f"pip install {' '.join(missing)}"
        problems.append(Problem(key=key, constraint=f"needs {', '.join(missing)}, which is not installed here",
                                remedy=remedy))  # fmt: skip
    return cast("Logger", logger)


def _job_of(folder: Path) -> JobSpec | None:
    try:
        return load_spec(RunFolder(folder).spec_path)
    except FlodlError:
        return None


def _leaves(node: object, key: str = "") -> Iterator[tuple[str, str | int | float | bool | None]]:
    """Every leaf of a plain tree by its dotted key; an empty list or map is a leaf in words."""
    if isinstance(node, Mapping | list) and node:
        pairs = node.items() if isinstance(node, Mapping) else enumerate(node)
        for name, value in cast("Any", pairs):
            yield from _leaves(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, str | int | float | bool | None):
        yield key, node
    else:
        yield key, str(node)


def _is_of_training(key: str) -> bool:
    """Whether a service is told of a key: not of how hosts are reached, of their folders, nor of the services."""
    top, *rest = key.split(".")
    if top == "cluster":
        return rest[0] == "workers" and (len(rest) < 3 or rest[2] in OF_A_HOST)  # workers.<n>.<key>
    return top not in APART


def _finish(couriers: Sequence[Courier], seconds: float, say: Say) -> None:
    """Wait for last words. Ctrl-C ends the waiting, not what is over already: the run and its result."""
    begun = time.monotonic()
    for courier in couriers:
        courier.close()
    try:
        if seconds > PATIENCE_SECONDS and not all(c.wait(begun + PATIENCE_SECONDS) for c in couriers):
            names = ", ".join(courier.name for courier in couriers if not courier.wait(begun))
            say(f"waiting for the last words of logger {names}, at most {seconds:.0f} s; Ctrl-C ends the waiting")
        for courier in couriers:
            courier.leave(begun + seconds)
    except KeyboardInterrupt:
        for courier in couriers:
            courier.leave(begun)


def _troubles(couriers: Sequence[Courier]) -> Iterator[str]:
    for courier in couriers:
        while (text := courier.trouble()) is not None:
            yield text
