"""Values that the tests of record and report write and read back: a small run of two unequal ranks."""

from __future__ import annotations

from flodl.decide.messages import (
    Average,
    CallbackResult,
    Command,
    End,
    EpochEnded,
    Event,
    RankDied,
    RankReady,
    Round,
    RunWindow,
    WindowDone,
)
from flodl.decide.messages import Range as Samples
from flodl.decide.roster import Place
from flodl.decide.totals import EpochMetrics, RankEpoch, RankTotals, RunTotals
from flodl.record.result import Result, Run, result
from flodl.record.versions import Versions

__all__ = [
    "ROSTER",
    "STORY",
    "end",
    "epoch",
    "rank_totals",
    "run",
    "run_result",
    "totals",
    "window_done",
]

ROSTER = (
    Place(rank=0, host="localhost", device="cpu", batch_size=64),
    Place(rank=1, host="localhost", device="cpu", batch_size=64, speed=0.4),
)


def epoch(number: int, **changes: object) -> EpochMetrics:
    """Figures of one epoch in which rank 0 did 20 of 28 batches."""
    figures: dict[str, object] = {
        "epoch": number,
        "loss": 0.75 / (number + 1),
        "wall_seconds": 2.5,
        "samples": 1792,
        "samples_per_second": 716.8,
        "scalars": {},
        "eval": {},
        "rounds": 1,
        "anchor": 10,
        "phase": "stable",
        "divergence": 0.01,
        "learning_rate": 0.1,
        "ranks": (_rank_epoch(0, 20), _rank_epoch(1, 8)),
    }
    return EpochMetrics(**(figures | changes))  # pyright: ignore[reportArgumentType]


def _rank_epoch(rank: int, batches: int) -> RankEpoch:
    return RankEpoch(
        rank=rank,
        batches=batches,
        samples=64 * batches,
        samples_per_second=25.6 * batches,
        batch_share=batches / 28,
        compute_ms=2300.0,
        data_wait_ms=20.0,
        averaging_ms=30.0,
        idle_ms=50.0,
    )


def window_done(rank: int, round_: int, *callbacks: CallbackResult) -> WindowDone:
    """A rank's report at the end of a window."""
    return WindowDone(
        at=12.5 + 0.1,
        rank=rank,
        generation=1,
        round=round_,
        batches=20,
        samples=1280,
        timed_batches=20,
        timed_ms=1 / 3,
        compute_ms=2300.0,
        callbacks=callbacks,
    )


def rank_totals(rank: int, samples: int, compute_seconds: float, **changes: object) -> RankTotals:
    """One rank's part of a run of 10 seconds."""
    figures: dict[str, object] = {
        "rank": rank,
        "host": "localhost",
        "device": "cpu",
        "batches": samples // 64,
        "samples": samples,
        "compute_seconds": compute_seconds,
        "data_wait_seconds": 0.1,
        "averaging_seconds": 0.2,
        "idle_seconds": 10 - 0.3 - compute_seconds,
        "peak_memory_bytes": 300_000_000,
    }
    return RankTotals(**(figures | changes))  # pyright: ignore[reportArgumentType]


def totals(**changes: object) -> RunTotals:
    """Ten seconds in which rank 0 did 500 and rank 1 did 200 samples a second."""
    figures: dict[str, object] = {
        "epochs_done": 4,
        "samples_done": 7040,
        "rounds": 12,
        "wall_seconds": 10.0,
        "samples_per_second": 704.0,
        "ideal_samples_per_second": 733.0,
        "utilisation": 704 / 733,
        "anchor": 12,
        "phase": "stable",
        "averaging_seconds_exposed": 0.4,
        "divergence_last": 0.012,
        "train_loss": 0.21,
        "eval": {"accuracy": 0.9694, "loss": 0.1},
        "dead_ranks": (),
        "ranks": (rank_totals(0, 5056, 9.5), rank_totals(1, 1984, 9.6)),
    }
    return RunTotals(**(figures | changes))  # pyright: ignore[reportArgumentType]


def end(**changes: object) -> End:
    """The end of a run that went well."""
    figures: dict[str, object] = {"status": "done", "exit_code": 0, "totals": totals(), "reason": "all 4 epochs done"}
    return End(**(figures | changes))  # pyright: ignore[reportArgumentType]


def run(**changes: object) -> Run:
    """What the controller knows beside the totals."""
    figures: dict[str, object] = {
        "name": "quickstart",
        "run_id": "00112233",
        "mode": "cpu_async",
        "average": "parameters",
        "world_size": 2,
        "hosts": ("localhost",),
        "startup_seconds": 4.2,
        "checkpoints": ("checkpoints/weights.safetensors",),
        "versions": Versions(python="3.11.7", packages={"torch": "2.13.0"}),
    }
    return Run(**(figures | changes))  # pyright: ignore[reportArgumentType]


def run_result(**changes: object) -> Result:
    """The whole result of that run; changes are of its totals."""
    return result(end(totals=totals(**changes)), run())


STORY: list[tuple[Event, tuple[Command, ...]]] = [
    (
        RankReady(
            at=0.5,
            rank=0,
            host="localhost",
            device="cpu",
            num_samples=1797,
            data_signature="d",
            fingerprint="f",
            num_parameters=272474,
            batch_size=64,
        ),
        (),
    ),
    (
        window_done(0, 1),
        (
            RunWindow(
                to=(0,),
                generation=1,
                rounds=(Round(2, 20, 1792, 1792),),
                ranges=(Samples(0, 0, 1280),),
                epoch=0,
                reason="window 2",
            ),
        ),
    ),
    (window_done(1, 1), (Average(to=(0, 1), generation=1, round=1, masses=(20.0, 8.0), reason="all reported"),)),
    (window_done(0, 2), (EpochEnded(metrics=epoch(0), reason="epoch 0 done"),)),
    (RankDied(at=13.0, rank=1, cause="SIGKILL"), (end(status="failed", exit_code=5, reason="rank 1 died: SIGKILL"),)),
]
