"""Jobs in order, in this process: each finds the agents of the one before it still there."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hydra_plugins.flodl_ssh._board import Board
from hydra_plugins.flodl_ssh._workshop import Job, Workshop

__all__ = ["in_turn"]

log = logging.getLogger(__name__)


def in_turn(workshop: Workshop, jobs: Sequence[Job], board: Board) -> None:
    """Run jobs until one ends the sweep. KeyboardInterrupt passes through once it is noted."""
    for job in jobs:
        if board.is_over:
            return
        log.info(f"arm {job.index}: {job.shown}")
        try:
            outcome = workshop.run(job)
        except KeyboardInterrupt:
            board.interrupt(job)
            raise
        board.add(outcome)
