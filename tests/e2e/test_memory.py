"""FAULTS row 26: a rank runs out of memory in a step, by the whole command."""

from __future__ import annotations

from pathlib import Path

from safetensors.numpy import load_file

from tests.e2e.journals import carried_out, end_of

STEP = """\
import os
from flodl.steps.classification import Classification

class Step(Classification):
    def __call__(self, model, batch):
        if len(batch[0]) > int(os.environ["FITS"]):
            raise MemoryError("you tried to allocate 4294967296 bytes")
        return super().__call__(model, batch)
"""
JOB = ("cluster.workers=[{host: localhost, local_devices: 'cpu:1'}]", "model=mlp", "trainer.num_epochs=2", "eval=off")
JOB += ("trainer.batch_size=32", "trainer.limit_batches=6", "step._target_=card.Step")


def fits(samples: int) -> str:
    return f"+cluster.workers.0.env={{FITS: '{samples}'}}"


def test_a_batch_that_does_not_fit_is_done_again_in_slices_and_gives_what_the_whole_would_have(tmp_path: Path) -> None:
    (tmp_path / "card.py").write_text(STEP)
    carried_out(tmp_path, *JOB, fits(32), "hydra.run.dir=roomy")
    said = carried_out(tmp_path, *JOB, fits(9), "hydra.run.dir=tight")
    for before, after in ((32, 16), (16, 8)):
        assert said.count(f"out of memory with {before} samples at a time; the batch is done again in slices of") == 1
        assert f"slices of {after}" in said
    one, other = (load_file(tmp_path / run / "checkpoints" / "weights.safetensors") for run in ("roomy", "tight"))
    assert max(float(abs(one[name] - other[name]).max()) for name in one) < 1e-6
    assert end_of(tmp_path / "tight").totals.samples_done == 2 * 6 * 32
