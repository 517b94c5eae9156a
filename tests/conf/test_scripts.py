"""What the tests for GPUs ask for is a legal job, also where nobody has the GPUs to run them."""

from __future__ import annotations

import pytest

from flodl.spec.elche import MODES
from tests.conf.composing import job
from tests.gpu import ddp, modes, test_command, test_deaths, test_probe

pytestmark = pytest.mark.usefixtures("composing")

JOBS: dict[str, tuple[str, ...]] = {
    "deaths": (*test_deaths.JOB, *test_deaths.SLICED, "elche=nccl_sync"),
    "probe": test_probe.JOB,
    "signals": (*test_deaths.WIDE, "elche=nccl_cadence"),
    **{f"command-{mode}": (*test_command.JOB, f"elche={mode}") for mode in MODES},
    **{f"ddp-{name}": (*ddp.COMMON, *words) for name, words in ddp.JOBS.items()},
    **{f"modes-{mode}": tuple(modes.words_of(mode, 2)) for mode in modes.MODES},
}


@pytest.mark.parametrize("name", JOBS)
def test_the_words_of_a_script_for_gpus_are_a_job(name: str) -> None:
    job([word for word in JOBS[name] if not word.startswith("hydra.")])
