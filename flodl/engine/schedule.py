"""The learning rate of a run: a schedule of global progress, written into the optimizer."""

from __future__ import annotations

from collections.abc import Callable

from torch.optim import Optimizer

__all__ = ["LearningRate"]


class LearningRate:
    """Sets each parameter group to its base rate ("initial_lr") times schedule(samples / total_samples).

    Progress counts samples of all ranks, so the rate is the same for every world size.
    """

    def __init__(self, optimizer: Optimizer, schedule: Callable[[float], float], total_samples: int) -> None:
        self.optimizer = optimizer
        self.schedule = schedule
        self.total_samples = total_samples
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])

    def at(self, samples: float) -> float:
        """Set the rates for a batch before which `samples` samples of the run were dealt; returns the first group's."""
        factor = self.schedule(min(1.0, samples / self.total_samples))
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
        return self.optimizer.param_groups[0]["lr"]
