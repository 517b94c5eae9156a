"""Run folders as runs leave them, made in virtual time: journals and balance are real, losses are a formula's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from flodl.decide.messages import EpochEnded
from flodl.record.folder import RunFolder
from flodl.record.result import Result, Run, result
from flodl.report.arm import Arm
from flodl.report.gather import with_history
from flodl.sim.costs import Costs, Fault
from flodl.sim.run import simulate
from flodl.spec.codec import canonical_json, sha256
from flodl.spec.job import MembershipConfig, TrainerConfig
from tests.scenarios.rigs import job_of, places_of

__all__ = ["arm_in", "run_in"]

MS = (10.0, 25.0)
GAIN = {"cpu_async": 1.0, "cpu_cadence": 0.95, "cpu_sync": 0.9}


def run_in(
    path: Path,
    mode: str,
    seed: int,
    num_epochs: int = 4,
    *,
    divergence: float = 0.01,
    faults: Sequence[Fault] = (),
    limit_batches: int | None = None,
) -> Result:
    """A whole run of two unequal ranks in `path`; its result. divergence: of its replicas, more or less. faults: of
    ranks, which come back."""
    trainer = TrainerConfig(num_epochs=num_epochs, batch_size=8, seed=seed, limit_batches=limit_batches)
    membership = MembershipConfig(rejoin=True, timeout_scale=0.02) if faults else MembershipConfig()
    job = job_of(mode, trainer=trainer, membership=membership)
    places = places_of([8, 8])
    costs = Costs(ms_per_batch=MS, averaging_ms=5.0, num_samples=1000, jitter=0.05, divergence=divergence, seed=seed)
    ran = simulate(job, places, costs, faults)
    folder = RunFolder.adopt(path)
    folder.write_spec(canonical_json(job), sha256(job))
    folder.start_journal(sha256(job), places)
    for event, commands in ran.journal:
        folder.journal.append(event, commands)
        for command in commands:
            if isinstance(command, EpochEnded):
                folder.metrics.append(_learned(command, mode, seed))
    folder.close()
    last = _loss(num_epochs - 1, mode, seed)
    totals = msgspec.structs.replace(ran.end.totals, train_loss=last, eval={"loss": 0.9 * last, "accuracy": 0.9})
    end = msgspec.structs.replace(ran.end, totals=totals)
    found = result(end, Run(name="<virtual>", mode=mode, average=job.elche.averages, world_size=2, hosts=("here",)))
    folder.write_result(found)
    return found


def arm_in(root: Path, name: str, mode: str, seed: int, *texts: str) -> Arm:
    """A run under `root` as an arm of a sweep. texts: more of its overrides."""
    found = run_in(root / name, mode, seed)
    overrides = (f"elche={mode}", *texts, f"trainer.seed={seed}")
    return with_history(Arm(name=name, overrides=overrides, status=found.status, folder=name, result=found), root)


def _learned(ended: EpochEnded, mode: str, seed: int) -> object:
    loss = _loss(ended.metrics.epoch, mode, seed)
    return msgspec.structs.replace(ended.metrics, loss=loss, eval={"loss": 0.9 * loss, "accuracy": 0.9})


def _loss(epoch: int, mode: str, seed: int) -> float:
    return 2.0 / (1.0 + GAIN[mode] * epoch) + 0.01 * seed
