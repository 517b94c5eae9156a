"""One rank's loop: readings, learning rate, grants, callbacks, throttle, goodbye."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from flodl.decide.messages import (
    AveragingDone,
    BundleKept,
    Cut,
    Goodbye,
    GroupFormed,
    Range,
    Round,
    RunWindow,
    WindowDone,
)
from flodl.engine.averaging.rule import RoundOrder
from flodl.engine.loop import Loop
from flodl.engine.orders import Orders
from flodl.errors import RunFailed
from tests.engine import rig


class Line(nn.Module):
    """y = w x, with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))


class Count:
    """A step with a gradient of -1 per batch; notes the learning rate it ran at."""

    def __init__(self, optimizer: torch.optim.Optimizer, seconds: float = 0.0) -> None:
        self.optimizer, self.seconds = optimizer, seconds
        self.rates: list[float] = []

    def __call__(self, model: Line, batch: tuple[Tensor, ...]) -> Tensor:
        time.sleep(self.seconds)
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        return -model.weight.sum() + 0 * batch[0].sum()

    def metrics(self, model: Line, batch: tuple[Tensor, ...]) -> dict[str, Tensor]:
        return {"weight": model.weight.detach().mean()}


def run(orders: list[Any], store: Path, *, rule: str = "parameters", seconds: float = 0.0, **options: Any) -> Any:
    """(what was sent, the weight, the learning rates) after the loop has left."""

    def work(rank: int) -> Any:
        link = options.pop("link", rig.ScriptedLink)([rig.form((0,)), *orders], store)
        model = Line()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        count = Count(optimizer, seconds)
        step = options.pop("step", count)
        data = TensorDataset(torch.zeros(100))
        rig.make_loop(
            rank,
            link,
            rule=rule,
            model=model,
            optimizer=optimizer,
            step=step,
            data=data,
            batch_size=10,
            held=data,
            **options,
        ).run()
        return link.record(), float(model.weight.detach()), count.rates

    return rig.run_ranks(1, work)[0]


def grant(first: int, batches: list[int], ranges: list[Range], **fields: Any) -> RunWindow:
    rounds = tuple(Round(first + n, count, (first + n - 1) * 10, 10) for n, count in enumerate(batches))
    return RunWindow(
        to=(0,), generation=1, rounds=rounds, ranges=tuple(ranges), alone=True, epoch=0, reason="test", **fields
    )


def two_windows(**fields: Any) -> list[Any]:
    return [
        rig.window(1, 4, [(0, 0, 100)], before=0, samples=40),
        rig.After(WindowDone, 1),
        rig.average(1, [1]),
        rig.window(2, 6, [(0, 40, 100)], before=40, samples=60, **fields),
        rig.After(WindowDone, 2),
        rig.average(2, [1]),
    ]


def test_a_window_reports_what_was_really_run_and_leaves_the_first_batch_of_all_out_of_the_reading(
    tmp_path: Path,
) -> None:
    link, weight, _ = run([*two_windows(), rig.finish()], tmp_path / "store", seconds=0.002)
    first, second = link.told(WindowDone)
    assert (first.batches, first.samples, first.timed_batches) == (4, 40, 3)
    assert (second.batches, second.samples, second.timed_batches) == (6, 60, 6)
    assert second.compute_ms == pytest.approx(second.timed_ms)
    assert first.compute_ms > first.timed_ms > 3 * 2.0
    assert first.loss_sum == pytest.approx(sum(-step * 10.0 for step in range(4)))
    assert weight == 10.0
    assert [event.round for event in link.told(AveragingDone)] == [1, 2]
    assert isinstance(link.sent[-1], Goodbye)
    assert link.sent[0] == GroupFormed(at=0.0, rank=0, generation=1, last_round=0, digest=link.sent[0].digest)
    assert len(link.sent[0].digest) == 64


