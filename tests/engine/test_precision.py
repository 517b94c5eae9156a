"""In what numbers forward passes are computed, and what a batch weighs that float16 could not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from flodl.decide.messages import Range, Round, RunWindow, WindowDone
from flodl.engine.compiling import compile_model
from flodl.engine.precision import Precision, precision_of
from flodl.errors import ConfigError
from tests.engine import rig

pytestmark = pytest.mark.own_process

CUDA = torch.device("cuda", 0)


class Seen:
    """A linear model's step that notes in what numbers it is computed. Batches of `bad` overflow."""

    def __init__(self, bad: tuple[int, ...] = ()) -> None:
        self.bad = bad
        self.calls = 0
        self.kinds: set[torch.dtype] = set()

    def __call__(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        out = model(batch[0])
        self.kinds.add(out.dtype)
        self.calls += 1
        loss = out.float().mean()
        return loss * 1e38 if self.calls in self.bad else loss


def train(store: Path, orders: list[Any], step: Any, **options: Any) -> tuple[rig.ScriptedLink, nn.Linear]:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    data = TensorDataset(torch.ones(100, 4))
    link = rig.ScriptedLink([rig.form((0,)), *orders, rig.finish("eval", "save")], store)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rig.make_loop(
        0, link, model=model, optimizer=optimizer, step=step, data=data, held=data, batch_size=10,
        **{"rule": "parameters", **options},
    ).run()  # fmt: skip
    return link, model


def window(batches: int) -> list[Any]:
    return [rig.window(1, batches, [(0, 0, 100)]), rig.After(WindowDone, 1), rig.average(1, [1])]


def grant(batches: list[int]) -> list[Any]:
    rounds = tuple(Round(n + 1, count, 0, 10) for n, count in enumerate(batches))
    order = RunWindow(
        to=(0,), generation=1, rounds=rounds, ranges=(Range(0, 0, 100),), alone=True, epoch=0, reason="test"
    )
    return [order, rig.After(WindowDone, 1)]


@pytest.mark.parametrize(
    ("capability", "name"), [((8, 0), "bfloat16"), ((9, 0), "bfloat16"), ((7, 5), "float32"), ((6, 1), "float32")]
)
def test_auto_is_bfloat16_where_the_card_has_it(
    capability: tuple[int, int], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: None)
    assert precision_of("auto", CUDA).name == name
    assert precision_of("auto", rig.CPU).name == "float32"
    assert precision_of("bfloat16", rig.CPU).name == "bfloat16"


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_forward_passes_and_evaluation_are_cast_and_weights_are_not(name: str, tmp_path: Path) -> None:
    step = Seen()
    link, model = train(tmp_path / "store", window(4), step, precision=name)
    assert step.kinds == {getattr(torch, name)}
    assert step.calls == 4 + 10  # the evaluation's, too
    assert model.weight.dtype == torch.float32
    assert rig.saved(link)["model.param/weight"].dtype == torch.float32
    assert link.told(WindowDone)[0].skipped_batches == 0


def test_gradients_are_unscaled_before_they_are_clipped(tmp_path: Path) -> None:
    _, clipped = train(tmp_path / "a", window(3), Seen(), precision="float16", max_grad_norm=1e-3)
    _, wanted = train(tmp_path / "b", window(3), Seen(), precision="float32", max_grad_norm=1e-3)
    torch.testing.assert_close(clipped.weight, wanted.weight, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rule", ["parameters", "gradients"])
def test_a_batch_that_overflows_in_float16_changes_nothing_and_is_counted(rule: str, tmp_path: Path) -> None:
    link, skipping = train(tmp_path / "a", window(4), Seen(bad=(2,)), rule=rule, precision="float16")
    report = link.told(WindowDone)[0]
    assert (report.batches, report.samples) == (4, 40)
    assert (report.skipped_batches, report.skipped_samples) == (1, 10)
    assert len(report.notes) == 1
    assert "overflowed in float16" in report.notes[0]
    _, without = train(tmp_path / "b", window(3), Seen(), rule=rule, precision="float16")
    torch.testing.assert_close(skipping.weight, without.weight)


@pytest.mark.parametrize("rule", ["parameters", "gradients"])
def test_a_round_of_nothing_but_overflows_has_no_mass(rule: str, tmp_path: Path) -> None:
    link, model = train(tmp_path / "a", grant([1, 1]), Seen(bad=(1, 2)), rule=rule, precision="float16")
    torch.manual_seed(0)
    assert torch.equal(model.weight, nn.Linear(4, 2).weight)
    assert link.told(WindowDone)[0].skipped_samples == 20
    assert link.told(WindowDone)[0].nonfinite == ""


def test_a_compiled_model_keeps_its_names_and_is_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    names = list(model.state_dict())
    assert not compile_model(model, "auto", rig.CPU)
    assert not compile_model(model, False, rig.CPU)
    assert model._compiled_call_impl is None
    assert compile_model(model, True, rig.CPU)
    assert model._compiled_call_impl is not None
    assert list(model.state_dict()) == names


@pytest.mark.parametrize(("capability", "has_triton"), [((6, 1), True), ((7, 0), False), ((7, 0), True)])
def test_auto_compiles_where_the_card_and_its_host_can(
    capability: tuple[int, int], has_triton: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: has_triton)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert compile_model(nn.Linear(1, 1), "auto", CUDA) == (capability >= (7, 0) and has_triton)


def spent() -> Tensor:
    loss = torch.zeros(2, requires_grad=True).exp().sum()
    loss.backward()
    return loss


def test_what_is_no_loss_is_told_with_what_to_return() -> None:
    cases: list[tuple[Any, str]] = [
        (0.5, "gave a float; return the batch's mean loss, a tensor"),
        (None, "gave a NoneType; return the batch's mean loss, a tensor"),
        ((torch.zeros((), requires_grad=True) * 2, 1.0), "gave a tuple; return the batch's mean loss, a tensor"),
        (
            torch.zeros(3, requires_grad=True) * 2,
            "gave a tensor of shape (3,); return one loss for the batch: the mean",
        ),
        (torch.zeros(()), "gave a loss that leads back to no parameter; leave out detach(), item() and no_grad()"),
        (spent(), "has called backward() itself; return the loss; gradients are computed here"),
    ]
    for name in ("float32", "float16"):
        for loss, said in cases:
            with pytest.raises(ConfigError) as caught:
                Precision(name, torch.device("cpu")).backward(loss)
            assert str(caught.value) == f"step: {said}"
