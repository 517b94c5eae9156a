"""What one rank does for all, on the consensus of the last round: evaluate, and store the weights."""

from __future__ import annotations

import time
from typing import Any

import torch

from flodl.decide.messages import CallbackName, CallbackResult
from flodl.engine.averaging.rule import Rule
from flodl.engine.build import Built
from flodl.engine.evaluate import Scope, evaluate, figures
from flodl.engine.saver import Saver
from flodl.engine.tally import finite
from flodl.spec.job import EvalConfig

__all__ = ["Callbacks"]


class Callbacks:
    """Runs callbacks by name. A failure is reported in words and never ends training."""

    def __init__(
        self, saver: Saver, rule: Rule, built: Built, device: torch.device, config: EvalConfig | None = None
    ) -> None:
        self._saver = saver
        self._rule = rule
        self._built = built
        self._device = device
        self._config = config or EvalConfig()

    def run(self, name: CallbackName, epoch: int, samples_done: int = 0, *, round_: int = 0) -> CallbackResult:
        """Do it while the model holds the consensus. round_: whose result that is.

        epoch, samples_done: of the result; samples of the whole run where it is taken within that epoch, else 0.
        """
        began = time.perf_counter()
        values: dict[str, float] = {}
        error = ""
        try:
            if name == "eval":
                with self._rule.consensus_in():
                    values = self._evaluate()
            else:
                values = {"bytes": self._saver.save(round_)}
        except Exception as trouble:  # noqa: BLE001  whatever the user's metrics or a full disk raise
            error = f"{type(trouble).__name__}: {trouble}"
        seconds = time.perf_counter() - began
        return CallbackResult(
            name=name,
            ok=not error,
            values=values,
            error=error,
            seconds=seconds,
            epoch=epoch,
            samples_done=samples_done,
        )

    def begin_save(self, round_: int) -> CallbackResult | None:
        """Copy what is to be saved; the rest goes on beside training. What went wrong, None where nothing did."""
        try:
            self._saver.begin(round_)
        except Exception as trouble:  # noqa: BLE001  what cannot be stored is reported, and training goes on
            return CallbackResult(name="save", ok=False, error=f"{type(trouble).__name__}: {trouble}")
        return None

    def try_batch(self) -> CallbackResult:
        """Evaluate one batch as the model is: which figures there are, or why it fails. (0 for what is not finite: an
        untrained model may well overflow.)"""
        built = self._built
        try:
            told = figures(built.model, built.step, self._judged, self._scope(limit_batches=1))
        except Exception as trouble:  # noqa: BLE001  whatever the user's metrics raise
            return CallbackResult(name="eval", ok=False, error=f"{type(trouble).__name__}: {trouble}")
        return CallbackResult(name="eval", ok=True, values={name: finite(value) for name, value in told.items()})

    @property
    def _judged(self) -> Any:
        """The part of the data set that is evaluated."""
        return self._built.train if self._config.split == "train" else self._built.eval

    def _evaluate(self) -> dict[str, float]:
        built = self._built
        scope = self._scope(self._config.limit_batches)
        return evaluate(built.model, built.step, self._judged, scope, keep=self._config.metrics)

    def _scope(self, limit_batches: int | None) -> Scope:
        """As this rank trains: in slices where whole batches do not fit, in the same precision."""
        built = self._built
        return Scope(
            device=self._device,
            batch_size=built.slice_size or built.batch_size,
            limit=None if limit_batches is None else limit_batches * built.batch_size,
            cast=built.precision.cast,
        )
