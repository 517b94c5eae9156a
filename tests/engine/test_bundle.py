"""A training that is captured and put into a fresh model goes on as if it had not stopped, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load
from torch import nn
from torch.optim import Optimizer

from flodl.engine.averaging.elastic import ElasticRule
from flodl.engine.averaging.gradients import GradientRule
from flodl.engine.averaging.parameters import ParameterRule
from flodl.engine.averaging.rule import RoundOrder, Rule
from flodl.engine.bundle import TrainingState
from flodl.engine.precision import Precision
from flodl.engine.schedule import LearningRate
from flodl.errors import ConfigError, FlodlError

STEPS = 5
TOTAL = 2 * STEPS


class Alone:
    """An averager of one: the sum is what it brings."""

    def form(self, generation: int, ranks: tuple[int, ...]) -> None: ...

    def combine(self, generation: int, round_: int, vectors: list[torch.Tensor]) -> None: ...

    def launch(self, generation: int, round_: int, vectors: list[torch.Tensor]) -> Callable[[], None]:
        return lambda: None

    def broadcast(self, generation: int, source: int, tensors: list[torch.Tensor]) -> None: ...


class Net(nn.Module):
    """What is awkward: images in channels_last, normalisation, tied and frozen weights, one that gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(6)
        self.first = nn.Linear(6, 6, bias=False)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.unused = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3, dtype=torch.int64)[::2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        x = self.norm(self.conv(x.contiguous(memory_format=torch.channels_last))).mean((2, 3))
        return self.second(torch.tanh(self.first(self.frozen(x)))).square().mean()


class Waves(nn.Module):
    """Complex parameters, an odd number of real ones before them."""

    def __init__(self) -> None:
        super().__init__()
        self.real = nn.Parameter(torch.randn(3))
        self.wave = nn.Parameter(torch.randn(4, 2, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.wave * x.mean()).abs().square().mean() + self.real.square().mean()


class Training(NamedTuple):
    """One rank's parts, alone in the world."""

    model: nn.Module
    optimizer: Optimizer
    rule: Rule
    rate: LearningRate

    @property
    def state(self) -> TrainingState:
        return TrainingState(self.model, self.optimizer, self.rule)

    def go(self, first: int, last: int) -> None:
        """Steps first..last-1: a batch of its own each, and a round after every second."""
        for step in range(first, last):
            torch.manual_seed(step)
            self.rate.at(step)
            self.model(torch.randn(4, 2, 6, 6)).backward()
            self.rule.step(1)
            if step % 2 or step + 1 == last:
                self.rule.snapshot()
                self.rule.adopt(self.rule.average(Alone(), RoundOrder(0, step, 1.0)))  # pyright: ignore[reportArgumentType]

    def values(self) -> dict[str, torch.Tensor]:
        """Everything that must come out equal."""
        found = dict(self.model.state_dict())
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        for parameter, state in self.optimizer.state.items():
            found |= {f"{names[parameter]} {key}": torch.as_tensor(value) for key, value in state.items()}
        for what, flat in self.rule.standing().outer.items():
            found |= {f"{what} {place}": vector.clone() for place, vector in enumerate(flat.parameters)}
        return {name: value.clone() for name, value in found.items()}


def training(
    make_optimizer: Callable[..., Optimizer], kind: Callable[..., Rule] = ParameterRule, net: type[nn.Module] = Net,
    *, seed: int = 1, dtype: torch.dtype | None = None, **options: Any,
) -> Training:  # fmt: skip
    torch.manual_seed(seed)
    model = net().to(dtype) if dtype else net()
    optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad])
    rule = kind(model, optimizer, **options)
    rule.start()
    return Training(model, optimizer, rule, LearningRate(optimizer, lambda progress: 1.0 - 0.5 * progress, TOTAL))


def stored(state: TrainingState) -> tuple[dict[Any, bytes], dict[str, Any]]:
    """As a bundle holds it: members as bytes, what is no tensor as JSON text and back."""
    snapshot = state.capture().freeze()
    members = {kind: b"".join(snapshot.chunks(kind)) for kind in snapshot.kinds}
    return members, json.loads(json.dumps(snapshot.plain, allow_nan=False))


