"""FAULTS row 24: a run that stopped goes on with another number of ranks, and the weights tell of every sample once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from flodl.decide.messages import Resumed
from flodl.engine.failpoints import Failpoint
from tests.chaos.stage import EPOCH, Stage


@pytest.mark.row(24)
@pytest.mark.parametrize(("mode", "ranks"), [("cpu_cadence", 2), ("cpu_sync", 4)])
def test_another_number_of_ranks_takes_a_run_over_with_every_sample_once(
    stage: Stage, tmp_path: Path, mode: str, ranks: int
) -> None:
    death = Failpoint(point="step.inside", action="kill", ranks=(2,), epoch=0, skip=5)
    job = (f"elche={mode}", "trainer.num_epochs=3")
    first = stage.run(tmp_path / "first", *job, f"stop.max_samples={int(1.37 * EPOCH)}", faults=[death])
    assert (first.end.status, first.end.exit_code) == ("stopped", 0), first.shown
    first.assert_weights()
    second = stage.run(tmp_path / "second", *job, f"checkpoint.resume_from='{first.folder}'", ranks=ranks)
    assert (second.end.status, second.end.totals.samples_done) == ("done", 3 * EPOCH), second.shown
    (resumed,) = [event for event in second.events(Resumed) if isinstance(event, Resumed)]
    assert resumed.round == first.end.totals.rounds
    parts = first.learnt(), second.learnt()
    assert set(sum(part.visits for part in parts).tolist()) == {3}, "each sample counts once per epoch"
    weights = load_file(second.folder / "checkpoints/weights.safetensors")["weight"]
    np.testing.assert_allclose(weights, sum(part.weights for part in parts), rtol=1e-4, atol=1e-6)
