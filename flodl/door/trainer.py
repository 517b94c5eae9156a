"""`Trainer`: a run out of a program. It ends in the same JobSpec as the command line, and in the same run."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flodl.door.asked import call_problems, kind_problems, shown
from flodl.door.builder import Factories, TrainerBuilder
from flodl.door.config import TrainerConfig, laid
from flodl.door.data import lay_data, missing_data, without_data
from flodl.door.handle import RunHandle
from flodl.door.live import live_problems, require_no_rank
from flodl.door.named import Live, Names
from flodl.errors import ConfigError, NotReady, Problem
from flodl.record.folder import RunFolder
from flodl.record.text import no_write
from flodl.spec.job import JobSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flodl.decide.messages import End
    from flodl.engine.callables import LoopFn, ModelFactory, OptimFactory, TrainStep
    from flodl.engine.forked import ForkedAgent

__all__ = ["Trainer"]

# One run begins at a time, in whatever threads: Hydra has one instance in a process, and a fork takes along what is
# held for it. Reentrant: a program's own handler of a signal may ask for a spec.
_beginning = threading.RLock()


class Trainer:
    """Trains a model on every device of a cluster. No objects: a run is its `RunHandle`.

    model_factory() -> torch.nn.Module; optim_factory(parameters) -> torch.optim.Optimizer; train_step(model, batch) ->
    the mean loss of the batch, a scalar tensor, where batch is what the data set's samples collate to, on the device.
    Each may also be an import path, or the name of a shipped choice (``"resnet20"``, ``"sgd"``, ``"classification"``).
    """

    @staticmethod
    def builder(model_factory: ModelFactory, optim_factory: OptimFactory, train_step: TrainStep) -> TrainerBuilder:
        """The same as `run` with a `TrainerConfig`, said in a chain that ends with ``.run()``."""
        return TrainerBuilder(_parts(model_factory, optim_factory, train_step), _Start())

    @staticmethod
    def run(
        model_factory: ModelFactory, optim_factory: OptimFactory, train_step: TrainStep, config: TrainerConfig
    ) -> RunHandle:
        """Start training and return at once.

        Raises ConfigError with everything that is wrong with what was asked for; what goes wrong later is raised by
        `RunHandle.join`.
        """
        return _Start().run(_parts(model_factory, optim_factory, train_step), config)

    @staticmethod
    def run_loop(fn: LoopFn, config: TrainerConfig) -> RunHandle:
        """Run a training loop of your own in every rank: a GAN, reinforcement learning, whatever is no model and step.

        fn(ctx: LoopContext) is called once in each rank and may return, in rank 0, a module or a map of names to
        modules and tensors: `RunHandle.join` has them as params, ``name.parameter``. All ranks must make the same calls
        of ``ctx.averager`` in the same order. A rank that dies or raises ends the run: nothing is dealt again, and
        nothing is saved on the way but what fn saves. Without a dataset there is no ctx.loader. Of the config count
        cluster, dataset, batch_size, seed, loader, elche's mode (which names the backend), save_path and name. Raises
        ConfigError.
        """
        return _Start().run(Factories({"loop": fn}), config)

    @staticmethod
    def spec(
        model_factory: ModelFactory, optim_factory: OptimFactory, train_step: TrainStep, config: TrainerConfig
    ) -> JobSpec:
        """The job that `run` would start. Raises ConfigError."""
        return _Start().spec(_parts(model_factory, optim_factory, train_step), config)


class _Start:
    """From what a program says to a job, and to its run."""

    def spec(self, factories: Factories, config: TrainerConfig) -> JobSpec:
        """The job. Raises ConfigError."""
        with _beginning:
            return _job(factories, config)[0]

    def run(self, factories: Factories, config: TrainerConfig) -> RunHandle:
        """The run, under way. Raises ConfigError."""
        require_no_rank()
        with _beginning:
            return self._begin(factories, config)

    def _begin(self, factories: Factories, config: TrainerConfig) -> RunHandle:
        begun = time.monotonic()
        job, live = _job(factories, config)
        _warn(job)
        from flodl import trainer
        from flodl.caller import Caller
        from flodl.door.screen import screen

        folder = _begun(config)
        agent = _forked(live)
        handle = RunHandle(job, folder, metrics_fn=config.metrics_fn, eval_result_fn=config.eval_result_fn)
        caller = Caller(on_world=handle.hold, open_agent=None if agent is None else agent.open)
        console = screen()

        def work() -> End:
            heard = (handle.observe,)
            try:
                return trainer.run(job, folder, listeners=heard, console=console, begun=begun, caller=caller)
            finally:
                if agent is not None:
                    agent.drop()

        try:
            return handle.begin(work)
        except RuntimeError:
            if agent is not None:
                agent.drop()
            raise


def _forked(live: Sequence[Live]) -> ForkedAgent | None:
    """This machine's agent, where ranks are to hold what lives here: before any thread of ours starts."""
    if not live:
        return None
    from flodl.engine import held
    from flodl.engine.forked import ForkedAgent

    held.hold({thing.place: thing.thing for thing in live})
    return ForkedAgent()


