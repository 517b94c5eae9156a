"""What the callback rank does: the trial batch, the split and the figures that the job names."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from flodl.engine.callbacks import Callbacks
from flodl.engine.functions import Functions
from flodl.engine.precision import Precision
from flodl.spec.job import EvalConfig

CPU = torch.device("cpu")
TRAIN, HELD_OUT = TensorDataset(torch.full((6, 1), 1.0)), TensorDataset(torch.full((6, 1), 2.0))


class Step:
    """Tells the mean and its root; counts its batches."""

    def __init__(self) -> None:
        self.batches = 0

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        raise AssertionError("metrics are there")

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        self.batches += 1
        return {"loss": batch[0].mean(), "root": batch[0].mean().sqrt(), "nothing": batch[0].mean() / 0}


def callbacks(step: Any, **config: Any) -> Callbacks:
    built: Any = SimpleNamespace(
        model=nn.Linear(1, 1),
        step=step,
        train=TRAIN,
        eval=HELD_OUT,
        batch_size=2,
        slice_size=None,
        precision=Precision(),
        functions=config.pop("functions", Functions()),
    )
    rule: Any = SimpleNamespace(consensus_in=nullcontext)
    return Callbacks(SimpleNamespace(), rule, built, CPU, EvalConfig(**config))  # type: ignore[arg-type]


def test_only_the_named_figures_are_kept_and_judged() -> None:
    result = callbacks(Step(), metrics=("loss",)).run("eval", 3)
    assert (result.ok, result.values, result.epoch, result.samples_done) == (True, {"loss": 2.0}, 3, 0)
    assert "nothing=inf" in callbacks(Step()).run("eval", 3).error


def test_the_split_that_the_job_names_is_judged() -> None:
    result = callbacks(Step(), metrics=("loss",), split="train").run("eval", 0, 40)
    assert (result.values, result.samples_done) == ({"loss": 1.0}, 40)


def test_the_trial_is_one_batch_and_tells_every_figure_there_is() -> None:
    step = Step()
    result = callbacks(step, metrics=("loss",)).try_batch()
    assert step.batches == 1
    assert result.ok
    assert result.values == pytest.approx({"loss": 2.0, "root": 2.0**0.5, "nothing": 0.0})


def test_a_trial_that_raises_says_what() -> None:
    def broken(model: nn.Module, batch: Any) -> Tensor:
        return batch["label"]

    result = callbacks(broken).try_batch()
    assert not result.ok
    assert result.error.startswith("TypeError: ")


def test_an_evaluation_may_be_cut_short() -> None:
    step = Step()
    assert callbacks(step, metrics=("loss",), limit_batches=1).run("eval", 0).ok
    assert step.batches == 1
    assert callbacks(step, metrics=("loss",)).run("eval", 0).ok
    assert step.batches == 1 + 3


def test_a_function_of_the_users_judges_in_place_of_the_step() -> None:
    seen: list[bool] = []

    def judge(model: nn.Module) -> dict[str, float]:
        seen.append(model.training or torch.is_grad_enabled())
        return {"own": 2.0, "other": 3.0}

    own = callbacks(Step(), functions=Functions(eval=judge), metrics=("own",))
    told = own.run("eval", 1)
    assert (told.error, told.values) == ("", {"own": 2.0})
    assert own.try_batch().values == {"own": 2.0, "other": 3.0}
    assert seen == [False, False]
    bare = callbacks(Step(), functions=Functions(eval=lambda model: 0.5))
    assert bare.run("eval", 1).values == {"eval": 0.5}


UNFIT = {
    (("own", float("nan")),): "the evaluation gave own=nan",
    "much": "callbacks.eval_fn gave eval='much', which is no number",
    (("a", None),): "callbacks.eval_fn gave a=None, which is no number",
    (("a", torch.zeros(2)),): "callbacks.eval_fn gave a=tensor([0., 0.]), which is no number",
    (("a\nb\ud800", 0.5),): r"the name 'a\nb\ud800' must be text of 1 to 100 characters, all of them such as are shown",
    ((7, 0.5),): "the name 7 must be text",
    (("other", 0.5),): "the evaluation told only other; own is missing, which it told before",
    (): "the evaluation told nothing at all; own is missing",
}


@pytest.mark.parametrize(("given", "told"), UNFIT.items(), ids=range(len(UNFIT)))
def test_an_evaluation_that_goes_wrong_later_is_told_in_words_and_the_next_one_is_as_good_as_ever(
    given: Any, told: str
) -> None:
    """The trial is well; the second evaluation gives what no record holds, or not what the first one gave."""
    bad = dict(given) if isinstance(given, tuple) else given
    later = iter([{"own": 1.0}, bad, {"own": 3.0, "more": 4.0}])
    own = callbacks(Step(), functions=Functions(eval=lambda model: next(later)))
    assert own.try_batch().ok
    broken = own.run("eval", 1)
    assert (broken.ok, broken.values) == (False, {})
    assert told in broken.error
    assert "FlodlError" not in broken.error, "our own words need no class"
    assert own.run("eval", 2).values == {"own": 3.0, "more": 4.0}


def test_an_evaluation_that_cannot_be_recorded_fails_at_the_trial_whoever_tells_it() -> None:
    class Odd(Step):
        def metrics(self, model: nn.Module, batch: Any) -> Any:
            return {"": 0.5}

    for odd in (callbacks(Odd()), callbacks(Step(), functions=Functions(eval=lambda model: {"": 0.5}))):
        assert "gave a figure that cannot be recorded: the name '' must be text" in odd.try_batch().error
    overflown = callbacks(Step(), functions=Functions(eval=lambda model: {"perplexity": float("inf")}))
    assert overflown.try_batch().values == {"perplexity": 0.0}, "an untrained model may well overflow"
    assert "perplexity=inf" in overflown.run("eval", 1).error


def test_what_a_checkpoint_function_raises_costs_no_bundle(capsys: pytest.CaptureFixture[str]) -> None:
    def keep(round_: int, model: nn.Module) -> None:
        raise ValueError(f"round {round_}")

    Functions(checkpoint=keep).saved(7, nn.Linear(1, 1), nullcontext())
    assert capsys.readouterr().err == "warning: callbacks.checkpoint_fn failed: ValueError: round 7\n"
