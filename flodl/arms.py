"""The arms of one command line, and what they mean together: an only arm's own error, or the list of those that failed.

A launcher that tries again, or runs arms in other processes, knows better than the calls of the task function: what it
tells replaces what was gathered here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flodl.decide.roster import roster
from flodl.errors import ConfigError, FlodlError, Interrupted, Problem, Skipped, TaskFindings
from flodl.plan import gpus_of, uncounted
from flodl.record.figures import Objective, of_objective
from flodl.record.result import read_result
from flodl.record.sweep import finished_run, spec_digest
from flodl.spec.codec import load_spec, sha256
from flodl.spec.elche import ElCheConfig
from flodl.spec.guard import TrendGuardConfig
from flodl.spec.job import JobSpec, MetaConfig
from flodl.spec.outer import AverageConfig

__all__ = ["Arm", "Arms", "refuse_finished"]


@dataclass(kw_only=True)
class Arm:
    """One call of the task function. error: None where all went well."""

    overrides: Sequence[str]
    error: Exception | None = None


@dataclass(kw_only=True)
class Arms:
    """All of them so far. typed: the command line. is_told: a launcher has shown the user what became of each. folder:
    the sweep's."""

    typed: Sequence[str] = ()
    arms: list[Arm] = field(default_factory=list[Arm])
    is_sweep: bool = False
    is_told: bool = False
    folder: Path | None = None
    is_broken_off: bool = False  # a signal came when an arm was over: it was for the sweep
    alone: dict[str, str] = field(default_factory=dict[str, str])  # what one device was given -> that arm's overrides

    def attempt(self, overrides: Sequence[str], perform: Callable[[], Objective | None]) -> Objective | None:
        """One arm, and what a sweep that learns is told of it. In a sweep its error passes through, for Hydra to mark
        it and to go on with the next."""
        arm = Arm(overrides=overrides)
        self.arms.append(arm)
        try:
            if self.is_sweep and self.was_interrupted:
                raise Interrupted("not started: an earlier arm was interrupted")
            if self.is_broken_off:
                raise Interrupted("not started: a signal came when the arm before was over")
            return perform()
        except ConfigError as error:
            arm.error = Skipped(str(error)) if self.is_sweep and error.is_rigs else error
        except Exception as error:  # noqa: BLE001 - raised below, or by `conclude`
            arm.error = error
        if self.is_sweep:
            raise arm.error
        return None

    def break_off(self) -> None:
        """No further arm begins."""
        self.is_broken_off = True

    def told(self, found: Iterable[tuple[Sequence[str], Exception | None]], folder: Path | None = None) -> None:
        """From the launcher: overrides and final error of every arm of the sweep, and where it lies."""
        self.folder = folder
        self.arms = [Arm(overrides=overrides, error=error) for overrides, error in found]
        self.is_sweep = self.is_told = True  # the arms may have run in other processes

    def refuse_same(self, job: JobSpec, overrides: Sequence[str]) -> None:
        """Raise Skipped where one device trains alone, and an earlier arm differs in nothing that matters then."""
        if not self.is_sweep or uncounted(job) or len(roster(job, gpus_of(job))) > 1:
            return
        bare = job.replace(elche=ElCheConfig(), guard=TrendGuardConfig(), meta=MetaConfig(), outer=AverageConfig())
        earlier = self.alone.setdefault(sha256(bare), " ".join(overrides))
        if earlier != " ".join(overrides):
            raise Skipped(f"one device trains alone and averages nothing, so this is the same as {earlier}; "
                          "name a cluster of several devices, such as cluster=rehearsal")  # fmt: skip

    @property
    def was_interrupted(self) -> bool:
        """Whether a signal ended one of them, or kept it from beginning."""
        return any(isinstance(arm.error, Interrupted) for arm in self.arms)

    def hold(self, error: Exception) -> bool:
        """Whether it is an arm's, so that `conclude` tells it."""
        return any(arm.error is error for arm in self.arms)

    def conclude(self) -> None:
        """Raise what the arms ended with; nothing where all went well or were skipped."""
        if not self.is_sweep:
            error = next((arm.error for arm in self.arms if arm.error is not None), None)
            if error is not None:
                raise error
            return
        if not self.arms:
            raise ConfigError([Problem(key="-m", constraint="no arms: what is swept over holds no value",
                                       remedy="look at its range(...), glob(...) or list")])  # fmt: skip
        failed = [arm for arm in self.arms if arm.error is not None and not isinstance(arm.error, Skipped)]
        bug = next((arm.error for arm in failed if not isinstance(arm.error, FlodlError)), None)
        if bug is not None:
            raise bug
        signals = [arm.error.exit_code for arm in failed if isinstance(arm.error, Interrupted)]
        if signals:
            told = self._listed(failed, "were interrupted or not started") + self._onward()
            raise Interrupted(told, exit_code=max(signals))
        if failed:
            raise TaskFindings(self._listed(failed, "failed"))

    def _onward(self) -> str:
        """What does those that are not done, from their start; "" for another launcher, which has no such key, or a
        sweeper that learns: its next study asks for others."""
        if not self.is_told or any(text.startswith("hydra/sweeper=") for text in self.typed):
            return ""
        key = "hydra.launcher.skip_completed"
        words = [text for text in self.typed if text.lstrip("+").partition("=")[0] != key]
        return f"; to do these anew: {shlex.join(['python', '-m', 'flodl', *words, f'{key}=true'])}"

    def _listed(self, failed: Sequence[Arm], fate: str) -> str:
        head = f"{len(failed)} of {len(self.arms)} arms {fate}"
        if self.is_told:
            return head
        lines = [f"{head}:"]
        for arm in failed:
            said = str(arm.error).splitlines() or [type(arm.error).__name__]
            lines.extend([f"  {' '.join(arm.overrides) or '(no overrides)'}", *(f"    {line}" for line in said)])
        return "\n".join(lines)


def refuse_finished(job: JobSpec, roots: Iterable[Path], *, hosts_may_differ: bool) -> None:
    """Raise Skipped where a run of the same job ended well under `roots`.

    hosts_may_differ: arms run on whatever hosts are free, so which ones a run had says nothing about its job.
    """
    wanted = sha256(job)

    def is_same(spec: Path) -> bool:
        return spec_digest(spec) == wanted or (hosts_may_differ and _digest_on(job, spec) == wanted)

    found = finished_run(roots, is_same)
    if found is not None:
        value, _ = of_objective(job, read_result(found.result_path))
        raise Skipped(f"finished before: {found.path}", folder=str(found.path), objective=value)


def _digest_on(job: JobSpec, spec: Path) -> str:
    """The digest of a run's job, had it had as many of this job's hosts."""
    try:
        other = load_spec(spec)
    except FlodlError:
        return ""
    if len(other.cluster.workers) != len(job.cluster.workers):
        return ""
    return sha256(other.replace(cluster=other.cluster.replace(workers=job.cluster.workers)))