def _parts(model_factory: ModelFactory, optim_factory: OptimFactory, train_step: TrainStep) -> Factories:
    return Factories({"model": model_factory, "optim": optim_factory, "step": train_step})


def _job(factories: Factories, config: TrainerConfig) -> tuple[JobSpec, tuple[Live, ...]]:
    from flodl.door.tree import job_from

    names = Names()
    config = _sound(factories, config, names.problems)
    words, over = list(config.overrides), laid(config)
    if isinstance(config.cluster, str):
        words.append(f"cluster={config.cluster}")
    for key, given in _callables(factories, config).items():
        tree = names.tree(key, given)
        if isinstance(tree, str):
            words.append(f"{key}={tree}")
        elif tree is not None:
            over[key] = tree
    if "loop" in factories.given:
        words.append("model=none")
    lay_data(config, names, words, over)
    if names.trusted:
        over["trusted_targets"] = [*config.trusted_targets, *sorted({*names.trusted} - {*config.trusted_targets})]
    problems = list(names.problems)
    try:
        job = job_from(words, over)
    except ConfigError as error:
        if not problems:
            raise
        raise ConfigError([*problems, *error.problems]) from None
    problems += [*missing_data(job, factories.given, config), *live_problems(job, names.live)]
    if problems:
        raise ConfigError(problems)
    return without_data(job, config), tuple(names.live)


def _sound(factories: Factories, config: Any, problems: list[Problem]) -> TrainerConfig:
    """The config without the fields that are of another kind; these are told. Raises ConfigError where it is none."""
    if not isinstance(config, TrainerConfig):
        raise ConfigError([Problem(key="config", value=shown(config), constraint="is no TrainerConfig",
                                   remedy="write TrainerConfig(dataset=..., batch_size=64)")])  # fmt: skip
    found = list(kind_problems(config))
    problems.extend(found)
    usual = TrainerConfig()
    sound = config.replace(**{problem.key: getattr(usual, problem.key) for problem in found})
    data = {"dataset": config.dataset, "dataset.eval": config.eval_dataset}
    told = {"metrics_fn": config.metrics_fn, "eval_result_fn": config.eval_result_fn}
    called = {key: given for key, given in (data | told).items() if given is not None}
    for key, given in {**_callables(factories, sound), **called}.items():
        problems.extend(call_problems(key, given))
    return sound


def _callables(factories: Factories, config: TrainerConfig) -> dict[str, Any]:
    """Key -> what was given for it."""
    given = {
        "scheduler": config.scheduler_fn,
        "callbacks.epoch_fn": config.epoch_fn,
        "callbacks.eval_fn": config.eval_fn,
        "callbacks.checkpoint_fn": config.checkpoint_fn,
    }
    return {**factories.given, **{key: value for key, value in given.items() if value is not None}}


def _folder(config: TrainerConfig) -> RunFolder:
    if config.save_path is None:
        return RunFolder.create(Path.cwd() / "outputs")
    path = Path(config.save_path).expanduser().absolute()
    if RunFolder(path).spec_path.exists():
        raise ConfigError([Problem(key="save_path", value=str(path), constraint="holds a run already",
                                   remedy="name another folder; resume_from goes on from this one")])  # fmt: skip
    return RunFolder.adopt(path)


def _begun(config: TrainerConfig) -> RunFolder:
    """The run folder, with its first file in it. Raises ConfigError where it holds a run, NotReady where nothing can be
    written."""
    try:
        folder = _folder(config)
        folder.status.begin()
    except OSError as error:
        raise NotReady(no_write(error, Path(config.save_path or "outputs"))) from error
    return folder


def _warn(job: JobSpec) -> None:
    from flodl.spec.checks import ineffective

    for warning in ineffective(job):
        sys.stderr.write(f"warning: {warning}\n")
