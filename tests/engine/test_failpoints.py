"""Failpoints: nothing without the switch, and no measurable cost; with it, what the plan says, where and when."""

from __future__ import annotations

import subprocess
import sys
import timeit
from pathlib import Path

import msgspec
import pytest

from flodl.engine import failpoints
from flodl.engine.failpoints import ACTIONS, POINTS, SWITCH, Failpoint, Failpoints, reach

ENGINE = Path(failpoints.__file__).parent


def test_without_the_switch_nothing_strikes_and_it_costs_less_than_a_millionth_of_a_second() -> None:
    assert not hasattr(reach, "__self__"), "a function that does nothing, bound at import"
    calls = 10_000
    best = min(timeit.repeat(lambda: reach("step.before", 1, 2, 3), number=calls, repeat=5)) / calls
    assert best < 1e-6


def test_every_point_is_somewhere_in_a_rank() -> None:
    text = "".join(path.read_text() for path in ENGINE.rglob("*.py") if path.name != "failpoints.py")
    assert [point for point in POINTS if f'reach("{point}"' not in text] == []


def planned(folder: Path, *faults: Failpoint) -> Failpoints:
    (folder / "plan.json").write_bytes(msgspec.json.encode(faults))
    return Failpoints(str(folder / "plan.json"))


def test_a_fault_strikes_its_rank_in_its_epoch_and_round_after_so_many_passes(tmp_path: Path) -> None:
    fault = Failpoint(point="step.inside", action="raise", ranks=(1,), epoch=2, window=5, skip=1, times=2)
    points = planned(tmp_path, fault)
    for rank, epoch, window in ((0, 2, 5), (1, 1, 5), (1, 2, 4), (1, 2, 5)):
        points.reach("step.before", rank, epoch, window)
        points.reach("step.inside")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"failpoint step\.inside"):
            points.reach("step.inside")
    points.reach("step.inside")


def test_a_plan_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('[{"point": "step.middle", "action": "kill", "ranks": [1]}]')
    with pytest.raises(msgspec.ValidationError, match=r"step\.middle"):
        Failpoints(str(tmp_path / "plan.json")).reach("finish", 1)


@pytest.mark.parametrize("action", [action for action in ACTIONS if action not in ("stop", "hang", "slow")])
def test_each_way_to_end_ends_a_process_so(tmp_path: Path, action: str) -> None:
    fault = {"point": "finish", "action": action, "ranks": [1]}
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode([fault]))
    code = "from flodl.engine.failpoints import reach; reach('finish', 1)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={SWITCH: str(tmp_path / "plan.json"), "PYTHONPATH": str(ENGINE.parents[1])},
        capture_output=True,
        text=True,
        timeout=30,
    )
    ends = {"kill": -9, "abort": -6, "segv": -11, "exit": 0, "raise": 1, "memory": 1}
    assert done.returncode == ends[action], done.stderr
    assert f"failpoint finish: {action} at " in done.stderr
