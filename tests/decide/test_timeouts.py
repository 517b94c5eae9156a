"""All limits come from one scale, and hold each other in order."""

from __future__ import annotations

import pytest

from flodl.decide.timeouts import timeouts_of
from flodl.errors import ConfigError


@pytest.mark.parametrize("scale", [0.01, 0.1, 1.0, 20.0])
def test_the_limits_grow_in_the_order_in_which_they_wait_for_each_other(scale: float) -> None:
    limits = timeouts_of(scale)
    assert limits.heartbeat < limits.suspected < limits.dead < limits.collective < limits.stall
    assert limits.stall + limits.step + 2 * limits.heartbeat < limits.patience


def test_the_limits_of_a_run_are_those_that_are_documented() -> None:
    limits = timeouts_of(1.0)
    assert (limits.heartbeat, limits.suspected, limits.dead) == (1.0, 5.0, 30.0)
    assert (limits.collective, limits.stall, limits.grace) == (60.0, 300.0, 10.0)
    assert timeouts_of(0.1).dead == pytest.approx(3.0)


def test_no_progress_is_ten_windows_and_a_minute_at_least() -> None:
    limits = timeouts_of(1.0)
    assert limits.progress(0.5) == 60.0
    assert limits.progress(20.0) == 200.0


def test_a_scale_at_which_a_rank_is_suspected_between_two_heartbeats_is_refused_with_its_key() -> None:
    with pytest.raises(ConfigError) as raised:
        timeouts_of(0.001)
    (problem,) = raised.value.problems
    assert (problem.key, problem.value) == ("membership.timeout_scale", "0.001")
    assert "heartbeat is not below suspected" in problem.constraint
