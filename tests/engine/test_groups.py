"""Generations in real processes: a rank that dies, one that hangs and comes back, and who goes on without them."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from flodl.decide.messages import AveragingDone, GroupFormed, RankOrder, WindowDone
from flodl.engine.functions import Functions
from flodl.engine.orders import RegroupedError
from flodl.errors import RunFailed
from tests.engine import rig

MASSES = (1.0, 3.0, 2.0)


class Level(nn.Module):
    """A weight and a buffer; steps move the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(50_000))
        self.register_buffer("level", torch.zeros(3))


class Climb:
    """Each batch adds `amount`."""

    def __init__(self, amount: float) -> None:
        self.amount = amount

    def __call__(self, model: Level, batch: Any) -> torch.Tensor:
        return -self.amount * model.weight.sum()


def loop_of(
    rank: int, script: list[RankOrder | Any], store: Path, rule: str, **options: Any
) -> tuple[Any, rig.ScriptedLink, Level]:
    link = rig.ScriptedLink(script, store)
    model = Level()
    loop = rig.make_loop(
        rank,
        link,
        rule=rule,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        step=Climb(rank + 1.0),
        data=TensorDataset(torch.zeros(100)),
        batch_size=10,
        **options,
    )
    return loop, link, model


@pytest.mark.parametrize("rule", ["parameters", "elastic"])
@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_survivors_repeat_the_round_without_the_one_that_is_gone(fate: int, rule: str, tmp_path: Path) -> None:
    """The coordinator's part is a script: the new generation comes a moment after the round was ordered."""
    ready, gone = tmp_path / "ready", tmp_path / "gone"

    def work(rank: int) -> Any:
        if rank == 2:  # reports its window, then never takes part in the round
            script = [rig.form((0, 1, 2)), rig.window(1, 1, [(0, 0, 10)]), rig.After(WindowDone, 1)]
            loop, link, _ = loop_of(rank, [*script, lambda link: leave(ready, fate)], tmp_path / "store", rule)
            loop.run()
            raise AssertionError("it was to be gone")
        ordered: list[float] = []

        def announced(link: rig.ScriptedLink) -> bool:
            ordered.append(time.monotonic())
            return ready.exists() and ordered[-1] - ordered[0] > 0.2

        script = [rig.form((0, 1, 2)), rig.window(1, 1, [(0, 0, 10)]), rig.After(WindowDone, 1)]
        script += [rig.average(1, MASSES), announced, rig.form((0, 1), generation=2, source=None)]
        script += [rig.After(GroupFormed, 2), rig.average(1, MASSES[:2], generation=2), rig.After(AveragingDone, 1)]
        loop, link, model = loop_of(rank, [*script, rig.finish()], tmp_path / "store", rule)
        loop.run()
        return float(model.weight.detach()[0]), [event.last_round for event in link.told(GroupFormed)]

    def leave(mark: Path, how: int) -> bool:
        mark.write_text(str(os.getpid()))
        os.kill(os.getpid(), how)
        return False

    answers = rig.run_ranks(3, work, wanted=2)
    assert not gone.exists()
    assert answers == [(1.75, [0, 0])] * 2  # (1 x 1 + 3 x 2) / 4


def test_a_window_outlives_the_group_that_it_was_ordered_in_and_grants_and_rounds_do_not(tmp_path: Path) -> None:
    grant = rig.window(1, 1, [(0, 0, 10)], alone=True)
    window, group = rig.window(2, 1, [(0, 0, 10)]), rig.form((0, 1), generation=2)
    link = rig.ScriptedLink([grant, rig.average(1, (1, 1)), window, group], tmp_path / "store")
    orders, held = rig.Orders(link), Future[str]()
    held.set_result("told already")
    assert orders.wait(held) == "told already"
    assert [orders.next(0), orders.next(0), orders.next(0)] == [window, group, None]


