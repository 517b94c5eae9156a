"""Random faults, seeded: whatever strikes, the run ends well, nothing is lost or counts twice, nothing is left behind.

One rank is spared, so that somebody can end the run. `FLODL_TEST_SEEDS=100:120` runs other seeds than the usual ones.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from flodl.engine.failpoints import POINTS, Action, Failpoint, Point
from tests.chaos.stage import Stage

FIRST, LAST = (int(number) for number in os.environ.get("FLODL_TEST_SEEDS", "0:20").split(":"))
MODES = ("cpu_cadence", "cpu_async", "cpu_sync")
DEADLY: tuple[Action, ...] = ("kill", "abort", "segv", "exit", "stop")
STEPS: tuple[Point, ...] = ("step.before", "step.inside", "step.after")


def random_faults(seed: int) -> tuple[str, int, list[Failpoint]]:
    """(mode, ranks, what strikes them): one to three faults."""
    chance = random.Random(seed)
    ranks = chance.randint(2, 4)
    spared = chance.randrange(ranks)
    found = [_fault(chance, rank) for rank in range(ranks) if rank != spared and chance.random() < 0.8]
    return chance.choice(MODES), ranks, found or [_fault(chance, (spared + 1) % ranks)]


def _fault(chance: random.Random, rank: int) -> Failpoint:
    """Weighted towards what is quick: who hangs is only given up after a limit."""
    kind = chance.choices(("deadly", "raise", "slow", "memory", "hang"), weights=(10, 2, 3, 3, 1))[0]
    where = chance.choice(POINTS if kind in ("deadly", "slow") else STEPS)
    where = "step.inside" if kind == "memory" else where
    action = chance.choices(DEADLY, weights=(6, 2, 2, 3, 1))[0] if kind == "deadly" else kind
    happens_often = where.startswith(("step", "average", "report"))
    skip = chance.randint(0, 12) if happens_often else int(where == "group")  # the first group is the start
    if action == "hang":
        skip += 10  # nobody knows how long a first window may take: it has no limit
    return Failpoint(
        point=where,
        action=action,  # type: ignore[arg-type]
        ranks=(rank,),
        epoch=chance.choice((None, 0, 1)) if where in STEPS else None,
        skip=skip,
        times=chance.randint(1, 5) if action in ("slow", "memory") else 1,
        seconds=chance.choice((0.005, 0.05, 0.2)),
    )


@pytest.mark.row(1, 2, 4, 5, 6, 7, 8, 9, 26)
@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_whatever_strikes_the_run_ends_well_with_every_sample_once(stage: Stage, tmp_path: Path, seed: int) -> None:
    mode, ranks, faults = random_faults(seed)
    sys.stdout.write(f"seed {seed}: {mode} on {ranks} ranks: {faults}\n")
    more = ("trainer.num_epochs=2", "eval.every_epochs=1", "checkpoint.every_epochs=1")
    tale = stage.run(tmp_path / "run", f"elche={mode}", *more, faults=faults, ranks=ranks)
    tale.assert_whole(dead=sorted({*tale.deaths, *tale.failures}))
    assert {*tale.deaths, *tale.failures} <= {fault.ranks[0] for fault in faults}, "nobody else is blamed"


def test_the_seeds_reach_every_kind_of_fault_and_most_points() -> None:
    faults = [fault for seed in range(20) for fault in random_faults(seed)[2]]
    assert {fault.action for fault in faults} >= {"kill", "exit", "abort", "segv", "raise", "slow", "memory", "stop"}
    assert len({fault.point for fault in faults}) >= 9