def grouped(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.AdamW([{"params": parameters[:2], "weight_decay": 0.0}, {"params": parameters[2:]}], lr=0.01)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw amsgrad": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "adamw foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "adamw in groups": grouped,
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
}


def check_resumes(make: Callable[[int], Training]) -> None:
    """Half a run, captured; the rest of it, and the rest of it by somebody else: the same."""
    unbroken = make(1)
    unbroken.go(0, STEPS)
    members, plain = stored(unbroken.state)
    halfway = unbroken.values()
    unbroken.go(STEPS, TOTAL)
    resumed = make(2)
    resumed.go(0, 2)  # whatever it holds must go
    assert resumed.state.apply(members, plain) == ()
    found = resumed.values()
    assert found.keys() == halfway.keys()
    assert [name for name, value in halfway.items() if not torch.equal(value, found[name])] == []
    resumed.go(STEPS, TOTAL)
    wanted, found = unbroken.values(), resumed.values()
    assert [name for name, value in wanted.items() if not torch.equal(value, found[name])] == []


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_goes_on_to_the_last_bit(name: str) -> None:
    check_resumes(lambda seed: training(OPTIMIZERS[name], seed=seed))


@pytest.mark.parametrize("name", ["sgd momentum", "adamw amsgrad", "adamw in groups"])
def test_it_goes_on_to_the_last_bit_where_gradients_are_averaged(name: str) -> None:
    check_resumes(lambda seed: training(OPTIMIZERS[name], GradientRule, seed=seed))


def test_it_goes_on_to_the_last_bit_under_elastic_averaging() -> None:
    check_resumes(lambda seed: training(OPTIMIZERS["adam"], ElasticRule, seed=seed, alpha=1.0, center="consensus"))


def test_a_stored_center_comes_back_and_the_consensus_is_everybodys_start() -> None:
    old, new = (training(OPTIMIZERS["adam"], ElasticRule, seed=s, alpha=0.5, beta=0.3) for s in (1, 2))
    old.go(0, STEPS)
    new.state.apply(*stored(old.state))
    before, after = old.rule.standing(), new.rule.standing()
    assert not torch.equal(before.outer["center"].parameters[0], before.consensus.parameters[0])
    assert torch.equal(after.outer["center"].parameters[0], before.outer["center"].parameters[0])
    assert torch.equal(after.consensus.parameters[0], before.consensus.parameters[0])
    assert torch.equal(
        new.model.get_parameter("first.weight").reshape(-1), after.consensus.parameter_views[4].reshape(-1)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", ["sgd momentum", "adamw amsgrad"])
def test_it_goes_on_to_the_last_bit_in_other_precisions(name: str, dtype: torch.dtype) -> None:
    def halves(parameters: list[nn.Parameter]) -> Optimizer:
        return OPTIMIZERS[name](parameters)

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.to(dtype)).square().mean()

    check_resumes(lambda seed: training(halves, net=Small, seed=seed, dtype=dtype))


@pytest.mark.parametrize("kind", [ParameterRule, GradientRule, ElasticRule])
def test_complex_parameters_go_on_to_the_last_bit(kind: Callable[..., Rule]) -> None:
    check_resumes(lambda seed: training(OPTIMIZERS["adam"], kind, Waves, seed=seed))


