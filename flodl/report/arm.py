"""An arm of a sweep, or a run of several that are compared, and what its overrides say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from flodl.record.result import Result, Status
from flodl.record.sweep import FINISHED
from flodl.report.history import EpochPoint

__all__ = ["SEED", "Arm", "own_overrides", "shared_overrides"]

SEED = "trainer.seed"


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One arm of a sweep, or one run of several that are compared.

    name: how it is called in its sweep. overrides: what was typed or swept for it. folder: where its run lies,
    relative to the sweep's folder where it is inside. attempts: how often it was begun; 0: never. result: None where
    it left none, or has none yet (running). seed, num_workers (of its loader): of its job, None where that is unknown.
    data: a hash of which data set and step it had, "" where that is unknown. epochs: what its metrics tell, and those
    of the run that it went on from.
    """

    name: str
    overrides: tuple[str, ...] = ()
    status: Status | Literal["skipped", "running"]
    reason: str = ""
    attempts: int = 1
    folder: str = ""
    result: Result | None = None
    seed: int | None = None
    num_workers: int | None = None
    data: str = ""
    epochs: tuple[EpochPoint, ...] = ()

    @property
    def mode(self) -> str:
        """How it averaged, as people say it; "" where that is not known."""
        if self.result is None:
            return ""
        return "solo" if self.result.world_size == 1 else self.result.mode

    @property
    def has_trained(self) -> bool:
        """There are figures of it."""
        return bool(self.epochs) if self.result is None else self.result.samples_done > 0

    @property
    def counts(self) -> bool:
        """It ended well, here or in an earlier run of the same job: it takes part in means and verdicts."""
        return self.has_trained and self.result is not None and self.result.status in FINISHED


def shared_overrides(arms: Sequence[Arm]) -> tuple[str, ...]:
    """What every arm was given; nothing where there is one arm only, for that is all that names it."""
    if len(arms) < 2:
        return ()
    return tuple(text for text in arms[0].overrides if all(text in arm.overrides for arm in arms[1:]))


def own_overrides(arm: Arm, shared: Sequence[str], *, with_seed: bool = True) -> tuple[str, ...]:
    """What this arm was given beside what all were."""
    own = (text for text in arm.overrides if text not in shared)
    return tuple(text for text in own if with_seed or text.lstrip("+").partition("=")[0] != SEED)
