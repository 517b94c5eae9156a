"""Between a running training and the members of a bundle: parameters, buffers, optimizer, and what averaging holds.

::

    model.param/<name>  model.buffer/<name>   tied ones once, under their first name
    optim/<parameter>/<key>                   the optimizer's tensors
    center/<name> velocity/<name> ema/<name>  in the outer member: what else changes with each accepted round
    velocity/. ema/.                          how far that has come: one number each
    ema.narrow/<name>                         the moving average in the model's own dtype, where that is narrower
    consensus/<name> statistics/<name>        likewise: parameters and buffers unrounded, where the model's own dtype is
                                              narrower and the next round is reckoned from them

Captured is what everybody holds (the consensus of the last accepted round), never a replica in between; of what is not
averaged (frozen parameters, integer buffers, optimizer, float16's scale) it is this rank's. What is no tensor goes into
`plain`. Nothing that the config says anew at every start is kept: learning rates, and how a host computes (fused,
foreach). Other hyperparameters go on as they were, unless the config now says otherwise than it did when the bundle's
optimizer was built: then what it says now is meant.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from flodl.engine.averaging.ema import Ema
from flodl.engine.averaging.flat import Flat
from flodl.engine.averaging.layout import unshared
from flodl.engine.averaging.rule import Rule
from flodl.engine.plain import from_plain, to_plain
from flodl.engine.precision import Precision
from flodl.engine.snapshot import Copier, Copies, Snapshot, Source, source
from flodl.engine.tensorfile import tensors_of
from flodl.engine.weights import bare_name
from flodl.errors import ConfigError, FlodlError, Problem
from flodl.record.bundle_names import BUFFER, COUNT, NARROW, PARAMETER, Kind

__all__ = ["TrainingState"]

OPTIMIZER = "optim/"
SAID_ANEW = {"params", "param_names", "lr", "initial_lr", "foreach", "fused", "capturable", "differentiable"}
FULL = torch.float32.itemsize
BEGINS = {
    "center": "as the consensus",
    "velocity": "at rest",
    "ema": "with the next round",
    "consensus": "as the model's parameters",
    "statistics": "as the model's buffers",
}
ON_HOST = {"step", "mu_product"}  # scalars that torch's optimizers keep on the CPU, unless fused or capturable


class TrainingState:
    """Captures and puts back. model, optimizer and so on are those of this rank; for its training thread."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, rule: Rule, precision: Precision | None = None) -> None:
        self._model, self._optimizer, self._rule = model, optimizer, rule
        self._precision = precision or Precision()
        self._own = {name for name, _ in unshared([*model.named_parameters(), *model.named_buffers()])}
        self._names = {parameter: bare_name(name) for name, parameter in model.named_parameters()}
        self._built = [_plain_values(group) for group in optimizer.param_groups]
        self.ema: Ema | None = None  # the consensus's moving average, where the run keeps one
        self.copier = Copier(next(model.parameters()).device)

    # ---------------------------------------------------------------------------------------------------- capture

    def capture(self) -> Snapshot:
        """Copies of everything, taken at a step's edge. Raises FlodlError for what cannot be stored without pickle."""
        standing = self._rule.standing()
        common = {} if standing.consensus is None else _by_name(standing.consensus)
        model: dict[str, Source] = {}
        for name, _, tensor in self._tensors():
            held = common.get(_last(name))
            model[name] = source(tensor) if held is None else source(held, like=tensor)
        optimizer = self._optimizer_plain(lambda name, tensor: model.update({name: source(tensor)}))
        outer = self._outer_sources()
        copies: dict[Kind, Copies] = {"model": self.copier.take("model", model)}
        if outer:
            copies["outer"] = self.copier.take("outer", outer)
        plain = {"optimizer": optimizer, "scale": self._precision.standing()}
        return Snapshot(copies, plain, self.copier.leave())

    def _outer_sources(self) -> dict[str, Source]:
        """What goes into the outer member."""
        carried = self._carried()
        if self.ema is None or not self.ema.has_begun:
            carried.pop("ema", None)
        found = {f"{what}/{name}": source(view) for what, views in carried.items() for name, view in views.items()}
        averages = carried.get("ema", {})
        for name, _, tensor in self._tensors() if averages else ():
            view = averages.get(_last(name))
            if view is not None and tensor.dtype.itemsize < view.dtype.itemsize:
                found[NARROW + _last(name)] = source(view, like=tensor)
        return found

    def _carried(self) -> dict[str, dict[str, Tensor]]:
        """What changes with each accepted round beside the consensus: by what it is, then by name."""
        standing = self._rule.standing()
        found = {what: _parameters(flat) for what, flat in standing.outer.items()}
        for what, count in standing.counts.items():
            found[what][COUNT] = count
        if standing.consensus is not None:
            found |= self._unrounded(standing.consensus, is_moved=bool(standing.counts))
        if self.ema is not None:
            found["ema"] = _by_name(self.ema.flat) | {COUNT: self.ema.mass}
        return found

    def _unrounded(self, consensus: Flat, *, is_moved: bool) -> dict[str, dict[str, Tensor]]:
        """Of the consensus what the model cannot hold. is_moved: an outer optimizer goes on from its parameters;
        pooled statistics always go on from the buffers."""
        narrow = {
            name for name, _, tensor in self._tensors() if tensor.is_floating_point() and tensor.dtype.itemsize < FULL
        }
        parameters = _parameters(consensus) if is_moved else {}
        buffers = {name: view for name, view in _by_name(consensus).items() if BUFFER + name in narrow}
        found = {
            "consensus": {name: view for name, view in parameters.items() if PARAMETER + name in narrow},
            "statistics": buffers,
        }
        return {what: views for what, views in found.items() if views}

    def _tensors(self) -> Iterator[tuple[str, str, Tensor]]:
        """(name in the bundle, name for people, tensor) of all parameters and buffers, what shares memory once."""
        for prefix, kind, named in (
            (PARAMETER, "parameter", self._model.named_parameters()),
            (BUFFER, "buffer", self._model.named_buffers()),
        ):
            for name, tensor in named:
                if name in self._own:
                    yield prefix + bare_name(name), f"{kind} {bare_name(name)}", tensor

    def _optimizer_plain(self, put: Callable[[str, Tensor], None]) -> dict[str, Any]:
        """The optimizer as JSON, its tensors told to `put`."""
        groups = [
            {
                "params": [self._name_of(parameter) for parameter in group["params"]],
                "values": {
                    key: to_plain(value, f"optim.group/{number}/{key}", put)
                    for key, value in group.items()
                    if key not in SAID_ANEW
                },
                "built": self._built[number],
            }
            for number, group in enumerate(self._optimizer.param_groups)
        ]
        state = {
            (name := self._name_of(parameter)): {
                str(key): to_plain(value, f"{OPTIMIZER}{name}/{key}", put) for key, value in values.items()
            }
            for parameter, values in self._optimizer.state.items()
        }
        return {"kind": _kind(self._optimizer), "groups": groups, "state": state}

    def _name_of(self, parameter: object) -> str:
        name = self._names.get(parameter) if isinstance(parameter, nn.Parameter) else None
        if name is None:
            raise FlodlError(f"{_kind(self._optimizer)} keeps state for what is no parameter of the model")
        return name

    # ------------------------------------------------------------------------------------------------------ apply

    def apply(self, members: Mapping[Kind, bytes], plain: Mapping[str, Any]) -> tuple[str, ...]:
        """Put a bundle back: the exact inverse of `capture`, and the rule's start. Remarks about what is otherwise.

        Raises ConfigError for the first difference, before anything has changed.
        """
        found = {kind: tensors_of(data) for kind, data in members.items()}
        model, optimizer = found["model"], plain["optimizer"]
        self._require_same_tensors(model)
        self._require_same_optimizer(optimizer)
        groups, state = self._read_optimizer(optimizer, model)
        asked = self._take_what_is_asked(groups, optimizer)
        outer = self._outer_pairs(found.get("outer", {}))
        with torch.no_grad():
            for name, _, tensor in self._tensors():
                tensor.copy_(model[name])
            self._put_optimizer(groups, state)
            self._precision.restore(plain.get("scale"))
            self._rule.start()
            if self.ema is not None:
                self.ema.start()
            for view, tensor in outer:
                view.copy_(tensor)
        return (*asked, *self._remarks(found.get("outer", {})))

    def _require_same_tensors(self, found: Mapping[str, Tensor]) -> None:
        here = {name: (told, tensor) for name, told, tensor in self._tensors()}
        for name, (told, tensor) in here.items():
            if name not in found:
                raise _different(told, "the bundle has none, the model has it")
            if (found[name].shape, found[name].dtype) != (tensor.shape, tensor.dtype):
                raise _different(told, f"the bundle has {_form(found[name])}, the model {_form(tensor)}")
        for name in found:
            if name.startswith((PARAMETER, BUFFER)) and name not in here:
                kind = "parameter" if name.startswith(PARAMETER) else "buffer"
                raise _different(f"{kind} {_last(name)}", "the bundle has it, the model has none")

    def _require_same_optimizer(self, plain: Mapping[str, Any]) -> None:
        here = _kind(self._optimizer)
        if plain["kind"] != here:
            raise _different("the optimizer", f"the bundle has {plain['kind']}, the run {here}")
        theirs = [list(group["params"]) for group in plain["groups"]]
        own = [[self._name_of(parameter) for parameter in group["params"]] for group in self._optimizer.param_groups]
        if len(theirs) != len(own):
            raise _different("the optimizer's groups", f"the bundle has {len(theirs)}, the run {len(own)}")
        for number, (there, mine) in enumerate(zip(theirs, own, strict=True)):
            if there != mine:
                other = sorted(set(there) ^ set(mine)) or ["the order"]
                raise _different(f"group {number} of the optimizer", f"{other[0]} is not the same")

    def _read_optimizer(
        self, plain: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> tuple[list[dict[str, Any]], dict[nn.Parameter, dict[str, Any]]]:
        def get(name: str) -> Tensor:
            if name not in tensors:
                raise _different(f"the optimizer's {name}", "the bundle names it and does not hold it")
            return tensors[name]

        by_name = {name: parameter for parameter, name in self._names.items()}
        for name in plain["state"]:
            if name not in by_name:
                raise _different(f"parameter {name}", "the bundle has an optimizer state of it, the model has none")
        groups = [{key: from_plain(value, get) for key, value in group["values"].items()} for group in plain["groups"]]
        state = {
            by_name[name]: {key: from_plain(value, get) for key, value in values.items()}
            for name, values in plain["state"].items()
        }
        return groups, state

    def _take_what_is_asked(self, groups: list[dict[str, Any]], plain: Mapping[str, Any]) -> tuple[str, ...]:
        """Leave to this run's own what its config says otherwise than the bundle's did; each said once."""
        said: dict[str, str] = {}
        for values, there, here in zip(groups, plain["groups"], self._built, strict=True):
            before = there.get("built", {})
            for key in [key for key in values if key in before and key in here and before[key] != here[key]]:
                del values[key]
                now, then = (from_plain(told[key], lambda name: torch.empty(0)) for told in (here, before))
                said[key] = f"optim.{key} is {now} as it is asked now; it was {then}"
        return tuple(said.values())

    def _put_optimizer(self, groups: list[dict[str, Any]], state: Mapping[nn.Parameter, dict[str, Any]]) -> None:
        optimizer = self._optimizer
        optimizer.zero_grad(set_to_none=True)
        optimizer.state.clear()
        for group, values in zip(optimizer.param_groups, groups, strict=True):
            group.update(values)
            is_on_device = bool(group.get("fused") or group.get("capturable"))
            for parameter in group["params"]:
                if parameter in state:
                    kept = {key: _put(key, value, parameter, is_on_device) for key, value in state[parameter].items()}
                    optimizer.state[parameter] = kept

    def _outer_pairs(self, found: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
        """(view of what is held here, its value). What the bundle lacks begins anew."""
        pairs: list[tuple[Tensor, Tensor]] = []
        for what, views in self._carried().items():
            for name, view in views.items():
                value = found.get(f"{what}/{name}")
                if value is None and any(key.startswith(f"{what}/") for key in found):
                    raise _different(f"{what} of {name}", "the bundle has none")
                if value is not None and value.shape != view.shape:
                    raise _different(f"{what} of {name}", f"the bundle has {_form(value)}, the run {_form(view)}")
                if value is not None:
                    pairs.append((view, value))
        return pairs

    def _remarks(self, outer: Mapping[str, Tensor]) -> tuple[str, ...]:
        """What only one of the two has."""
        there = {name.partition("/")[0] for name in outer if not name.startswith(NARROW)}
        here = set(self._carried())
        left = (f"the bundle's {what} is left out: this run keeps none" for what in sorted(there - here))
        fresh = (f"the bundle has no {what}: it begins {BEGINS[what]}" for what in sorted(here - there))
        return (*left, *fresh)


def _last(name: str) -> str:
    return name.partition("/")[2]


def _kind(optimizer: Optimizer) -> str:
    return f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"


def _plain_values(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group's hyperparameters as JSON, but those that are no plain values: with these nothing can be compared."""

    def refuse(name: str, _: Tensor) -> None:
        raise FlodlError(f"{name} is a tensor")

    found: dict[str, Any] = {}
    for key in group.keys() - SAID_ANEW:
        with contextlib.suppress(FlodlError):
            found[key] = to_plain(group[key], key, refuse)
    return found


def _by_name(flat: Flat) -> dict[str, Tensor]:
    """Every tensor of the vectors, by its name in the model."""
    buffers = zip(flat.layout.buffer_slots, flat.buffer_views, strict=True)
    return _parameters(flat) | {bare_name(slot.name): view for slot, view in buffers}


def _parameters(flat: Flat) -> dict[str, Tensor]:
    pairs = zip(flat.layout.parameter_slots, flat.parameter_views, strict=True)
    return {bare_name(slot.name): view for slot, view in pairs}


def _put(key: str, value: Any, parameter: nn.Parameter, is_on_device: bool) -> Any:
    """One entry of the optimizer's state, where torch would have it: beside its parameter, laid out like it."""
    if not isinstance(value, Tensor):
        return value
    if key in ON_HOST and not value.dim():
        return value.to(parameter.device, torch.float32) if is_on_device else value.clone()
    if value.shape == parameter.shape:
        return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)
    return value.to(parameter.device, copy=True)


def _form(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _different(what: str, how: str) -> ConfigError:
    remedy = "a run goes on with the model and the optimizer that it began with"
    return ConfigError([Problem(key=what, constraint=how, remedy=remedy)])
