"""What a rank saves becomes weights for people: the user's own state_dict, which two lines of plain PyTorch load."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from flodl.engine.averaging.parameters import ParameterRule
from flodl.engine.bundle import TrainingState
from flodl.engine.pretrained import load_weights
from flodl.engine.saver import Saver
from flodl.engine.tensorfile import tensors_of
from flodl.errors import FlodlError
from flodl.record.bundle import BundleStore, Saved
from flodl.record.bundle_names import PLAIN, as_upload
from tests.engine.listening import Controller, dialled
from tests.engine.test_bundle import Net, Waves
from tests.engine.test_carried import Alone
from tests.record.bundles import meta


class Disk:
    """A link whose other end keeps bundles."""

    def __init__(self, folder: Path) -> None:
        self.store = BundleStore(folder)
        self.saved: list[Saved] = []

    def upload(self, files: Iterable[tuple[str, Iterable[memoryview]]]) -> None:
        whole = {part: b"".join(chunks) for name, chunks in files if (part := as_upload(name))}
        saving = self.store.begin(next(iter(whole)).round)
        plain: dict[str, Any] = {}
        for part, data in whole.items():
            if part.kind == PLAIN:
                plain = msgspec.json.decode(data)
                continue
            sink = saving.open(part.kind)
            sink.write(data)
            sink.commit(hashlib.sha256(data).hexdigest())
        self.saved.append(self.store.commit(saving, meta(saving.round, plain=plain)))


def saved_beside(folder: Path, model: nn.Module, state: TrainingState | None = None, round_: int = 1) -> Path:
    """A save of the model; the folder's weights."""
    if state is None:
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
        rule = ParameterRule(model, optimizer)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
        rule.step(1)
        rule.start()
        state = TrainingState(model, optimizer, rule)
    disk = Disk(folder)
    Saver(0, disk, model, state).save(round_)  # pyright: ignore[reportArgumentType]
    assert disk.saved[0].remarks == ()
    return folder / "weights.safetensors"


class Everything(Waves):
    """Beside complex ones: what a state_dict leaves out, what has no elements, and two kinds of small numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.ones(5), persistent=False)
        self.empty = nn.Parameter(torch.empty(0, 3))
        self.register_buffer("flags", torch.tensor([True, False, True]))
        self.register_buffer("narrow", torch.ones(3, dtype=torch.float16))
        self.register_buffer("count", torch.tensor(2**40))


@pytest.mark.parametrize("net", [Net, Everything, lambda: torch.compile(Net(), backend="eager")])
def test_the_weights_are_the_models_state_dict_to_the_last_bit(net: Any, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model: nn.Module = net()
    path = saved_beside(tmp_path, model)
    found = load_file(path)
    expected = {name.replace("_orig_mod.", ""): value for name, value in model.state_dict().items()}
    assert found.keys() == expected.keys()
    given = tensors_of(path.read_bytes())
    for name, value in expected.items():
        assert (given[name].dtype, given[name].shape) == (value.dtype, value.shape), name
        assert torch.equal(given[name], value), name


def test_tied_weights_are_there_under_each_name_and_load_into_a_fresh_model(tmp_path: Path) -> None:
    model, fresh = Net(), Net()
    path = saved_beside(tmp_path, model)
    load_weights(fresh, path, "run")
    assert torch.equal(fresh.second.weight, model.first.weight)
    fresh.load_state_dict(load_file(path))  # as people do it


def test_the_moving_average_lies_beside_them_in_the_models_own_dtype(tmp_path: Path) -> None:
    run = Alone(outer=False, dtype=torch.bfloat16)
    saved_beside(tmp_path, run.model, run.state)
    average = tmp_path / "weights.ema.safetensors"
    assert not average.exists(), "nothing is averaged yet"
    run.reach(1.0, 4.0)
    kept, averaged = load_file(saved_beside(tmp_path, run.model, run.state, 2)), load_file(average)
    assert kept.keys() == averaged.keys() == run.model.state_dict().keys()
    assert (kept["weight"].item(), averaged["weight"].item(), averaged["steps"].item()) == (4.0, 3.0, 3)
    assert averaged["weight"].dtype == torch.bfloat16


def test_what_no_file_of_weights_can_hold_is_told_by_its_name(tmp_path: Path) -> None:
    class Extra(Waves):
        def get_extra_state(self) -> object:
            return {"any": "thing"}

    class Inner(Waves):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("part", self.real.detach()[:2])

    for net, words in ((Extra, "_extra_state is a dict; only tensors"), (Inner, "part is a part of another tensor's")):
        with pytest.raises(FlodlError, match=words):
            saved_beside(tmp_path, net())
    assert not list(tmp_path.iterdir())


def test_a_save_that_a_ranks_own_end_cuts_off_says_nothing_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    uncaught: list[object] = []
    monkeypatch.setattr(threading, "excepthook", uncaught.append)
    controller, run = Controller(), Alone(outer=False, dtype=torch.float32)
    with dialled(controller.door(0)) as link:
        saver = Saver(0, link, run.model, run.state)
    saver.begin(1)  # the link is closed
    saver.wait()
    controller.server.close()
    assert uncaught == []
    assert not controller.sink.committed
