"""What one rank does for all, on the consensus of the last round: evaluate, and store the weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from flodl.decide.messages import CallbackName, CallbackResult
from flodl.engine.averaging.ema import Ema
from flodl.engine.averaging.rule import Rule
from flodl.engine.build import Built
from flodl.engine.evaluate import Scope, kept
from flodl.engine.saver import Saver
from flodl.engine.tally import finite
from flodl.errors import FlodlError, in_words
from flodl.spec.job import EMA_FIGURE, EvalConfig

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
        self._names: tuple[str, ...] = ()  # of the figures that this rank's first evaluation told
        self.ema: Ema | None = None  # evaluated beside the consensus

    def run(self, name: CallbackName, epoch: int, samples_done: int = 0, *, round_: int = 0) -> CallbackResult:
        """Do it while the model holds the consensus. round_: whose result that is.

        epoch, samples_done: of the result; samples of the whole run where it is taken within that epoch, else 0.
        """
        began = time.perf_counter()
        values: dict[str, float] = {}
        error = ""
        try:
            if name == "eval":
                values = self._evaluated()
            else:
                self._saver.save(round_)
                self._tell_saved(round_)
        except Exception as trouble:  # noqa: BLE001  whatever the user's metrics or a full disk raise
            error = in_words(trouble)
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
            return CallbackResult(name="save", ok=False, error=in_words(trouble))
        self._tell_saved(round_)
        return None

    def begin_epoch(self, epoch: int) -> None:
        """What the user's function does before an epoch's first batch. Raises what that raises."""
        if self._built.functions.epoch is not None:
            self._built.functions.epoch(epoch, self._built.model)

    def try_batch(self) -> CallbackResult:
        """Evaluate one batch as the model is: which figures there are, or why it fails. (0 for what is not finite: an
        untrained model may well overflow.)"""
        try:
            told = self._told(limit_batches=1)
        except Exception as trouble:  # noqa: BLE001  whatever the user's metrics raise
            return CallbackResult(name="eval", ok=False, error=in_words(trouble))
        if self.ema is not None:
            told |= {EMA_FIGURE + name: value for name, value in told.items()}
        return CallbackResult(name="eval", ok=True, values={name: finite(value) for name, value in told.items()})

    def _tell_saved(self, round_: int) -> None:
        self._built.functions.saved(round_, self._built.model, self._rule.consensus_in())

    @property
    def _judged(self) -> Any:
        """The part of the data set that is evaluated."""
        return self._built.train if self._config.split == "train" else self._built.eval

    def _evaluated(self) -> dict[str, float]:
        """Figures of the consensus, and beside them those of its moving average."""
        wanted = self._config.metrics
        with self._rule.consensus_in():
            values = self._evaluate(wanted)
        if self.ema is not None and self.ema.has_begun:
            keep = None if wanted is None else [name.removeprefix(EMA_FIGURE) for name in wanted]
            with self.ema.shown_in(self._device):
                averaged = self._evaluate(keep)
            values |= {EMA_FIGURE + name: value for name, value in averaged.items()}
        return values

    def _evaluate(self, keep: Sequence[str] | None) -> dict[str, float]:
        return kept(self._told(self._config.limit_batches, keep), keep)

    def _told(self, limit_batches: int | None, keep: Sequence[str] | None = None) -> dict[str, float]:
        """Every figure there is. Raises FlodlError where one that is kept was there before and is not now: whatever
        follows it would follow another one's absence."""
        built = self._built
        told = built.functions.figures(built.model, built.step, self._judged, self._scope(limit_batches))
        self._names = self._names or tuple(told)
        missing = [name for name in self._names if name not in told and (keep is None or name in keep)]
        if missing:
            there = f"only {', '.join(told)}" if told else "nothing at all"
            raise FlodlError(f"the evaluation told {there}; {', '.join(missing)} is missing, which it told before")
        return told

    def _scope(self, limit_batches: int | None) -> Scope:
        """As this rank trains: in slices where whole batches do not fit, in the same precision."""
        built = self._built
        return Scope(
            device=self._device,
            batch_size=built.slice_size or built.batch_size,
            limit=None if limit_batches is None else limit_batches * built.batch_size,
            cast=built.precision.cast,
        )
