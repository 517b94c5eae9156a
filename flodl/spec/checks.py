"""What the parts of a job may be together. A contradiction is an error; a setting without effect is a warning.

Checks that need more than the job (devices counted, ranks numbered, targets resolved) live where that is known.
"""

from __future__ import annotations

from collections.abc import Iterator

from flodl.errors import Problem
from flodl.spec.elche import ElCheConfig
from flodl.spec.guard import TrendGuardConfig
from flodl.spec.job import EMA_FIGURE, JobSpec, MembershipConfig
from flodl.spec.loader import LoaderConfig
from flodl.spec.model import read_model
from flodl.spec.optim import read_groups
from flodl.spec.outer import AverageConfig, outer_name
from flodl.spec.reader import shown
from flodl.spec.stop import TRAIN, EarlyConfig, StopConfig, TargetConfig

__all__ = ["contradictions", "ineffective"]

# parts of a job, and what a training loop of the user's own, or what carries it, reads of them
_READ_BY_A_LOOP: dict[str, tuple[str, ...]] = {
    "elche": ("mode",),
    "meta": (),
    "membership": ("timeout_scale",),
    "trainer": ("batch_size", "seed", "deterministic"),
    "eval": (),
    "stop": (),
    "checkpoint": (),
    "callbacks": (),
    "debug": ("overfit", "inprocess"),
}


def contradictions(job: JobSpec) -> Iterator[Problem]:
    """Errors between the parts of a job."""
    yield from _nccl_without_gpus(job)
    yield from _too_many_slices(job)
    yield from _blind_rules(job)
    yield from _outer_without_consensus(job)
    yield from read_groups(job.optim)[2]
    yield from read_model(job.model)[2]


def ineffective(job: JobSpec) -> tuple[Problem, ...]:
    """Warnings: what the job sets and its mode ignores. One override can so span a sweep over modes."""
    found = [*_shadowed(job), *_unused_loading(job.loader)]
    if job.loop is not None:
        return (*found, *_beside_a_loop(job, job.loop.name))
    config = job.elche
    found = [
        Problem(key=f"elche.{knob}", value=shown(getattr(config, knob)), constraint=f"is ignored: {reason}")
        for knob, reason in _ignored(config)
        if getattr(config, knob) != _default(knob)
    ] + found
    found.extend(_unused_stopping(job.stop))
    found.extend(_unused_evaluation(job))
    found.extend(_unused_no_decay(job))
    found.extend(_unused_restarts(job))
    return tuple(found)


def _beside_a_loop(job: JobSpec, target: str) -> Iterator[Problem]:
    """What speaks of flodl's own training, beside a loop of the user's. (Whether model, step and the like were set
    cannot be told: every job has them.)"""
    constraint = f"is ignored: loop={target} is a training loop of your own"
    for key, bare in (("guard", TrendGuardConfig()), ("outer", AverageConfig())):
        if getattr(job, key) != bare:
            yield Problem(key=key, constraint=constraint)
    for part, read in _READ_BY_A_LOOP.items():
        found = getattr(job, part)
        bare = type(found)()
        for knob in found.__struct_fields__:
            if knob not in read and getattr(found, knob) != getattr(bare, knob):
                yield Problem(key=f"{part}.{knob}", constraint=constraint)
    if job.cluster.controller.join.min_ranks is not None:
        yield Problem(key="cluster.controller.join.min_ranks", constraint=constraint)
    for i, host in enumerate(job.cluster.workers):
        for knob in ("micro_batch", "precision", "compile"):
            if getattr(host.overrides, knob) is not None:
                yield Problem(key=f"cluster.workers[{i}].overrides.{knob}", constraint=constraint)


def _default(knob: str) -> object:
    return getattr(ElCheConfig(), knob)


def _ignored(config: ElCheConfig) -> Iterator[tuple[str, str]]:
    """(knob, why it does nothing) for this mode. `auto` becomes a cadence mode."""
    if config.is_sync:
        for knob in ("anchor", "min_anchor", "max_anchor", "overhead_target", "relax_up"):
            yield knob, f"{config.mode} averages at anchor 1, always"
    else:
        yield "partition_ratios", f"mode {config.mode} shares work out by measured speed; *_sync modes honour it"
    if not config.is_async:
        for knob in ("easgd_alpha", "easgd_beta", "center", "max_overshoot"):
            yield knob, f"only cpu_async uses it, and the mode is {config.mode}"
    elif config.easgd_alpha is None:
        for knob in ("easgd_beta", "center"):
            yield knob, "it belongs to elastic averaging, and easgd_alpha is null"
    if config.is_async and config.center == "consensus":
        yield "easgd_beta", "with center=consensus there is no stored center to pull"
    if config.is_sync and config.partition_ratios is not None:
        yield "split", "partition_ratios replace it"


def _shadowed(job: JobSpec) -> Iterator[Problem]:
    for i, host in enumerate(job.cluster.workers):
        if host.arch is not None and host.python is not None:
            yield Problem(key=f"cluster.workers[{i}].arch", value=host.arch,
                          constraint=f"is ignored: python={host.python} names the interpreter")  # fmt: skip
    if job.trainer.deterministic and job.elche.is_async:
        yield Problem(key="trainer.deterministic", value="true",
                      constraint="makes each step repeatable, but in cpu_async not the run: when a round's result is "
                      "adopted depends on timing")  # fmt: skip


