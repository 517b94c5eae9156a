"""An epoch's figures and its evaluation, which often comes later, are read back as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl.decide.messages import CallbackResult, EpochEnded, Goodbye, IntervalEnded
from flodl.decide.totals import IntervalMetrics
from flodl.errors import FlodlError
from flodl.record.gpu_use import GpuLine, GpuUse
from flodl.record.metrics import MetricsFile, read_gpus, read_intervals, read_metrics
from tests.record.figures import epoch, window_done


def evaluated(accuracy: float, epoch: int = -1) -> CallbackResult:
    return CallbackResult(name="eval", ok=True, values={"accuracy": accuracy}, epoch=epoch)


def ended(number: int) -> EpochEnded:
    return EpochEnded(metrics=epoch(number), reason="its last sample is done")


@pytest.fixture
def metrics(runs: Path) -> MetricsFile:
    return MetricsFile(runs / "metrics")


def test_epochs_come_back_equal_and_in_order(metrics: MetricsFile) -> None:
    for number in (0, 1, 2):
        metrics.append(epoch(number))
    assert read_metrics(metrics_path(metrics)) == [epoch(0), epoch(1), epoch(2)]


def test_what_gpus_did_stands_in_lines_of_its_own(metrics: MetricsFile) -> None:
    use = GpuUse(
        host="a", index=1, uuid="GPU-1", name="X", seconds=4.0, utilisation=0.5, throttled_seconds={"power": 2.0}
    )
    metrics.append(epoch(0))
    metrics.append_gpus(0, [use])
    metrics.append(epoch(1))
    assert read_gpus(metrics_path(metrics)) == [GpuLine(epoch=0, gpus=(use,))]
    assert read_metrics(metrics_path(metrics)) == [epoch(0), epoch(1)]


def test_a_late_evaluation_is_attached_to_its_epoch(metrics: MetricsFile) -> None:
    metrics.observe(window_done(0, 3), [ended(0)])
    metrics.observe(window_done(1, 4), [ended(1)])
    metrics.observe(window_done(0, 5, evaluated(0.9, epoch=0)), [])
    metrics.observe(Goodbye(at=9.0, rank=0, callbacks=(evaluated(0.95),)), [])
    assert [m.eval for m in read_metrics(metrics_path(metrics))] == [{"accuracy": 0.9}, {"accuracy": 0.95}]


def test_an_evaluation_that_is_written_already_is_not_written_twice(metrics: MetricsFile) -> None:
    metrics.append(epoch(0, eval={"accuracy": 0.9}))
    metrics.append_eval(0, {"accuracy": 0.9})
    assert metrics_path(metrics).read_bytes().count(b"\n") == 1


def test_parts_of_an_epoch_and_evaluations_within_it_stand_before_its_line_and_are_no_epochs(
    metrics: MetricsFile,
) -> None:
    part = IntervalMetrics(
        epoch=0,
        interval=1,
        intervals=2,
        samples=500,
        loss=1.5,
        wall_seconds=2.0,
        samples_per_second=250.0,
        scalars={},
        rounds=3,
        anchor=10,
        phase="warmup",
        divergence=0.01,
        learning_rate=0.1,
    )
    midway = CallbackResult(name="eval", ok=True, values={"accuracy": 0.4}, epoch=0, samples_done=500)
    metrics.observe(window_done(0, 3, midway), [IntervalEnded(metrics=part, reason="half of it")])
    metrics.observe(window_done(1, 4), [ended(0)])
    metrics.observe(window_done(0, 5, evaluated(0.9, epoch=0)), [])
    path = metrics_path(metrics)
    assert [m.eval for m in read_metrics(path)] == [{"accuracy": 0.9}]
    assert read_intervals(path) == [part]
    assert b'{"epoch":0,"samples_done":500,"eval":{"accuracy":0.4}}\n' in path.read_bytes()


def test_a_failed_evaluation_and_a_save_leave_no_line(metrics: MetricsFile) -> None:
    failed = CallbackResult(name="eval", ok=False, error="no data", epoch=0)
    saved = CallbackResult(name="save", ok=True, values={"bytes": 1.0}, epoch=0)
    metrics.observe(window_done(0, 3, failed, saved), [ended(0)])
    assert metrics_path(metrics).read_bytes().count(b"\n") == 1


def test_a_torn_last_line_is_left_out_and_a_damaged_one_is_named(metrics: MetricsFile) -> None:
    metrics.append(epoch(0))
    metrics.append(epoch(1))
    path = metrics_path(metrics)
    path.write_bytes(path.read_bytes()[:-5])
    assert read_metrics(path) == [epoch(0)]
    path.write_bytes(b'{"epoch": "x"}\n')
    with pytest.raises(FlodlError, match=":1: "):
        read_metrics(path)


def metrics_path(metrics: MetricsFile) -> Path:
    metrics.close()
    return metrics.path
