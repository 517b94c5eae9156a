"""Hydra's own suites for launchers, as Hydra ships them: any task function, any configuration."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from multiprocessing import active_children

import pytest
from hydra.core.plugins import Plugins
from hydra.test_utils.launcher_common_tests import BatchedSweeperTestSuite, IntegrationTestSuite, LauncherTestSuite

CHDIR = "hydra.job.chdir=true"  # the suite expects it, and Hydra 1.3 warns where it is not said
PARALLEL = "hydra.launcher.max_parallel=2"
BATCHES = "hydra.sweeper.max_batch_size=2"

Plugins.instance()  # before Hydra's own fixture copies what is registered (1.4 registers when this is first asked for)

# The watchdog of a test is a thread, beside which newer Pythons warn of a fork.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Arms' processes end with the sweep, not only with the interpreter."""
    yield
    gc.collect()
    assert active_children() == []


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
