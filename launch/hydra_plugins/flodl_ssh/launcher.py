"""The launcher itself: what Hydra sees. Called once per sweep, or once per batch by a sweeper that learns from it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

if TYPE_CHECKING:
    from hydra_plugins.flodl_ssh._board import Board
    from hydra_plugins.flodl_ssh._side_by_side import SideBySide
    from hydra_plugins.flodl_ssh._workshop import Workshop

__all__ = ["CONFIG", "FlodlSshLauncher"]

log = logging.getLogger(__name__)


# A plain mapping: Hydra runs this file before it is a module, which dataclasses do not bear.
CONFIG = {
    "_target_": "hydra_plugins.flodl_ssh.launcher.FlodlSshLauncher",
    "on_failure": "continue",  # after an arm that failed: continue with the next, or stop
    "retries": 0,  # how often a failed arm is tried again, each time in a folder of its own
    "skip_completed": False,  # an arm is skipped where a run of the same job ended well before
    "max_parallel": 1,  # arms at a time, each on 1/max_parallel of its cluster's hosts
}
ConfigStore.instance().store(group="hydra/launcher", name="flodl_ssh", node=CONFIG, provider="flodl_ssh")


class FlodlSshLauncher(Launcher):
    """Runs arms, goes on after one that failed, and always writes their comparison."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._context: HydraContext | None = None
        self._config: DictConfig | None = None
        self._workshop: Workshop | None = None
        self._board: Board | None = None
        self._side_by_side: SideBySide | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from hydra_plugins.flodl_ssh._board import Board
        from hydra_plugins.flodl_ssh._options import checked
        from hydra_plugins.flodl_ssh._side_by_side import SideBySide
        from hydra_plugins.flodl_ssh._workshop import Workshop

        options = checked(self._options)
        self._context, self._config = hydra_context, config
        self._workshop = Workshop(hydra_context, task_function, config, options)
        self._board = Board(config, options, task_function)
        self._side_by_side = SideBySide(self._workshop, self._board, options.max_parallel)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from hydra_plugins.flodl_ssh._in_turn import in_turn
        from hydra_plugins.flodl_ssh._workshop import Job, log_as_launcher

        assert self._context is not None and self._config is not None  # noqa: PT018 - setup came first
        assert self._workshop is not None and self._board is not None and self._side_by_side is not None  # noqa: PT018
        setup_globals()
        log_as_launcher(self._context, self._config)
        jobs = [Job(index=initial_job_idx + i, overrides=tuple(texts)) for i, texts in enumerate(job_overrides)]
        hosts = self._side_by_side.plan(jobs)
        self._board.open(jobs)
        try:
            if hosts is None:
                in_turn(self._workshop, jobs, self._board)
            else:
                self._side_by_side.run(hosts)
        finally:
            self._board.conclude()
        return self._board.returns(jobs)