def test_what_was_evaluated_in_a_grant_that_came_to_nothing_is_told_with_the_next_one(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        start = [rig.form((0, 1)), rig.After(GroupFormed, 1)]
        if rank == 1:
            loop, _, _ = loop_of(rank, [*start, lambda link: os._exit(0)], tmp_path / "store", "gradients")
            loop.run()
        void = rig.window(1, 1, [(0, 0, 10)], alone=True, callbacks=("eval",), epoch=1)
        again = rig.window(1, 1, [(0, 0, 10)], alone=True, epoch=1, generation=2)
        script = [*start, void, rig.Reached(1), rig.form((0,), generation=2, source=None), rig.After(GroupFormed, 2)]
        script += [again, rig.After(WindowDone, 1), rig.finish()]
        judging = Functions(eval=lambda _: {"weight": float(model.weight.detach()[0])})
        loop, link, model = loop_of(rank, script, tmp_path / "store", "gradients", functions=judging)
        loop.run()
        (report,) = link.told(WindowDone)
        return [result.values for result in report.callbacks], report.batches, link.progress

    assert rig.run_ranks(2, work, wanted=1) == [([{"weight": 0.0}], 1, 2)]


def test_why_a_rank_waits_for_a_new_group_is_said_while_it_waits_unless_it_comes_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Future[str]()
    broken.set_exception(RuntimeError("connection reset"))
    at_once = rig.Orders(rig.ScriptedLink([rig.form((0, 1), generation=2)], tmp_path / "one"), patience_seconds=60.0)
    with pytest.raises(RegroupedError):
        at_once.wait(broken)
    assert capsys.readouterr().err == ""
    with pytest.raises(RunFailed, match="no new group was formed"):
        rig.Orders(rig.ScriptedLink([], tmp_path / "other"), patience_seconds=0.3).wait(broken)
    told = "warning: an averaging failed, and the coordinator has not answered: connection reset\n"
    assert capsys.readouterr().err == told


def test_without_a_word_from_the_coordinator_a_failed_averaging_is_told(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        script = [rig.form((0, 1)), rig.window(1, 1, [(0, 0, 10)]), rig.After(WindowDone, 1)]
        if rank == 1:
            loop, _, _ = loop_of(rank, [*script, lambda link: os._exit(0)], tmp_path / "store", "parameters")
            loop.run()
        loop, _, _ = loop_of(rank, [*script, rig.average(1, (1, 1))], tmp_path / "store", "parameters")
        loop.orders = rig.Orders(loop.link, patience_seconds=0.3)
        with pytest.raises(RunFailed, match="no new group was formed"):
            loop.run()
        return "told"

    assert rig.run_ranks(2, work, wanted=1) == ["told"]


def test_a_first_group_that_fails_before_the_coordinators_word_of_another_one_is_no_failure(tmp_path: Path) -> None:
    failed: list[float] = []

    def fail(*given: object) -> None:
        failed.append(time.monotonic())
        raise RuntimeError("connection reset by peer")

    def heard(link: rig.ScriptedLink) -> bool:
        return bool(failed) and time.monotonic() - failed[0] > 0.2

    script = [rig.form((0, 1)), heard, rig.form((0,), generation=2), rig.After(GroupFormed, 1), rig.finish()]
    loop, link, _ = loop_of(0, script, tmp_path / "store", "parameters")
    loop.parts.rounds._averager._make_group = fail
    loop.run()
    assert [event.generation for event in link.told(GroupFormed)] == [2]


def test_a_first_group_that_cannot_form_is_told_at_once(tmp_path: Path) -> None:
    loop, _, _ = loop_of(0, [rig.form((0, 1))], tmp_path / "store", "parameters")
    loop.parts.rounds._averager._make_group = rig.gloo_group("no-such-interface", 5.0)
    began = time.monotonic()
    with pytest.raises(RunFailed, match="no-such-interface"):
        loop.run()
    assert time.monotonic() - began < 2.0