def test_the_learning_rate_follows_global_progress(tmp_path: Path) -> None:
    _, _, rates = run([*two_windows(), rig.finish()], tmp_path / "store", schedule=lambda progress: 1.0 - progress)
    assert rates == pytest.approx([1.0 - samples / 100 for samples in range(0, 100, 10)])


def test_running_ahead_the_rate_goes_on_as_in_the_last_window(tmp_path: Path) -> None:
    orders = [rig.window(1, 4, [(0, 0, 100)], before=0, samples=40, max_overshoot=2), rig.After(WindowDone, 1)]
    orders += [rig.Reached(6), rig.average(1, [1]), rig.After(AveragingDone, 1), rig.finish()]
    _, _, rates = run(orders, tmp_path / "store", rule="elastic", schedule=lambda progress: 1.0 - progress)
    assert rates == pytest.approx([1.0 - samples / 100 for samples in range(0, 60, 10)])


def test_a_grant_runs_its_rounds_alone_and_reports_once(tmp_path: Path) -> None:
    orders = [grant(1, [1, 2, 0], [Range(0, 0, 30)]), rig.After(WindowDone, 1), rig.finish()]
    link, weight, _ = run(orders, tmp_path / "store")
    (report,) = link.told(WindowDone)
    assert (report.round, report.batches, report.samples) == (3, 3, 30)
    assert link.told(AveragingDone) == []
    assert weight == 3.0


def test_gradients_of_a_round_meet_the_same_weights_and_step_once(tmp_path: Path) -> None:
    orders = [grant(1, [1, 3], [Range(0, 0, 40)]), rig.After(WindowDone, 1), rig.finish()]
    _, weight, rates = run(orders, tmp_path / "store", rule="gradients", schedule=lambda progress: 1.0 - progress)
    assert weight == pytest.approx(1.0 + 0.9)  # one step a round, at the rate of the round's beginning
    assert len(rates) == 4


def test_a_cut_ends_the_window_at_the_next_edge(tmp_path: Path) -> None:
    cut = Cut(to=(0,), reason="test")
    orders = [rig.window(1, 9, [(0, 0, 100)]), rig.Reached(2), cut, rig.After(WindowDone, 1)]
    link, _, _ = run([*orders, rig.average(1, [1]), rig.finish()], tmp_path / "store", seconds=0.02)
    assert 2 <= link.told(WindowDone)[0].batches <= 4


def test_a_rank_with_nothing_to_run_reports_at_once(tmp_path: Path) -> None:
    orders = [rig.window(1, 0, []), rig.After(WindowDone, 1), rig.average(1, [0]), rig.finish()]
    link, weight, _ = run(orders, tmp_path / "store")
    report = link.told(WindowDone)[0]
    assert (report.batches, report.timed_batches, report.loss_sum) == (0, 0, 0.0)
    assert weight == 0.0


def test_callbacks_run_on_the_consensus_before_the_window_and_count_for_no_reading(tmp_path: Path) -> None:
    link, _, _ = run([*two_windows(callbacks=("eval",), epoch=1), rig.finish("eval", "save")], tmp_path / "store")
    second = link.told(WindowDone)[1]
    (result,) = second.callbacks
    assert (result.name, result.ok, result.epoch, result.values) == ("eval", True, 0, {"weight": 4.0})
    assert second.callback_ms > 0
    evaluated, saved = link.sent[-1].callbacks
    assert evaluated.values == {"weight": 10.0}
    assert saved.ok
    assert rig.saved(link)["model.param/weight"].tolist() == [10.0]


def test_evaluation_and_save_show_the_consensus_not_what_was_trained_past_it(tmp_path: Path) -> None:
    orders = [rig.window(1, 4, [(0, 0, 100)], max_overshoot=3), rig.After(WindowDone, 1), rig.Reached(7)]
    orders += [rig.average(1, [1]), rig.After(AveragingDone, 1), rig.finish("eval", "save")]
    link, weight, _ = run(orders, tmp_path / "store", rule="elastic")
    assert link.sent[-1].callbacks[0].values == {"weight": 4.0}
    assert rig.saved(link)["model.param/weight"].tolist() == [4.0]
    assert weight == 7.0


