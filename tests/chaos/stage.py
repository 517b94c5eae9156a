"""Runs of a few seconds with faults in them, judged: the ledger, the weights in closed form, and what is left behind.

Faults are data (`flodl.engine.failpoints`): when epoch e, round w, point p on rank r, an action. The controller is this
process and agents are kept from one run to the next, so that a run costs little more than its own training.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from safetensors.numpy import load_file

from flodl import drive, trainer
from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import (
    AveragingDone,
    Command,
    End,
    Event,
    Goodbye,
    RankDied,
    RankFailed,
    RankReady,
    RunWindow,
)
from flodl.engine import fleet
from flodl.engine.failpoints import SWITCH, Failpoint
from flodl.record.folder import RunFolder
from flodl.record.journal import read_journal
from flodl.spec.codec import load_spec
from flodl.spec.component import Component
from flodl.spec.job import JobSpec
from tests.chaos.leaks import Sweep
from tests.chaos.oracle import Learnt, learnt
from tests.conf import composing

__all__ = ["BATCH", "EPOCH", "SCALE", "Stage", "Tale"]

SCALE = 0.1  # of all limits
BATCH = 16
EPOCH = 96 * BATCH  # samples
RATE = 1.0
STRUCK = re.compile(r"failpoint (\S+): (\w+) at (\S+): rank (\d+)")


class Tale:
    """What became of a run: from its folder alone, judged as soon as it is read."""

    def __init__(self, folder: Path, end: End, shown: str) -> None:
        self.folder, self.end, self.shown = folder, end, shown
        header, told = read_journal(folder / "journal.jsonl")
        self.told: list[tuple[Event, tuple[Command, ...]]] = told
        self.job = trainer.resolved(load_spec(folder / "spec.json"), header.roster)
        coordinator = Coordinator(self.job, header.roster)
        for event, said in told:
            assert coordinator.handle(event) == said, "the journal replays"
            assert coordinator.audit() == (0, 0), "LOST and DUP"

    def events(self, *kinds: type) -> list[Event]:
        """Those of these kinds, in order."""
        return [event for event, _ in self.told if isinstance(event, kinds)]

    def commands(self, *kinds: type) -> list[Command]:
        """Those of these kinds, in order."""
        return [command for _, said in self.told for command in said if isinstance(command, kinds)]

    @property
    def deaths(self) -> dict[int, RankDied]:
        """rank -> the one word of its death that came first."""
        found: dict[int, RankDied] = {}
        for event in self.events(RankDied):
            assert isinstance(event, RankDied)
            assert event.rank not in found, f"rank {event.rank} died twice"
            found[event.rank] = event
        return found

    @property
    def struck(self) -> dict[int, float]:
        """rank -> when (monotonic) the last failpoint struck it that it told of."""
        logs = (log.read_text() for log in sorted(self.folder.glob("ranks/*.log")))
        return {int(found[4]): float(found[3]) for text in logs for found in STRUCK.finditer(text)}

    def accepted_at(self) -> list[float]:
        """When each averaged round was accepted."""
        return [event.at for event, said in self.told if isinstance(event, AveragingDone) and _goes_on(said)]

    def learnt(self) -> Learnt:
        """What the journal says was learnt."""
        return learnt(self.told, self.epoch, BATCH, RATE, self.job.trainer.seed)

    @property
    def epoch(self) -> int:
        """Samples of an epoch."""
        return int(self.job.dataset.args["samples"])

    @property
    def failures(self) -> dict[int, RankFailed]:
        """rank -> what it told of itself before it ended."""
        return {event.rank: event for event in self.events(RankFailed) if isinstance(event, RankFailed)}

    def assert_whole(self, dead: Sequence[int] = ()) -> None:
        """All that was asked for is in the weights, each sample once per epoch, and survivors hold the same bits."""
        assert self.end.exit_code == 0, self.shown
        assert self.end.status == ("degraded" if dead else "done"), self.shown
        assert list(self.end.totals.dead_ranks) == sorted(dead), self.shown
        epochs = self.job.trainer.num_epochs
        assert self.end.totals.samples_done == epochs * self.epoch
        weights = self.assert_weights()
        assert float(weights.min()) > 0.0, "LOST: a sample is not in the weights"
        if not self.job.elche.is_async:
            assert set(self.learnt().visits.tolist()) == {epochs}, "each sample counts once per epoch"
        digests = {event.rank: _digest(event) for event in self.events(Goodbye) if isinstance(event, Goodbye)}
        assert len(set(digests.values())) == 1, f"survivors differ: {digests}"

    def assert_weights(self) -> np.ndarray:
        """What was saved is what the journal says was learnt, to the sample (elastic blending has no closed form)."""
        weights = load_file(self.folder / "checkpoints/weights.safetensors")["weight"]
        if not self.job.elche.is_async:
            np.testing.assert_allclose(weights, self.learnt().weights, rtol=1e-4, atol=1e-6)
        return weights


class Stage:
    """Where runs take place. folder: for the project, shared by all its runs; one warm process serves them."""

    def __init__(self, folder: Path) -> None:
        self._project, self._tmp, self._plan = folder / "project", folder / "tmp", folder / "faults.json"
        self._project.mkdir()
        self._tmp.mkdir()
        shutil.copy(Path(__file__).with_name("linear.py"), self._project / "linear_project.py")
        self._told = {  # agents on this machine inherit them
            SWITCH: str(self._plan),
            "TMPDIR": str(self._tmp),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),
        }
        os.environ |= self._told
        fleet.keep()

    def close(self) -> None:
        """End the agents."""
        fleet.release()
        for name in self._told:
            del os.environ[name]

    def run(
        self,
        folder: Path,
        *overrides: str,
        faults: Sequence[Failpoint] = (),
        ranks: int = 3,
        samples: int = EPOCH,
        hear: drive.Listener = lambda event, commands: None,
        **step: Any,
    ) -> Tale:
        """Train with faults; what came of it, after a look at what is left.

        samples: of an epoch. hear: told of every event while the run goes on. step: of `linear.Learn`.
        """
        self._plan.write_bytes(msgspec.json.encode(list(faults)))
        for old in self._project.glob("met.*"):
            old.unlink()
        sweep, said = Sweep(folder, self._tmp), io.StringIO()
        job = self._job(ranks, samples, overrides)
        job = job.replace(step=Component(target="linear_project.Learn", args={"seconds": 0.004, **step}))
        heard = (_on_ready(sweep), hear)
        end = trainer.run(job, RunFolder.adopt(folder), listeners=heard, console=Console(file=said))
        sweep.assert_clean()
        return Tale(folder, end, said.getvalue())

    def met(self) -> list[set[str]]:
        """Of each rank that was there at the end: the digests of the models that its steps have met."""
        return [set(path.read_text().splitlines()) for path in self._project.glob("met.*")]

    def _job(self, ranks: int, samples: int, overrides: Sequence[str]) -> JobSpec:
        host = f"host: localhost, path: '{self._project}', nccl_socket_ifname: lo"
        with composing.shipped():
            job = composing.job(
                (
                    "elche=cpu_cadence",
                    f"cluster.workers=[{{{host}, local_devices: 'cpu:{ranks}'}}]",
                    "elche.anchor=4",
                    "elche.max_anchor=8",
                    f"optim.lr={RATE}",
                    "optim.momentum=0",
                    "optim.nesterov=false",
                    "optim.weight_decay=0",
                    "scheduler=constant",
                    f"trainer.batch_size={BATCH}",
                    "trainer.num_epochs=3",
                    "eval.every_epochs=null",
                    "debug.eval_everywhere=true",
                    f"membership.timeout_scale={SCALE}",
                    *overrides,
                )
            )
        return job.replace(
            model=Component(target="linear_project.OneWeightEach", args={"samples": samples}),
            dataset=Component(target="linear_project.numbers", args={"samples": samples, "judged": BATCH}),
        )


def _on_ready(sweep: Sweep) -> drive.Listener:
    def look(event: Event, _: Sequence[Command]) -> None:
        if isinstance(event, RankReady):
            sweep.look()

    return look


def _goes_on(said: Sequence[Command]) -> bool:
    return any(isinstance(command, RunWindow) for command in said)


def _digest(event: Goodbye) -> float:
    (value,) = [result.values["digest"] for result in event.callbacks if result.name == "eval"]
    return value
