"""Arms whose figures can be reckoned by hand."""

from __future__ import annotations

from collections.abc import Sequence

from flodl.record.result import Result, Run, result
from flodl.report.arm import Arm
from flodl.report.history import EpochPoint
from tests.record.figures import end, run, totals

__all__ = ["arm", "points", "result_of"]


def points(losses: Sequence[float | None], evals: Sequence[float | None], seconds: float) -> tuple[EpochPoint, ...]:
    """Epochs of equal length."""
    return tuple(
        EpochPoint(epoch=i + 1, loss=loss, eval={} if of_eval is None else {"loss": of_eval}, seconds=seconds * (i + 1),
                   wall_seconds=seconds, rounds=3, anchor=10, divergence=0.01)
        for i, (loss, of_eval) in enumerate(zip(losses, evals, strict=True))
    )  # fmt: skip


def result_of(mode: str = "cpu_async", status: str = "done", **changes: object) -> Result:
    """Of a run of ten seconds."""
    about: Run = run(mode=mode)
    return result(end(status=status, totals=totals(**changes)), about)


def arm(
    name: str,
    mode: str,
    seed: int,
    losses: Sequence[float | None],
    evals: Sequence[float | None],
    *,
    seconds: float = 1.0,
    **changes: object,
) -> Arm:
    """One that ended well, of an epoch per loss, each of `seconds`."""
    figures = {"train_loss": losses[-1], "wall_seconds": seconds * len(losses)}
    figures |= {} if evals[-1] is None else {"eval": {"loss": evals[-1]}}
    return Arm(
        name=name,
        overrides=(f"elche={mode}", f"trainer.seed={seed}", "x=1"),
        status="done",
        seed=seed,
        result=result_of(mode, **(figures | changes)),
        epochs=points(losses, evals, seconds),
    )
