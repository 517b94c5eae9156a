"""Hydra's own suites for launchers, as Hydra ships them: any task function, any configuration."""

from __future__ import annotations

import pytest
from hydra.test_utils.launcher_common_tests import BatchedSweeperTestSuite, IntegrationTestSuite, LauncherTestSuite

CHDIR = "hydra.job.chdir=true"  # the suite expects it, and Hydra 1.3 warns where it is not said
PARALLEL = "hydra.launcher.max_parallel=2"
BATCHES = "hydra.sweeper.max_batch_size=2"


@pytest.mark.parametrize(
    ("launcher_name", "overrides"),
    [("flodl_ssh", [CHDIR]), ("flodl_ssh", [CHDIR, PARALLEL])],
    ids=["in turn", "side by side"],
)
class TestLauncher(LauncherTestSuite):
    """Sweeps of one and two jobs, groups, strictness, resolvers."""


@pytest.mark.parametrize(
    ("launcher_name", "overrides"),
    [("flodl_ssh", [CHDIR, BATCHES]), ("flodl_ssh", [CHDIR, BATCHES, PARALLEL])],
    ids=["in turn", "side by side"],
)
class TestBatches(BatchedSweeperTestSuite):
    """A sweeper that calls the launcher several times."""


@pytest.mark.parametrize(("task_launcher_cfg", "extra_flags"), [({}, ["-m", "hydra/launcher=flodl_ssh", CHDIR])])
class TestApplications(IntegrationTestSuite):
    """Applications as processes of their own."""
