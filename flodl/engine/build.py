"""From a JobSpec to living things: model, optimizer, schedule, step and data on one device.

The one place beside app that knows Hydra. Nothing is built before the whole tree has been checked
(flodl.engine.trust), and Hydra gets the checked objects in an OmegaConf tree: in a plain dict it would turn them back
into names and look those up again.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import hydra.utils
import numpy as np
import torch
import torch._dynamo  # every optimizer's constructor imports it, for a second or more: the warm process pays that once
from hydra.errors import InstantiationException
from omegaconf import OmegaConf
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset, IterableDataset

from flodl.engine.compiling import compile_model
from flodl.engine.data import Loading
from flodl.engine.functions import Functions
from flodl.engine.optim import made_optimizer
from flodl.engine.precision import Precision, precision_of
from flodl.engine.pretrained import load_weights
from flodl.engine.reading import num_samples, signature
from flodl.engine.residency import is_resident, settled
from flodl.engine.schedule import TorchSchedule
from flodl.engine.surroundings import Surroundings
from flodl.engine.trust import Trust, checked
from flodl.errors import ConfigError, FlodlError, NotReady, Problem
from flodl.spec.component import Component
from flodl.spec.job import CALLBACKS, JobSpec, TrainerConfig
from flodl.spec.model import ModelStart, read_model
from flodl.spec.optim import OptimGroups, read_groups
from flodl.spec.suggest import did_you_mean

__all__ = ["Built", "build", "build_data", "build_loop", "made_model"]


@dataclass(frozen=True, kw_only=True)
class Built:
    """One rank's parts. train and eval are map-style data sets, where `settled` has put them; eval may be None.

    batch_size, slice_size: this host's (None: whole batches). num_parameters: trainable scalars. data_signature: length
    and hash of the training set. Each of the optimizer's groups holds its base learning rate as "initial_lr".
    """

    model: nn.Module
    optimizer: Optimizer
    schedule: Callable[[float], float] | TorchSchedule
    step: Any
    train: Any
    eval: Any
    batch_size: int
    slice_size: int | None
    precision: Precision
    is_compiled: bool
    loading: Loading
    num_samples: int
    num_parameters: int
    data_signature: str
    functions: Functions = field(default_factory=Functions)


def build(job: JobSpec, place: Surroundings) -> Built:
    """Check everything, then build everything; the model is the same for the same trainer.seed and torch release.

    Raises ConfigError (a key or value is wrong: targets, arguments, sizes) and NotReady (data that is not there, or
    any other failure of what the config names).
    """
    optim, groups, problems = read_groups(job.optim)
    bare_model, start, more = read_model(job.model)
    if problems or more:
        raise ConfigError([*problems, *more])
    components = {
        **job.components,
        "dataset": _with_function(place.placed(job.dataset)),
        "model": bare_model,
        "optim": optim,
    }
    trees = checked(components, _trust(job, place))
    _seed(job.trainer.seed)
    train, held_out = _data_sets(job, place, trees["dataset"])
    name = f"dataset={job.dataset.name}"
    data_signature = signature(train, name)
    train, held_out = (settled(part, job.loader, place.device, name) for part in (train, held_out))
    _seed(job.trainer.seed)  # again: how much randomness the data took must not change the model
    model = _model(bare_model, trees["model"]).to(place.device)
    _begin_from(start, model, place)
    return Built(
        model=model,
        optimizer=_optimizer(trees["optim"], model, groups, place.num_ranks),
        schedule=_schedule(job.scheduler, trees["scheduler"]),
        step=_make("step", trees["step"], partial=job.step.partial),
        functions=_functions(job, trees),
        train=train,
        eval=held_out,
        loading=_loading(job, place, train),
        **_fitted(job.trainer_with(place.overrides), model, place.device),
        num_samples=num_samples(train),
        num_parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        data_signature=data_signature,
    )


def build_data(job: JobSpec, place: Surroundings) -> tuple[Any, Loading]:
    """The training set alone, as `build` has it, and how it is read. Raises ConfigError and NotReady."""
    tree = checked({"dataset": _with_function(place.placed(job.dataset))}, _trust(job, place))["dataset"]
    _seed(job.trainer.seed)
    train, _ = _data_sets(job, place, tree)
    train = settled(train, job.loader, place.device, f"dataset={job.dataset.name}")
    return train, _loading(job, place, train)


def build_loop(job: JobSpec, place: Surroundings) -> Callable[..., Any]:
    """The training loop that the job names in place of ours. Raises ConfigError and NotReady."""
    assert job.loop is not None
    tree = checked({"loop": job.loop}, _trust(job, place))["loop"]
    _seed(job.trainer.seed)
    return _make("loop", tree, partial=job.loop.partial)


def made_model(component: Component, trust: Trust) -> nn.Module:
    """The model alone, on the CPU, with the weights of its constructor. Raises ConfigError."""
    bare, _, problems = read_model(component)
    if problems:
        raise ConfigError(problems)
    return _model(bare, checked({"model": bare}, trust)["model"])


# ------------------------------------------------------------------------------------------------------- parts


def _trust(job: JobSpec, place: Surroundings) -> Trust:
    return Trust(job.trusted_targets, place.path, place.host)


def _begin_from(start: ModelStart, model: nn.Module, place: Surroundings) -> None:
    """Weights of another training, where the config names some: they lie on every host."""
    if start.init_from is None:
        return
    path = place.file(start.init_from)
    try:
        load_weights(model, path, "model.init_from")
    except FileNotFoundError as error:
        remedy = "put it there, in the project folder or under @data; deploy.code=rsync brings it along"
        raise NotReady(
            f"model.init_from={start.init_from}: no such file{place.on_host}: looked for {path}; {remedy}"
        ) from error


def _model(component: Component, tree: Mapping[str, Any]) -> nn.Module:
    model = _make("model", tree)
    constraint = ""
    if not isinstance(model, nn.Module):
        constraint = f"gives a {type(model).__name__}, not a torch.nn.Module"
    elif not any(True for _ in model.parameters()):
        constraint = "the model has no parameters: there is nothing to train"
    elif not any(p.requires_grad for p in model.parameters()):
        constraint = "all parameters of the model are frozen: there is nothing to train"
    if constraint:
        is_one = isinstance(model, nn.Module)
        remedy = "choose another model, or leave some parameters trainable" if is_one else "return the model"
        raise ConfigError([Problem(key="model._target_", value=component.name, constraint=constraint, remedy=remedy)])
    return model


def _optimizer(tree: Mapping[str, Any], model: nn.Module, groups: OptimGroups, num_ranks: int) -> Optimizer:
    """The optimizer over the trainable parameters. An error in its values (lr=-1) is an error of the config."""
    make = _make("optim", tree, partial=True)
    try:
        return made_optimizer(make, model, groups, num_ranks)
    except Exception as error:
        raise _told("optim", tree, error) from error


def _schedule(component: Component, tree: Mapping[str, Any]) -> Callable[[float], float] | TorchSchedule:
    """A function of progress; or, where it wants the optimizer (_partial_: true, or torch's own), a torch scheduler."""
    target = tree["_target_"]
    if component.partial or (inspect.isclass(target) and issubclass(target, LRScheduler)):
        return TorchSchedule(_make("scheduler", tree, partial=True), component.name)
    return _make("scheduler", tree)


def _data_sets(job: JobSpec, place: Surroundings, tree: Mapping[str, Any]) -> tuple[Any, Any]:
    """Training and evaluation set, refused where they cannot be trained on."""
    try:
        splits = _make("dataset", tree)
    except FileNotFoundError as error:
        raise NotReady(place.missing(job.dataset, "dataset", error)) from error
    train, held_out = _parts(splits)
    name = f"dataset={job.dataset.name}"
    _check_samples(f"{name}: its train set", train, place)
    if held_out is not None:
        _check_samples(f"{name}: its eval set", held_out, place)
    _check_batch(job, place, num_samples(train))
    return train, held_out


def _parts(made: Any) -> tuple[Any, Any]:
    """Training and evaluation set of what a data set's target gave: two parts, or a bare set to train on."""
    if isinstance(made, Mapping):
        return made.get("train"), made.get("eval")
    if isinstance(made, tuple) and len(made) == 2 and all(isinstance(part, Dataset) for part in made):
        return made
    if _is_map_style(made) or isinstance(made, IterableDataset):
        return made, None
    return getattr(made, "train", made), getattr(made, "eval", None)


def _is_map_style(data: Any) -> bool:
    """torch's iterable sets inherit a __getitem__ that only raises."""
    return hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, IterableDataset)


