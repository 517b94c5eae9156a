"""The rehearsal's brake: what it slows, and what it leaves alone."""

from __future__ import annotations

import time

import torch

from flodl.engine.pace import Pace


def test_the_first_step_is_not_braked_for_setting_up_takes_no_longer_on_a_slower_device() -> None:
    pace = Pace(torch.device("cpu"), speed=0.2)
    for _ in range(3):
        pace.begin()
        time.sleep(0.02)
        pace.end()
    first, *others = pace.take()
    assert first < 0.5 * min(others)
    assert min(others) >= 90.0  # 5 x 20 ms, less the clock's grain
