"""Averaging gradients: a round's batches meet the same weights everywhere, then one identical step.

On equal devices with one batch per round this is classic DDP. Gradients are summed over a round's batches weighted
by samples, in float32 or better; who ran nothing takes the step all the same.

Where vectors are summed on the GPU that trains, a round and its step can be queued without waiting for anything, so
that the card never waits for this thread (`launch`). Until all is confirmed the step can be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from flodl.engine.averaging.before import Before, is_torchs
from flodl.engine.averaging.contribution import Contribution
from flodl.engine.averaging.flat import Flat, add, copy, first_nonfinite
from flodl.engine.averaging.layout import model_layout
from flodl.engine.averaging.rule import Outcome, RoundOrder, Standing, clip, parameters_of
from flodl.engine.averaging.transfer import Transfer
from flodl.engine.averaging.under_way import Mark, UnderWay, largest, on_host
from flodl.ports import AbandonedError, Averager

__all__ = ["GradientRule"]


class GradientRule:
    """Weighted mean of gradients, clipped after averaging, stepped once by every rank.

    The model itself is the consensus: it only changes in `adopt`. Buffers run on with each batch and are combined
    with the gradients. A parameter that got a gradient on no rank gets none (its momentum and decay stay untouched).
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        max_grad_norm: float | None = None,
        bn_buffers: str = "pooled",
        device: torch.device | None = None,
        flat_device: torch.device | None = None,
    ) -> None:
        self.layout = model_layout(model, with_buffers=bn_buffers != "local")
        self.trainable = [parameter for _, parameter in _trainable(model, self.layout.parameter_slots)]
        self.optimizer = optimizer
        self.max_grad_norm = max_grad_norm
        self.pooled = bn_buffers == "pooled"
        self.device = device or torch.device("cpu")
        self.flat_place = flat_device if flat_device is not None and flat_device.type != "cpu" else None
        self.sums = Flat(self.layout, device=self.device)  # gradients x samples, beside the model; then their mean
        self._alike = [  # another's optimizer may keep a gradient as it is, to look at it in the next step
            is_torchs(optimizer) and _is_laid_out_as(parameter, view)
            for parameter, view in zip(self.trainable, self.sums.parameter_views, strict=True)
        ]
        self.local = Flat(self.layout, device=self.flat_place) if self._crosses else self.sums
        self.common = self._flat()  # buffers of the last round; gradients on the way back
        self.transfer = Transfer(self.layout, self.device, flat_device or torch.device("cpu"))
        self.contribution = self._contribution(1, 0)
        self.samples = 0
        self.present = [0.0] * len(self.trainable)  # 1 where this round has a gradient
        self.common_present = self.present  # ranks that had one in the last round
        self.goes_ahead = self.device.type == "cuda" and not self._crosses
        self.before = Before(optimizer)
        self._earlier: tuple[Flat, list[float]] | None = None  # what was common before a step that may be taken back
        self._spare: Flat | None = None

    def start(self) -> None:
        """The model is the consensus from here on; its buffers are the reference for pooling."""
        self.transfer.take(self.common)
        self.transfer.wait()
        self.discard()

    def regroup(self, members: int, place: int) -> None:
        """New work buffers for a new generation."""
        self.contribution = self._contribution(members, place)

    @torch.no_grad()
    def step(self, samples: int) -> None:
        """Add this batch's gradients, weighted by its samples, to the round's."""
        if not self.samples:
            self._clear()
        pairs = [
            (view, _dense(parameter.grad), place)
            for place, (view, parameter) in enumerate(zip(self.sums.parameter_views, self.trainable, strict=True))
            if parameter.grad is not None
        ]
        if pairs:
            add([view for view, _, _ in pairs], [grad for _, grad, _ in pairs], samples)
            for _, _, place in pairs:
                self.present[place] = 1.0
        self.samples += samples
        self._drop()

    @torch.no_grad()
    def snapshot(self) -> None:
        """Sums become the mean over this rank's samples; buffers are copied beside them."""
        for vector in self.sums.parameters:
            vector.div_(max(1, self.samples))
        self.sums.read_buffers()
        if self._crosses:
            self.local.copy_(self.sums)
            torch.cuda.current_stream().synchronize()
        self.samples = 0

    def average(self, averager: Averager, order: RoundOrder) -> Outcome:
        """Sum of mass x gradients over sum of masses."""
        return self._begin(averager, order).outcome()

    def can_go_ahead(self, order: RoundOrder) -> bool:
        """Whether this round's step may be taken before its end is known.

        Only where every parameter has a gradient here: which of them all ranks lack is read off the sums.
        """
        is_one_of_several = not self.contribution.is_alone and order.mass > 0
        if not (self.goes_ahead and is_one_of_several and all(self.present) and self.before.prepare()):
            return False
        self._spare = self._spare or self._flat()
        return True

    @torch.no_grad()
    def launch(self, averager: Averager, order: RoundOrder) -> UnderWay:
        """Begin a round and take its step, waiting for nothing; then `confirm` or `take_back`. On the training thread.

        Where no rank was finite it is a step without gradients until it is confirmed (and taken back then): a batch
        that was begun meanwhile has met such weights, and counts.
        """
        going = self._begin(averager, order)
        self.before.take()
        self._earlier = self.common, self.common_present
        assert self._spare is not None  # `can_go_ahead` made room for it
        self.common, self._spare = self._spare, None
        self.common_present = [1.0] * len(self.trainable)
        self.contribution.over(self._earlier[0], self.common)
        self._take_step()
        going.adopted = Mark(self.device)
        return going

    @torch.no_grad()
    def confirm(self, outcome: Outcome) -> None:
        """The round has ended: what was done ahead stands."""
        if self._earlier is None:
            return
        if outcome.moved:
            self.common_present = self.contribution.totals
        else:
            self.common_present = self._earlier[1]
            self.before.restore()
        self._spare, self._earlier = self._earlier[0], None

    @torch.no_grad()
    def take_back(self) -> None:
        """The round is void: everything is as before its step."""
        if self._earlier is None:
            return
        self.before.restore()
        self._spare, (self.common, self.common_present), self._earlier = self.common, self._earlier, None
        self.transfer.put_buffers(self.common)
        self.discard()

    @torch.no_grad()
    def adopt(self, outcome: Outcome) -> None:
        """Clip the averaged gradient and take the step that everybody takes."""
        if outcome.moved:
            self.common_present = self.contribution.totals
            self.common.copy_(self.contribution.flat)
            self._take_step()
        elif outcome.nonfinite:
            self.transfer.put_buffers(self.common)
        self.discard()

    def result(self) -> list[Tensor]:
        """The averaged gradients and buffers, and who had a gradient at all."""
        vectors = self.common.vectors
        return [*(vector.clone() for vector in vectors), vectors[-1].new_tensor(self.common_present)]

    def repaired(self, result: Sequence[Tensor], order: RoundOrder) -> Outcome:
        """The step that this rank missed: from the same weights with the same gradient it is the same."""
        self.contribution.load(result)
        return Outcome(order, True, 0.0, "", 0.0, 0.0, 0.0)

    def standing(self) -> Standing:
        """Between rounds the model is the consensus."""
        return Standing()

    def discard(self) -> None:
        """Forget the round's gradients: the next batch begins a new sum."""
        self._drop()
        self.samples = 0

    @contextmanager
    def consensus_in(self) -> Iterator[None]:
        """Between rounds the model is the consensus."""
        yield

    @property
    def _crosses(self) -> bool:
        return self.device.type == "cuda" and self.flat_place is None

    def _drop(self) -> None:
        """No parameter has a gradient, nor has one of the optimizer's that shares another one's memory.

        (An optimizer's own zero_grad takes as long as a tenth of its step.)
        """
        for parameter in (*self.trainable, *parameters_of(self.optimizer)):
            parameter.grad = None

    def _clear(self) -> None:
        for vector in self.sums.parameters:
            vector.zero_()
        self.present = [0.0] * len(self.trainable)

    def _begin(self, averager: Averager, order: RoundOrder) -> UnderWay:
        """Queue the round. On a CPU it is over when this returns."""
        contribution, mass = self.contribution, order.mass
        began = Mark(self.device)
        nonfinite, found, is_finite = "", None, None
        if mass > 0 and self.local.vectors[0].is_cuda:
            found = largest(self.local)
            is_finite = torch.isfinite(found).all()
        elif mass > 0:
            nonfinite = first_nonfinite(self.local)
        present = self.present if mass > 0 else ()
        mass = 0.0 if nonfinite else mass
        contribution.fill(self.local, mass, self.common, order.arrival_ms, present, is_finite=is_finite)
        ready = Mark(self.device)
        try:
            end = averager.launch(order.generation, order.round, contribution.flat.vectors)
        except (AbandonedError, RuntimeError) as error:  # the vectors stay: others may be summing them still
            end, summed = _raising(error), Mark(self.device)
        else:
            summed = Mark(self.device)
            contribution.settle(self.common)
        tail, found = on_host(contribution.flat.tail), None if found is None else on_host(found)
        told = Mark(self.device)
        return UnderWay(order, contribution, end, tail, found, nonfinite, began, ready, summed, told)

    def _take_step(self) -> None:
        """The step that everybody takes with what is common, and its buffers."""
        self._hand_out()
        clip(self.optimizer, self.max_grad_norm)
        self.optimizer.step()
        self.transfer.put_buffers(self.common)
        self.discard()

    def _hand_out(self) -> None:
        """The averaged gradients become the parameters' own, of each one's dtype, device and strides.

        They are laid where this round's sums were: what every rank has got, nobody contributes once more.
        """
        self._drop()
        for mine, theirs in zip(self.sums.parameters, self.common.parameters, strict=True):
            mine.copy_(theirs)
        views = zip(self.trainable, self.sums.parameter_views, self.common_present, strict=True)
        others: list[tuple[nn.Parameter, Tensor]] = []
        for (parameter, view, ranks), is_alike in zip(views, self._alike, strict=True):
            if ranks > 0 and is_alike:
                parameter.grad = view
            elif ranks > 0:
                parameter.grad = torch.empty_like(parameter)
                others.append((parameter, view))
        copy([_real(parameter.grad) for parameter, _ in others], [view for _, view in others])

    def _flat(self) -> Flat:
        return Flat(self.layout, device=self.flat_place)

    def _contribution(self, members: int, place: int) -> Contribution:
        extra = len(self.layout.parameter_slots)
        return Contribution(self.layout, members, place, extra=extra, pooled=self.pooled, device=self.flat_place)


def _trainable(model: nn.Module, slots: tuple) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters behind the slots: the layout holds real views, gradients belong to the parameters themselves."""
    named = dict(model.named_parameters())
    for slot in slots:
        yield slot.name, named[slot.name]


def _is_laid_out_as(parameter: nn.Parameter, view: Tensor) -> bool:
    kind = (view.dtype, view.device, view.shape)
    return (parameter.dtype, parameter.device, parameter.shape) == kind and parameter.is_contiguous()


def _dense(gradient: Tensor) -> Tensor:
    return _real(gradient.to_dense() if gradient.is_sparse else gradient)


def _real(gradient: Tensor | None) -> Tensor:
    assert gradient is not None
    return torch.view_as_real(gradient) if gradient.is_complex() else gradient


def _raising(error: Exception) -> Callable[[], None]:
    def end() -> None:
        raise error

    return end
