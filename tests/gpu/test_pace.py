"""A card that has launched steps left to run: what the host waits for meanwhile holds nothing up."""

from __future__ import annotations

import pytest
import torch

from flodl.engine.pace import Pace
from flodl.probe.gpus import count_gpus
from tests.engine.rig import run_ranks

LONG = 1_000_000_000  # cycles of a card's clock: about half a second

pytestmark = pytest.mark.skipif(count_gpus() < 1, reason="needs a GPU")


def whether_busy() -> list[bool]:
    """Before a step, behind its launch, when it has run, and when it is told."""
    pace = Pace(torch.device("cuda", 0))
    found = [pace.is_busy()]
    pace.begin()
    torch.cuda._sleep(LONG)  # pyright: ignore[reportPrivateUsage]
    pace.end()
    found.append(pace.is_busy())
    pace.drain()
    found.append(pace.is_busy())
    pace.take()
    return [*found, pace.is_busy()]


def test_a_card_is_busy_from_a_steps_launch_until_it_has_run() -> None:
    (found,) = run_ranks(1, lambda _: whether_busy(), timeout=60.0)
    assert found == [False, True, False, False]
