"""The user's own code fails on one rank of a real run: who, what and where are said, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.command import command

STEP = """
import os
from flodl.steps.classification import Classification

class Failing(Classification):
    calls = 0

    def __call__(self, model, batch):
        self.calls += 1
        if os.environ["FAILS"] == "yes" and self.calls == 40:
            raise ValueError("a label of 12 in ten classes")
        return super().__call__(model, batch)
"""


def test_a_step_that_raises_on_one_rank_ends_the_run_and_is_told_with_its_rank_and_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STEP)
    hosts = ", ".join(
        f"{{host: {name}, local_devices: 'cpu:1', nccl_socket_ifname: lo, env: {{FAILS: '{fails}'}}}}"
        for name, fails in (("localhost", "no"), ("127.0.0.1", "yes"))
    )
    job = (f"cluster.workers=[{hosts}]", "elche=cpu_cadence", "model=mlp", "step._target_=mine.Failing")
    with command(tmp_path, *job, "trainer.num_epochs=1000", "membership.max_failure=1", "hydra.run.dir=run") as run:
        assert run.end(90.0) == 4, run.output
        for told in (run.output, run.result["reason"]):
            assert "rank 1 (cpu of 127.0.0.1)" in told
            assert "ValueError: a label of 12 in ten classes" in told
        assert "mine.py" in run.output
        assert run.result["status"] == "failed"
