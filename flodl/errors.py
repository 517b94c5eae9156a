"""Every error that flodl raises on purpose, and the exit code each one means.

::

    FlodlError                  4   something failed while the run was under way
    |-- ConfigError             2   the configuration is wrong: every problem at once, each with a remedy
    |-- NotReady                3   a failure before the first window: host, environment, data, build
    |   `-- HostUnready         3   one host cannot be used; where several are, all are told together
    |-- RunFailed               4   ranks died or a step raised; the newest bundle is whole
    |   `-- RunLost             5   the same, and there is no bundle to resume from
    |-- TaskFindings            1   a task (probe, setup, sweep) found something to mend
    |-- Skipped                 0   an arm of a sweep that need not run, or cannot on this rig
    `-- Interrupted            75   a signal ended the run (130 where nothing can be resumed)

Tasks raise; only ``flodl.__main__`` turns an error into an exit code (a SystemExit inside a sweep's arm would
end the whole sweep).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ConfigError",
    "FlodlError",
    "HostUnready",
    "Interrupted",
    "NotReady",
    "Problem",
    "RunFailed",
    "RunLost",
    "Skipped",
    "TaskFindings",
    "in_words",
]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong, told so that a person can mend it.

    key: dotted config key or host name. value: what stood there, as text. constraint: why it cannot be.
    remedy: what to do, "" where the constraint says it all. is_rigs: the value is right in itself, and the devices of
    this rig are not those that it needs.
    """

    key: str
    value: str = ""
    constraint: str
    remedy: str = ""
    is_rigs: bool = False

    def __str__(self) -> str:
        shown = f"{self.key}={self.value}" if self.value else self.key
        return f"{shown}: {self.constraint}" + (f"; {self.remedy}" if self.remedy else "")


class FlodlError(Exception):
    """The family's root: a failure that flodl explains. is_told: the user has read it (a run's last lines said it).
    objective: what a sweep that learns is told all the same."""

    exit_code = 4
    is_told = False
    objective: float | tuple[float, ...] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is, whatever its constructor takes: an arm of a sweep may run in a process of its own."""
        return _again, (type(self), self.args), self.__dict__


class ConfigError(FlodlError):
    """The configuration is wrong. Holds all problems, not only the first."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        if isinstance(problems, str):
            problems = (Problem(key="config", constraint=problems),)
        self.problems = tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))

    @property
    def is_rigs(self) -> bool:
        """True where nothing is wrong but the choice of devices: in a sweep such an arm is skipped."""
        return bool(self.problems) and all(problem.is_rigs for problem in self.problems)


class NotReady(FlodlError):
    """Something failed before the first window; nothing was trained."""

    exit_code = 3


class HostUnready(NotReady):
    """One host cannot be used. kind: what it is, as one word (see KINDS); remedy: what to do about it; lines: what was
    last heard from there."""

    KINDS = (
        "unreachable", "refused", "auth", "host_key_unknown", "host_key_changed", "login_shell", "no_python",
        "no_flodl", "no_path", "timeout", "protocol", "ended",
    )  # fmt: skip

    def __init__(self, host: str, kind: str, message: str, remedy: str = "", lines: Iterable[str] = ()) -> None:
        self.host = host
        self.kind = kind
        self.message = message
        self.remedy = remedy
        self.lines = tuple(lines)
        heard = "".join(f"\n  | {line}" for line in self.lines)
        super().__init__(f"{host}: {message}" + (f"; {remedy}" if remedy else "") + heard)


class RunFailed(FlodlError):
    """The run ended early by a failure; the newest bundle is whole."""

    exit_code = 4


class RunLost(RunFailed):
    """The run ended early by a failure and left no bundle."""

    exit_code = 5


class TaskFindings(FlodlError):
    """A task did its work and found something to mend."""

    exit_code = 1


class Skipped(FlodlError):
    """An arm of a sweep was not run, and that is no failure. folder: where its result lies already, "" : nowhere."""

    exit_code = 0

    def __init__(self, message: str, *, folder: str = "", objective: float | tuple[float, ...] | None = None) -> None:
        super().__init__(message)
        self.folder = folder
        self.objective = objective


class Interrupted(FlodlError):
    """A signal ended the run. exit_code is 130 unless a bundle can be resumed (75)."""

    RESUMABLE = 75

    def __init__(self, message: str, *, exit_code: int = 130) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def in_words(error: BaseException) -> str:
    """What went wrong, in one line: our own errors say all, of others the kind helps."""
    return str(error) if isinstance(error, FlodlError) else f"{type(error).__name__}: {error}"


def _again(kind: type[FlodlError], args: tuple[Any, ...]) -> FlodlError:
    error = kind.__new__(kind)
    error.args = args
    return error
