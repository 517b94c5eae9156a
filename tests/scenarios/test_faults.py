"""Random faults in virtual time: no deadlock, LOST = DUP = 0 after every event, equal replicas at the end."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.scenarios.schedules import check, schedule_of

NUM_SCHEDULES = 300


@pytest.mark.parametrize("block", range(10))
def test_random_fault_schedules_end_without_deadlock_and_with_an_exact_ledger(block: int) -> None:
    size = NUM_SCHEDULES // 10
    ends = Counter(check(schedule_of(seed)).status for seed in range(block * size, (block + 1) * size))
    assert sum(ends.values()) == size


def test_the_schedules_reach_every_kind_of_end() -> None:
    ends = {check(schedule_of(seed)).status for seed in range(100)}
    assert ends == {"done", "degraded", "failed", "interrupted"}