def _functions(job: JobSpec, trees: Mapping[str, Mapping[str, Any]]) -> Functions:
    """The user's functions that are called on the way."""
    found = {
        name.removesuffix("_fn"): _make(key, trees[key], partial=job.components[key].partial)
        for name in CALLBACKS
        if (key := f"callbacks.{name}") in trees
    }
    return Functions(**found)


def _with_function(component: Component) -> Component:
    """A data set's collate_fn as an import path is the function of that name, judged like every other target."""
    named = component.args.get("collate_fn")
    if not isinstance(named, str):
        return component
    return component.replace(args={**component.args, "collate_fn": {"_target_": named, "_partial_": True}})


def _fitted(trainer: TrainerConfig, model: nn.Module, device: torch.device) -> dict[str, Any]:
    """How the model is computed on this device."""
    return {
        "batch_size": trainer.batch_size,
        "slice_size": trainer.slice_size,
        "precision": precision_of(trainer.precision, device),
        "is_compiled": compile_model(model, trainer.compile, device),
    }


def _loading(job: JobSpec, place: Surroundings, train: Any) -> Loading:
    """How this host's ranks read the training set; on the device there is nothing to fetch."""
    loader, here = job.loader, place.overrides.num_workers
    return Loading(
        name=f"dataset={job.dataset.name}",
        num_workers=0 if is_resident(train, loader, place.device) else loader.num_workers if here is None else here,
        prefetch=loader.prefetch,
        pin_memory=loader.pin_memory,
        repeated=job.trainer.batch_size if job.debug.overfit else None,
    )


