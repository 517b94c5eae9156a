"""What a step records arrives, reduced; outside a training step nothing is recorded."""

from __future__ import annotations

import pytest
import torch

import flodl
from flodl.decide.totals import Scalar
from flodl.engine.micro import Gradients
from flodl.engine.scalars import Recorder
from flodl.engine.tally import Tally


def trained(tally: Tally, samples: int, *told: tuple[str, object, str]) -> None:
    recorder = Recorder()
    with recorder.during(samples):
        for name, value, reduction in told:
            flodl.record_scalar(name, value, reduction)  # type: ignore[arg-type]
    tally.add(Gradients(torch.tensor(1.0), recorder, is_usable=True), samples)


def scalars_of(tally: Tally) -> dict[str, Scalar]:
    return tally.report((0, 1, 1), [1.0], torch.device("cpu")).scalars


def test_a_mean_is_weighted_by_the_samples_of_its_batch() -> None:
    tally = Tally()
    trained(tally, 30, ("accuracy", torch.tensor(0.5), "mean"))
    trained(tally, 10, ("accuracy", 1.0, "mean"))
    assert scalars_of(tally) == {"accuracy": Scalar("mean", 25.0, 40.0)}
    assert scalars_of(tally)["accuracy"].result == 0.625


def test_the_other_reductions_do_not_look_at_samples() -> None:
    tally = Tally()
    for value in (2.0, 5.0, 3.0):
        trained(tally, 7, *((name, value, name) for name in ("sum", "max", "min", "last")))
    assert {name: scalar.result for name, scalar in scalars_of(tally).items()} == {
        "sum": 10.0, "max": 5.0, "min": 2.0, "last": 3.0,
    }  # fmt: skip


def test_a_report_begins_anew() -> None:
    tally = Tally()
    trained(tally, 1, ("n", 1, "sum"))
    tally.clear()
    assert scalars_of(tally) == {}


def test_outside_a_training_step_nothing_is_recorded() -> None:
    flodl.record_scalar("anything", float("nan"), "mean")


def test_a_step_that_failed_leaves_no_recorder_behind() -> None:
    recorder = Recorder()
    with pytest.raises(ZeroDivisionError), recorder.during(1):
        raise ZeroDivisionError
    flodl.record_scalar("later", 1.0)
    assert recorder.scalars() == {}


def test_figures_that_are_not_finite_are_left_out_and_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    for _ in range(2):
        trained(tally, 1, ("bad", torch.tensor(float("inf")), "sum"), ("good", 1.0, "sum"))
        assert scalars_of(tally) == {"good": Scalar("sum", 1.0)}
        tally.clear()
    assert capsys.readouterr().out.count("record_scalar('bad'): inf") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", 1.0), "the name '' must be text"),
        (("x" * 101, 1.0), "must be text of 1 to 100"),
        ((5, 1.0), "the name 5 must be text"),
        (("a\x1b[31m\n", 1.0), r"record_scalar: the name 'a\\x1b\[31m\\n' must be text of .* such as are shown"),
        (("\ud800", 1.0), r"the name '\\ud800' must be text"),
        (("x", 1.0, "median"), "reduction='median' is none of mean, sum, max, min, last"),
        (("x", torch.zeros(2)), r"a tensor of shape \(2,\) is no single number"),
    ],
)
def test_what_cannot_be_recorded_is_refused_in_words(arguments: tuple[object, ...], message: str) -> None:
    with Recorder().during(1), pytest.raises(ValueError, match=message):
        flodl.record_scalar(*arguments)  # type: ignore[arg-type]


def test_a_name_has_one_reduction() -> None:
    with Recorder().during(1):
        flodl.record_scalar("x", 1.0, "sum")
        with pytest.raises(ValueError, match="reduction='max', but it was 'sum' before"):
            flodl.record_scalar("x", 1.0, "max")


@pytest.mark.parametrize("value", [None, "much", [0.5], {"a": 1}])
def test_what_is_no_number_is_refused_in_words(value: object) -> None:
    with pytest.raises(ValueError, match=r"record_scalar\('accuracy'\): .* is no number"):
        trained(Tally(), 7, ("accuracy", value, "mean"))