class FullDisk(rig.ScriptedLink):
    """A controller that cannot store anything."""

    def upload(self, files: object) -> None:
        raise OSError(28, "No space left on device")


def test_a_callback_that_fails_is_told_in_words_and_training_goes_on(tmp_path: Path) -> None:
    orders = [*two_windows(callbacks=("save",)), rig.finish()]
    link, weight, _ = run(orders, tmp_path / "store", link=FullDisk)
    (kept,) = link.told(BundleKept)
    assert "No space left on device" in kept.error
    assert (kept.rank, kept.round) == (0, 1)
    assert weight == 10.0


def test_a_throttled_rank_takes_its_share_of_time_and_counts_it_as_compute(tmp_path: Path) -> None:
    link, _, _ = run([*two_windows(), rig.finish()], tmp_path / "store", seconds=0.005, speed=0.25)
    report = link.told(WindowDone)[1]
    assert report.timed_ms / report.timed_batches >= 4 * 5.0


def test_no_report_holds_a_number_that_is_not_finite(tmp_path: Path) -> None:
    orders = [rig.window(1, 2, [(0, 0, 100)]), rig.After(WindowDone, 1), rig.average(1, [1]), rig.finish()]
    link, _, _ = run(orders, tmp_path / "store", step=lambda model, batch: model.weight.sum() * float("nan"))
    assert link.told(WindowDone)[0].loss_sum is None
    assert link.told(AveragingDone)[0].nonfinite == "weight"


def loop_in_a_failed_round(rank: int, store: Path) -> tuple[Loop, rig.ScriptedLink]:
    """It trains on while that ran."""
    link = rig.ScriptedLink([], store)
    model = Line()
    data = TensorDataset(torch.zeros(100))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    parts = {"rule": "elastic", "model": model, "optimizer": optimizer, "step": Count(optimizer), "data": data}
    loop = rig.make_loop(rank, link, **parts, batch_size=10, held=data)
    loop.averaging, link.activity = Future(), "train"
    loop.averaging.set_exception(RuntimeError("connection closed by peer"))
    return loop, link


def test_a_round_that_has_failed_holds_nobody_up_in_the_next_generation(tmp_path: Path) -> None:
    """Its failure may be known before the order to regroup is obeyed: no further word of the coordinator will come."""

    def work(rank: int) -> bool:
        loop, link = loop_in_a_failed_round(rank, tmp_path / "store")
        began = time.monotonic()
        loop.form_group(rig.form((0,), generation=2, source=None))
        assert link.activity == "group", "who waits for a group is not taken for one that hangs in a step"
        return time.monotonic() - began < 1.0 and loop.averaging is None and bool(link.told(GroupFormed))

    assert rig.run_ranks(1, work) == [True]


def test_who_waits_for_word_of_a_failed_round_is_not_taken_for_one_that_hangs_in_a_step(tmp_path: Path) -> None:
    """The coordinator may take longer to end the run than a step may take."""
    loop, link = loop_in_a_failed_round(0, tmp_path / "store")
    loop.orders = Orders(link, patience_seconds=0.0)
    with pytest.raises(RunFailed, match="connection closed by peer"):
        loop.adopt_when_ready()
    assert link.activity == "average"


def test_who_adopts_a_round_beside_training_is_watched_as_before(tmp_path: Path) -> None:
    def work(rank: int) -> str:
        loop, link = loop_in_a_failed_round(rank, tmp_path / "store")
        loop.form_group(rig.form((0,), source=None))
        loop.averaging, link.activity = loop.parts.rounds.submit(RoundOrder(1, 1, 1.0)), "train"
        loop.finish_averaging()
        assert loop.parts.rounds.last_round == 1
        return link.activity

    assert rig.run_ranks(1, work) == ["train"]
