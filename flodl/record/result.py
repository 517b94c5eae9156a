"""result: what became of a run, in one value. Written last and moved into place; reports and other tools read it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from flodl.decide.messages import End
from flodl.decide.totals import RankTotals, RunTotals
from flodl.errors import FlodlError, RunLost
from flodl.record.files import write_atomically
from flodl.record.gpu_use import GpuUse
from flodl.record.versions import Versions

__all__ = ["RESULT_SCHEMA", "Result", "Run", "Status", "failed_result", "read_result", "result", "write_result"]

RESULT_SCHEMA = 1
Status = Literal["done", "degraded", "stopped", "failed", "interrupted"]

_NOTHING = RunTotals(
    epochs_done=0,
    samples_done=0,
    rounds=0,
    wall_seconds=0.0,
    samples_per_second=0.0,
    ideal_samples_per_second=0.0,
    utilisation=0.0,
    anchor=0,
    phase="probe",
    averaging_seconds_exposed=0.0,
    divergence_last=0.0,
    train_loss=None,
    eval={},
    dead_ranks=(),
    ranks=(),
)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller knows of a run beside what the Coordinator adds up.

    mode, average: as resolved. hosts: labels in rank order, each once. startup_seconds: from the command to the
    first step. checkpoints: names of the files that can be gone on from or loaded, newest last. gpus: what those of
    the ranks did, as far as they were watched.
    """

    name: str = "run"
    run_id: str = ""
    mode: str
    average: str
    world_size: int
    hosts: tuple[str, ...] = ()
    startup_seconds: float = 0.0
    checkpoints: tuple[str, ...] = ()
    gpus: tuple[GpuUse, ...] = ()
    versions: Versions = Versions()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run, whole. Times in seconds, rates in samples per second.

    wall_seconds: first window's start to last accepted round, less evaluation, saves and callbacks.
    ideal_samples_per_second: sum over ranks of what each did per second of its own compute. utilisation: the
    quotient of samples_per_second and that. averaging_seconds_exposed: averaging that training waited for.
    dead_ranks: at the end. restarts: rank -> processes that were started for it after its first one had died.
    """

    schema: int = RESULT_SCHEMA
    name: str
    run_id: str
    status: Status
    reason: str
    exit_code: int
    mode: str
    average: str
    world_size: int
    hosts: tuple[str, ...]
    epochs_done: int
    samples_done: int
    wall_seconds: float
    startup_seconds: float
    samples_per_second: float
    ideal_samples_per_second: float
    utilisation: float
    rounds: int
    anchor: int
    phase: str
    averaging_seconds_exposed: float
    divergence_last: float
    train_loss: float | None
    eval: dict[str, float]
    dead_ranks: tuple[int, ...]
    checkpoints: tuple[str, ...]
    per_rank: tuple[RankTotals, ...]
    restarts: dict[int, int] = {}
    gpus: tuple[GpuUse, ...] = ()
    versions: Versions


def result(end: End, run: Run) -> Result:
    """The result of a run that the Coordinator ended."""
    totals = end.totals
    return Result(
        name=run.name,
        run_id=run.run_id,
        status=end.status,
        reason=end.reason,
        exit_code=end.exit_code,
        mode=run.mode,
        average=run.average,
        world_size=run.world_size,
        hosts=run.hosts,
        epochs_done=totals.epochs_done,
        samples_done=totals.samples_done,
        wall_seconds=totals.wall_seconds,
        startup_seconds=run.startup_seconds,
        samples_per_second=totals.samples_per_second,
        ideal_samples_per_second=totals.ideal_samples_per_second,
        utilisation=totals.utilisation,
        rounds=totals.rounds,
        anchor=totals.anchor,
        phase=totals.phase,
        averaging_seconds_exposed=totals.averaging_seconds_exposed,
        divergence_last=totals.divergence_last,
        train_loss=totals.train_loss,
        eval=dict(totals.eval),
        dead_ranks=totals.dead_ranks,
        restarts=dict(totals.restarts),
        checkpoints=run.checkpoints,
        per_rank=totals.ranks,
        gpus=run.gpus,
        versions=run.versions,
    )


def failed_result(error: Exception, run: Run, totals: RunTotals | None = None) -> Result:
    """The result of a run that failed before the Coordinator could end it; exit code and reason are the error's.

    A bug of ours left nothing to go on from. totals: what it added up to until then; None: nothing.
    """
    code = error.exit_code if isinstance(error, FlodlError) else RunLost.exit_code
    status: Status = "interrupted" if code in (75, 130) else "failed"
    return result(End(status=status, exit_code=code, totals=totals or _NOTHING, reason=str(error)), run)


def write_result(path: Path, result: Result) -> None:
    """Write the result, whole or not at all."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


def read_result(path: Path) -> Result:
    """Read a result. FlodlError where the file is damaged or of another schema."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Result)
    except msgspec.MsgspecError as error:
        raise FlodlError(f"{path}: {error}") from error
    if found.schema != RESULT_SCHEMA:
        raise FlodlError(f"{path}: result schema {found.schema}; this flodl reads {RESULT_SCHEMA}")
    return found
