"""What one rank does for all, on the consensus of the last round: evaluate, and store the weights."""

from __future__ import annotations

import time

import torch

from flodl.decide.messages import CallbackName, CallbackResult
from flodl.engine.averaging.rule import Rule
from flodl.engine.build import Built
from flodl.engine.evaluate import evaluate
from flodl.engine.orders import Link
from flodl.engine.weights import to_bytes

__all__ = ["WEIGHTS_FILE", "Callbacks"]

WEIGHTS_FILE = "weights.safetensors"


class Callbacks:
    """Runs callbacks by name. A failure is reported in words and never ends training."""

    def __init__(self, link: Link, rule: Rule, built: Built, device: torch.device) -> None:
        self._link = link
        self._rule = rule
        self._built = built
        self._device = device

    def run(self, name: CallbackName, epoch: int) -> CallbackResult:
        """Do it while the model holds the consensus. epoch: the last one that is wholly in it."""
        began = time.perf_counter()
        values: dict[str, float] = {}
        error = ""
        try:
            with self._rule.consensus_in():
                values = self._evaluate() if name == "eval" else self._save()
        except Exception as trouble:  # noqa: BLE001  whatever the user's metrics or a full disk raise
            error = f"{type(trouble).__name__}: {trouble}"
        seconds = time.perf_counter() - began
        return CallbackResult(name=name, ok=not error, values=values, error=error, seconds=seconds, epoch=epoch)

    def _evaluate(self) -> dict[str, float]:
        built = self._built
        return evaluate(built.model, built.step, built.eval, device=self._device, batch_size=built.batch_size)

    def _save(self) -> dict[str, float]:
        data = to_bytes(self._built.model.state_dict())
        self._link.upload(WEIGHTS_FILE, data)
        return {"bytes": float(len(data))}
