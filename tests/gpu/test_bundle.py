"""A training on a GPU is captured beside the next steps, and goes on from there on a GPU or a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from flodl.engine.averaging.parameters import ParameterRule
from flodl.engine.bundle import TrainingState
from flodl.probe.gpus import count_gpus
from tests.engine import rig

# Everything happens in a forked rank: a process that has touched CUDA cannot fork others that use it.
pytestmark = pytest.mark.skipif(count_gpus() < 1, reason="needs a GPU")

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "adamw capturable": lambda p: torch.optim.AdamW(p, lr=0.01, capturable=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
}


class Training:
    """A net that is large enough for its copies to be under way while it trains on. flat_device: where rounds are."""

    def __init__(self, make: Callable[..., Optimizer], device: torch.device, flat_device: torch.device = CPU) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Conv2d(3, 512, 3), nn.BatchNorm2d(512), nn.Conv2d(512, 512, 3), nn.Flatten())
        self.model.to(device=device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.optimizer = make(self.model.parameters())
        self.rule = ParameterRule(self.model, self.optimizer, device=device, flat_device=flat_device)
        self.rule.start()
        self.state = TrainingState(self.model, self.optimizer, self.rule)

    def go(self, steps: int) -> None:
        for _ in range(steps):
            x = torch.ones(2, 3, 8, 8, device=next(self.model.parameters()).device)
            self.model(x).square().mean().backward()
            self.rule.step(1)
        self.rule.start()  # what everybody holds from here on

    def values(self) -> dict[str, torch.Tensor]:
        found = {name: value.cpu().clone() for name, value in self.model.state_dict().items()}
        for number, state in enumerate(self.optimizer.state.values()):
            found |= {f"{number} {key}": torch.as_tensor(value).cpu().clone() for key, value in state.items()}
        return found


def stored(training: Training) -> tuple[dict[Any, bytes], dict[str, Any]]:
    snapshot = training.state.capture()
    training.go(3)  # the copies leave meanwhile
    frozen = snapshot.freeze()
    return {kind: b"".join(frozen.chunks(kind)) for kind in frozen.kinds}, frozen.plain


def there_and_back(name: str, source: torch.device, target: torch.device, flat_device: torch.device) -> list[str]:
    """Names of what is not the same after a bundle has gone from one training to another. In this process."""
    first = Training(OPTIMIZERS[name], source, flat_device)
    first.go(2)
    before = first.values()
    second = Training(OPTIMIZERS[name], target, flat_device)
    second.state.apply(*stored(first))
    found = second.values()
    second.go(1)  # every tensor lies where the optimizer wants it
    return sorted(before.keys() ^ found.keys()) + [key for key in found if not torch.equal(found[key], before[key])]


@pytest.mark.parametrize("flat_device", [CPU, GPU], ids=["gloo", "nccl"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_is_captured_is_the_moment_and_comes_back(name: str, flat_device: torch.device) -> None:
    assert rig.run_ranks(1, lambda _: there_and_back(name, GPU, GPU, flat_device), timeout=120.0) == [[]]


@pytest.mark.parametrize(("source", "target"), [(GPU, CPU), (CPU, GPU)], ids=["to a CPU", "to a GPU"])
@pytest.mark.parametrize("name", ["sgd", "adamw", "nadam"])
def test_a_bundle_goes_from_one_kind_of_device_to_the_other(
    name: str, source: torch.device, target: torch.device
) -> None:
    assert rig.run_ranks(1, lambda _: there_and_back(name, source, target, CPU), timeout=120.0) == [[]]