class Wayward(torch.optim.SGD):
    """Keeps in its state and its groups what is no tensor, and changes both while it trains."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        for group in self.param_groups:
            group["seen"] = (*group.get("seen", ()), float("inf"), 1)
            for parameter in group["params"]:
                state = self.state[parameter]
                state["step"] = state.get("step", 0) + 1
                state["history"] = {"norms": [torch.ones(2) * state["step"], None], "pair": (True, "text")}


def test_state_that_is_no_tensor_comes_back_as_it_was() -> None:
    before, after = (training(lambda p: Wayward(p, lr=0.01), net=Waves, seed=seed) for seed in (1, 2))
    before.go(0, 2)
    assert after.state.apply(*stored(before.state)) == ()
    state = next(iter(after.optimizer.state.values()))
    assert (state["step"], state["history"]["pair"]) == (2, (True, "text"))
    assert state["history"]["norms"][0].tolist() == [2, 2]
    assert after.optimizer.param_groups[0]["seen"] == (float("inf"), 1, float("inf"), 1)


def test_what_only_pickle_could_store_is_told_by_its_place() -> None:
    made = training(OPTIMIZERS["sgd"], net=Waves)
    made.optimizer.state[made.model.real]["what"] = object()
    with pytest.raises(FlodlError, match="optim/real/what: a object can only be stored with pickle, which is never"):
        made.state.capture()


# ------------------------------------------------------------------------------------------------- what is captured


def test_names_say_what_a_tensor_is_and_tied_ones_come_once() -> None:
    made = training(OPTIMIZERS["sgd momentum"])
    made.go(0, 2)
    members, plain = stored(made.state)
    names = set(load(members["model"]))
    assert {name for name in names if "first" in name or "second.weight" in name} == {
        "model.param/first.weight",
        "optim/first.weight/momentum_buffer",
    }
    assert {"model.param/frozen.bias", "model.buffer/norm.num_batches_tracked", "model.buffer/seen"} <= names
    assert not any("optim/unused" in name for name in names)
    assert plain["optimizer"]["kind"] == "torch.optim.sgd.SGD"
    assert "lr" not in plain["optimizer"]["groups"][0]["values"]
    assert plain["optimizer"]["groups"][0]["values"]["momentum"] == 0.9


def test_the_consensus_is_captured_and_not_the_replica_that_went_on() -> None:
    made = training(OPTIMIZERS["sgd"], ElasticRule)
    made.go(0, 2)
    consensus = {name: value.clone() for name, value in made.model.named_parameters()}
    made.model(torch.randn(4, 2, 6, 6)).backward()
    made.rule.step(1)
    assert not torch.equal(made.model.conv.weight, consensus["conv.weight"])
    found = load(stored(made.state)[0]["model"])
    assert all(torch.equal(found[f"model.param/{name}"], value) for name, value in consensus.items())


def test_a_snapshot_does_not_change_when_training_goes_on() -> None:
    made = training(OPTIMIZERS["adam"])
    made.go(0, 2)
    snapshot, (members, _) = made.state.capture(), stored(made.state)
    made.go(2, 4)
    assert b"".join(snapshot.freeze().chunks("model")) == members["model"]


def test_a_compiled_model_has_the_names_of_the_bare_one() -> None:
    bare, wrapped = training(OPTIMIZERS["adam"], net=Waves), training(OPTIMIZERS["adam"], net=Waves, seed=2)
    bare.go(0, 2)
    model = torch.compile(wrapped.model, backend="eager")
    rule = ParameterRule(model, wrapped.optimizer)  # pyright: ignore[reportArgumentType]
    state = TrainingState(model, wrapped.optimizer, rule)  # pyright: ignore[reportArgumentType]
    state.apply(*stored(bare.state))
    assert torch.equal(wrapped.model.wave, bare.model.wave)
    assert stored(state)[0] == stored(bare.state)[0]


def test_hyperparameters_come_from_the_bundle_but_those_that_are_asked_for_anew() -> None:
    def adam(decay: float) -> Callable[..., Optimizer]:
        return lambda p: torch.optim.Adam(
            [{"params": p[:1], "weight_decay": 0.0}, {"params": p[1:]}], weight_decay=decay
        )

    old, same, new = (training(adam(decay), net=Waves) for decay in (0.01, 0.01, 0.02))
    state = old.state
    for group in old.optimizer.param_groups:
        group["betas"] = (0.85, 0.95)  # as a schedule does on the way
    members, plain = stored(state)
    assert same.state.apply(members, plain) == ()
    assert new.state.apply(members, plain) == ("optim.weight_decay is 0.02 as it is asked now; it was 0.01",)
    groups = [made.optimizer.param_groups for made in (same, new)]
    assert [[group["weight_decay"] for group in found] for found in groups] == [[0.0, 0.01], [0.0, 0.02]]
    assert all(group["betas"] == (0.85, 0.95) for found in groups for group in found)


def test_the_scale_of_float16_goes_on_and_is_nothing_to_a_rank_that_has_none() -> None:
    def half(made: Training) -> tuple[Precision, TrainingState]:
        precision = Precision("float16", torch.device("cpu"))
        return precision, TrainingState(made.model, made.optimizer, made.rule, precision)

    made = [training(OPTIMIZERS["sgd"]) for _ in range(3)]
    (old, old_state), (new, new_state) = half(made[0]), half(made[1])
    scale = old.standing()
    assert scale is not None
    for overflow in (True, False, False):
        loss = made[0].model(torch.randn(4, 2, 6, 6))
        old.backward(loss * 1e38 if overflow else loss)
        assert old.settle(made[0].optimizer) is not overflow
    members, plain = stored(old_state)
    new_state.apply(members, plain)
    assert new.standing() == old.standing() != scale
    made[2].state.apply(members, plain)
    new_state.apply(*stored(made[2].state))
    assert new.standing() == old.standing()


def test_a_center_that_only_one_side_keeps_is_told() -> None:
    elastic = training(OPTIMIZERS["sgd"], ElasticRule, alpha=0.5)
    plain = training(OPTIMIZERS["sgd"], seed=2)
    elastic.go(0, 2)
    assert plain.state.apply(*stored(elastic.state)) == ("the bundle's center is left out: this run keeps none",)
    plain.go(2, 4)
    told = elastic.state.apply(*stored(plain.state))
    assert told == ("the bundle has no center: it begins as the consensus",)
    center = elastic.rule.standing().outer["center"]
    assert torch.equal(center.parameters[0], plain.rule.standing().consensus.parameters[0])  # pyright: ignore[reportOptionalMemberAccess]


# ------------------------------------------------------------------------------------------------------- differences


def layer(inputs: int = 4, dtype: torch.dtype = torch.float32, **also: nn.Module) -> type[nn.Module]:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(inputs, 10, dtype=dtype)
            for name, module in also.items():
                self.add_module(name, module)

    return Layer


def halves(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.Adam([{"params": parameters[:1]}, {"params": parameters[1:]}])


ADAM = torch.optim.Adam
DIFFERENCES = {
    "shape": (layer(5), ADAM, "parameter fc.weight: the bundle has (10, 4) float32, the model (10, 5) float32"),
    "dtype": (layer(dtype=torch.float64), ADAM, "fc.weight: the bundle has (10, 4) float32, the model (10, 4) float64"),
    "one more": (layer(new=nn.Linear(1, 1)), ADAM, "parameter new.weight: the bundle has none, the model has it"),
    "a buffer": (layer(n=nn.BatchNorm1d(1, affine=False)), ADAM, "buffer n.running_mean: the bundle has none"),
    "optimizer": (layer(), torch.optim.SGD, "the bundle has torch.optim.adam.Adam, the run torch.optim.sgd.SGD"),
    "groups": (layer(), halves, "the optimizer's groups: the bundle has 1, the run 2"),
}


@pytest.mark.row(24)
@pytest.mark.parametrize("name", DIFFERENCES)
def test_the_first_difference_is_named_and_nothing_has_changed(name: str) -> None:
    net, optimizer, words = DIFFERENCES[name]
    members, plain = stored(training(torch.optim.Adam, net=layer()).state)
    made = training(optimizer, net=net, seed=2)
    before = made.values()
    with pytest.raises(ConfigError) as caught:
        made.state.apply(members, plain)
    assert words in str(caught.value)
    assert all(torch.equal(value, before[key]) for key, value in made.values().items())


def test_a_parameter_that_the_model_no_longer_has_is_named() -> None:
    members, plain = stored(training(torch.optim.Adam, net=layer(old=nn.Linear(1, 1))).state)
    with pytest.raises(ConfigError, match=r"parameter old.\w+: the bundle has it, the model has none"):
        training(torch.optim.Adam, net=layer()).state.apply(members, plain)


def test_bytes_that_are_no_tensors_are_refused() -> None:
    made = training(torch.optim.Adam, net=layer())
    members, plain = stored(made.state)
    with pytest.raises(FlodlError, match="not a whole safetensors file of 50 bytes"):
        made.state.apply({"model": members["model"][:50]}, plain)