def _unused_loading(loader: LoaderConfig) -> Iterator[Problem]:
    knobs, reason = (), ""
    if loader.resident is True:
        knobs, reason = ("num_workers", "prefetch", "pin_memory"), "with loader.resident=true all data is on the device"
    elif not loader.num_workers:
        knobs, reason = ("prefetch",), "with loader.num_workers=0 nothing is fetched ahead"
    for knob in knobs:
        if getattr(loader, knob) != getattr(LoaderConfig(), knob):
            yield Problem(key=f"loader.{knob}", value=shown(getattr(loader, knob)), constraint=f"is ignored: {reason}")


def _unused_stopping(stop: StopConfig) -> Iterator[Problem]:
    for name, found, bare in (("target", stop.target, TargetConfig()), ("early", stop.early, EarlyConfig())):
        for knob in found.__struct_fields__:
            if found.metric is None and getattr(found, knob) != getattr(bare, knob):
                yield Problem(key=f"stop.{name}.{knob}", value=shown(getattr(found, knob)),
                              constraint=f"is ignored: stop.{name}.metric is null")  # fmt: skip


def _unused_evaluation(job: JobSpec) -> Iterator[Problem]:
    for knob, bare in (("split", "eval"), ("metrics", None), ("limit_batches", None)):
        if not job.eval.is_wanted and getattr(job.eval, knob) != bare:
            yield Problem(key=f"eval.{knob}", value=shown(getattr(job.eval, knob)),
                          constraint="is ignored: eval says that nothing is evaluated")  # fmt: skip


def _unused_no_decay(job: JobSpec) -> Iterator[Problem]:
    optim, groups, _ = read_groups(job.optim)
    if groups.no_decay and optim.args.get("weight_decay", 1.0) == 0.0:
        yield Problem(key="optim.no_decay", value=shown(groups.no_decay),
                      constraint="is ignored: optim.weight_decay is 0")  # fmt: skip


def _unused_restarts(job: JobSpec) -> Iterator[Problem]:
    membership = job.membership
    if not membership.rejoin and membership.max_restarts != MembershipConfig().max_restarts:
        yield Problem(key="membership.max_restarts", value=shown(membership.max_restarts),
                      constraint="is ignored: membership.rejoin is false")  # fmt: skip


def _blind_rules(job: JobSpec) -> Iterator[Problem]:
    """A rule that waits for a figure which never comes."""
    for key, metric in job.stop.metrics.items():
        if metric.startswith(TRAIN):
            continue
        if not job.eval.is_repeated:
            yield Problem(key=key, value=metric, constraint="is judged on evaluations, and there are none on the way",
                          remedy=f"set eval.every_epochs or eval.every_minutes, or follow {TRAIN}loss")  # fmt: skip
        elif job.eval.metrics is not None and metric not in job.eval.metrics and not _is_of_ema(job, metric):
            yield Problem(key=key, value=metric, constraint=f"is not among eval.metrics={shown(job.eval.metrics)}",
                          remedy="add it there")  # fmt: skip


def _is_of_ema(job: JobSpec, metric: str) -> bool:
    """The moving average tells every figure that the consensus tells."""
    wanted = job.eval.metrics or ()
    return job.trainer.ema is not None and metric in [EMA_FIGURE + name for name in wanted]


def _too_many_slices(job: JobSpec) -> Iterator[Problem]:
    slices, sizes = job.trainer.accumulate, {"trainer.batch_size": job.trainer.batch_size}
    for i, host in enumerate(job.cluster.workers):
        sizes[f"cluster.workers[{i}].overrides.batch_size"] = job.trainer_with(host.overrides).batch_size
    key, smallest = min(sizes.items(), key=lambda item: item[1])
    if slices > smallest:
        yield Problem(key="trainer.accumulate", value=str(slices),
                      constraint=f"a batch of {key}={smallest} samples has not so many slices",
                      remedy=f"use {smallest} or less")  # fmt: skip


def _nccl_without_gpus(job: JobSpec) -> Iterator[Problem]:
    if job.elche.backend != "nccl":
        return
    for i, host in enumerate(job.cluster.workers):
        if isinstance(host.local_devices, str) and host.local_devices.startswith("cpu:"):
            yield Problem(
                key="elche.mode",
                value=job.elche.mode,
                constraint=f"NCCL averages GPUs, and cluster.workers[{i}] ({host.host}) lends {host.local_devices}",
                remedy=f"use elche={job.elche.mode.replace('nccl', 'cpu')}, or lend GPUs",
                is_rigs=True,
            )


def _outer_without_consensus(job: JobSpec) -> Iterator[Problem]:
    """An outer optimizer needs parameters of which a mean is made, and a mean that everybody adopts."""
    name, constraint, remedy = outer_name(job.outer), "", ""
    if not name:
        return
    if job.elche.averages == "gradients":
        constraint = f"moves the consensus of parameters, and elche={job.elche.mode} averages gradients"
        remedy = "set elche.average=parameters, choose a cadence mode or cpu_async, or outer=average"
    elif job.elche.is_async and job.elche.easgd_alpha is not None:
        constraint = f"moves the consensus, and elche.easgd_alpha={job.elche.easgd_alpha:g} keeps replicas off it"
        remedy = "drop easgd_alpha, or use outer=average"
    if constraint:
        yield Problem(key="outer.name", value=name, constraint=constraint, remedy=remedy)