def _check_samples(name: str, data: Any, place: Surroundings) -> None:
    if not _is_map_style(data):
        kind = type(data).__name__
        raise NotReady(
            f"{name} is a {kind}{place.on_host}; it must be map-style: have __len__ and __getitem__. Samples are dealt "
            "out by number, so that none is lost and none counts twice: index a stream's files, or store it once"
        )
    if num_samples(data) == 0:
        raise NotReady(f"{name} is empty{place.on_host}")


def _check_batch(job: JobSpec, place: Surroundings, samples: int) -> None:
    key, batch_size = "trainer.batch_size", job.trainer.batch_size
    if place.overrides.batch_size is not None:
        key, batch_size = f"cluster.workers[{place.host}].overrides.batch_size", place.overrides.batch_size
    if samples < batch_size:
        constraint = f"the training set has {samples} samples{place.on_host}, fewer than one batch"
        remedy = f"set it to {samples} or less"
        raise ConfigError([Problem(key=key, value=str(batch_size), constraint=constraint, remedy=remedy)])


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


# ----------------------------------------------------------------------------------------------------- calling


def _make(key: str, tree: Mapping[str, Any], *, partial: bool = False) -> Any:
    """Call what the tree names, through Hydra. Errors of ours pass as they are, others are told with their key."""
    _check_arguments(key, tree, partial)
    config = OmegaConf.create({**tree, "_convert_": "all", "_partial_": partial}, flags={"allow_objects": True})
    try:
        return hydra.utils.instantiate(config)
    except InstantiationException as error:
        raise _told(key, tree, error) from error


def _told(key: str, tree: Mapping[str, Any], error: BaseException) -> FlodlError | OSError:
    """The error for the person who wrote the config: what a component raised, without Hydra's wrapping."""
    while isinstance(error, InstantiationException) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, (FlodlError, FileNotFoundError)):
        return error
    target = f"{tree['_target_'].__module__}.{tree['_target_'].__qualname__}"
    name = Component(target=target, args=dict(tree)).name
    text = f"cannot be built: {type(error).__name__}: {error}"
    if key != "dataset" and isinstance(error, (TypeError, ValueError, InstantiationException)):
        return ConfigError([Problem(key=key, value=name, constraint=text)])
    return NotReady(f"{key}={name}: {text}")


def _check_arguments(key: str, tree: Mapping[str, Any], partial: bool) -> None:
    """Hold the arguments against the signature, so that a misspelt one is told with its key."""
    try:
        wanted = inspect.signature(tree["_target_"])
    except (TypeError, ValueError):  # a callable without a signature of its own
        return
    given = {name: value for name, value in tree.items() if not (name.startswith("_") and name.endswith("_"))}
    named = [p.name for p in wanted.parameters.values() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in wanted.parameters.values())
    problems = [] if takes_any else [_unknown(key, name, named) for name in given if name not in named]
    if not problems and not partial:
        try:
            wanted.bind(*tree.get("_args_", ()), **given)
        except TypeError as error:
            remedy = _takes(named)
            if key == "step" and inspect.isfunction(tree["_target_"]):
                remedy += "; if the function itself is meant, add _partial_: true"
            problems.append(Problem(key=key, constraint=f"its arguments do not fit: {error}", remedy=remedy))
    if problems:
        raise ConfigError(problems)


def _unknown(key: str, name: str, named: list[str]) -> Problem:
    constraint = f"is no argument of {key}._target_"
    return Problem(key=f"{key}.{name}", constraint=constraint, remedy=did_you_mean(name, named) or "it takes none")


def _takes(named: list[str]) -> str:
    return f"it takes {', '.join(named)}" if named else "it takes none"
