"""A rank from birth to exit: link, build, ready, loop, goodbye. Whatever goes wrong is told before it ends.

The rank never decides to leave on its own account: only its own failure, or `Finish`, ends it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import sys
import threading
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

import torch
import torch._dynamo

from flodl.decide.messages import RankFailed, RankReady
from flodl.decide.roster import resolve_mode
from flodl.decide.timeouts import Timeouts, timeouts_of
from flodl.engine.averaging.elastic import ElasticRule
from flodl.engine.averaging.ema import Ema
from flodl.engine.averaging.gradients import GradientRule
from flodl.engine.averaging.layout import fingerprint
from flodl.engine.averaging.parameters import ParameterRule
from flodl.engine.averaging.rule import Rule
from flodl.engine.build import Built, Surroundings, build
from flodl.engine.bundle import TrainingState
from flodl.engine.callbacks import Callbacks
from flodl.engine.data import Feed
from flodl.engine.determinism import make_deterministic
from flodl.engine.edges import Parts
from flodl.engine.failure import trace_of, words_of
from flodl.engine.groups import GroupAverager, gloo_group, nccl_group
from flodl.engine.handing import Handing
from flodl.engine.interface import check_interface
from flodl.engine.link import LinkClosedError, RankLink
from flodl.engine.loop import Loop
from flodl.engine.memory import is_out_of_memory, memory_words
from flodl.engine.micro import Slices
from flodl.engine.orders import Link, Orders
from flodl.engine.own_loop import OwnRank
from flodl.engine.pace import Pace
from flodl.engine.payload import RankPayload
from flodl.engine.pinning import check_card
from flodl.engine.project import project_files
from flodl.engine.resuming import Resuming
from flodl.engine.rounds import Rounds
from flodl.engine.saver import Saver
from flodl.engine.schedule import LearningRate
from flodl.errors import ConfigError, FlodlError, NotReady, RunFailed
from flodl.spec.elche import ElCheConfig
from flodl.spec.job import JobSpec

__all__ = ["main", "make_loop", "make_rule", "positions_per_epoch", "serve", "surroundings"]

BESIDE_TRAINING = 10  # niceness

FailureKind = Literal["config", "not_ready", "step", "contact"]


def main(payload: RankPayload) -> NoReturn:
    """Be one rank; ends the process (0, or 1 after a failure was told)."""
    torch.set_num_threads(payload.threads)
    link = RankLink.dial(payload, limits=timeouts_of(payload.job.membership.timeout_scale))
    link.on_lost = lambda why: _fall(f"{_where(payload)}: {why}: it ends itself")
    done = serve(payload, link)
    link.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if done else 1)  # threads of an abandoned group would hold up an orderly exit


def _fall(why: str) -> NoReturn:
    """End this process from any thread, whatever the others hold or hang in; whoever reads its output may be gone."""
    if select.select([], [2], [], 0)[1]:
        os.write(2, f"{why}\n".encode())
    os._exit(1)


def serve(payload: RankPayload, link: Link) -> bool:
    """Build, tell that this rank is ready, train until `Finish`. Returns False after a failure, which it has told."""
    loop: Loop | OwnRank | None = None
    try:
        if payload.job.trainer.deterministic:
            make_deterministic()
        place = surroundings(payload)
        if payload.job.loop is not None:
            loop = OwnRank(payload, place, link)
            link.send(_ready(payload, None))
            loop.run(*_own_group(payload, link))
            return True
        built = build(payload.job, place)
        link.send(_ready(payload, built))
        loop = make_loop(payload, built, link)
        loop.run()
    except BaseException as error:  # noqa: BLE001  the user's code may raise anything, and call sys.exit
        trace = trace_of(error)
        sys.stderr.write(f"{trace}\n")
        kind = _kind(error, loop)
        with contextlib.suppress(FlodlError):
            link.send(
                RankFailed(
                    at=0.0,
                    rank=payload.rank,
                    kind=kind,
                    message=_message(payload, error),
                    trace=trace,
                    incarnation=payload.incarnation,
                )
            )
        return False
    return True


def _has_trained(loop: Loop | OwnRank | None) -> bool:
    """A loop of the user's own may train before it averages: once it was entered nobody knows."""
    if isinstance(loop, OwnRank):
        return loop.averager is not None
    return loop is not None and loop.tally.reports + loop.tally.batches > 0


def _is_refused(error: BaseException, loop: Loop | OwnRank | None) -> bool:
    """What flodl itself refuses in a loop of the user's own before it has averaged: its modules, its data."""
    has_averaged = isinstance(loop, OwnRank) and loop.averager is not None and loop.averager.rounds > 0
    return isinstance(loop, OwnRank) and isinstance(error, NotReady) and not has_averaged


def _message(payload: RankPayload, error: BaseException) -> str:
    if not is_out_of_memory(error):
        return words_of(error)
    words = memory_words(torch.device(payload.torch_device), words_of(error))
    return f"{_where(payload)}: out of memory outside of a batch's forward and backward pass: {words}"


def _where(payload: RankPayload) -> str:
    return f"rank {payload.rank} ({payload.device} of {payload.host})"


def surroundings(payload: RankPayload) -> Surroundings:
    """The device and places of this rank's host. Raises NotReady where device or interface cannot be used."""
    check_interface(payload.host, payload.interface)
    device = torch.device(payload.torch_device)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise NotReady(f"{payload.host}: {payload.device} cannot be used: torch {torch.__version__} sees no GPU")
        torch.cuda.set_device(device)
        found = str(torch.cuda.get_device_properties(device).uuid)
        check_card(f"{payload.host}: {payload.device}", payload.uuid, found)
    host = next((host for host in payload.job.cluster.workers if host.host == payload.host), None)
    named = {"overrides": host.overrides} if host is not None else {}
    return Surroundings(
        device=device,
        host=payload.host,
        path=payload.path or "",
        data_path=payload.data_path,
        num_ranks=len(payload.world),
        **named,
    )


def make_loop(payload: RankPayload, built: Built, link: Link) -> Loop:
    """Put one rank's parts together."""
    job, device = payload.job, torch.device(payload.torch_device)
    elche = job.elche.resolved(resolve_mode(payload.world))
    summing = device if elche.backend == "nccl" or len(payload.world) == 1 else torch.device("cpu")
    rule = make_rule(job, elche, built, len(payload.world), {"device": device, "flat_device": summing})
    limits = timeouts_of(job.membership.timeout_scale)
    averager = GroupAverager(payload.rank, link.store, _group(payload, elche, limits), meet_seconds=limits.meeting)
    if elche.backend == "nccl":
        link.on_regroup = lambda generation: _set_free(averager, generation)
    beside = elche.is_async and len(payload.world) > 1
    niceness = BESIDE_TRAINING if beside else 0
    state = TrainingState(built.model, built.optimizer, rule, built.precision)
    rounds = Rounds(payload.rank, built.model, rule, averager, niceness=niceness, device=summing)
    rounds.resuming, rounds.handing = Resuming(link, state), Handing(state, summing)
    positions = positions_per_epoch(job, built.num_samples)
    parts = Parts(
        rank=payload.rank,
        device=device,
        gamma=elche.gamma,
        runs_ahead=beside,
        slices=_slices(payload, built, device),
        feed=_feed(job, built, device),
        rate=_rate(payload, built, positions),
        pace=Pace(device, payload.speed),
        rounds=rounds,
        callbacks=Callbacks(Saver(payload.rank, link, built.model, state), rule, built, device, job.eval),
    )
    parts.callbacks.ema = rounds.ema = state.ema = _ema(job, elche, built, rule)
    built.model.train()
    # Who is dead, and whether a round is given up, is the coordinator's to say: at the ceiling it does, and no rank
    # that only waits for a stuck one has left before.
    return Loop(parts, link, Orders(link, patience_seconds=limits.patience))


def _set_free(averager: GroupAverager, generation: int) -> None:
    """End what hangs in older groups. The training thread may be in it: a GPU with a full queue takes no more work."""
    threading.Thread(target=averager.pass_on, args=(generation,), name="set-free", daemon=True).start()


def make_rule(
    job: JobSpec, elche: ElCheConfig, built: Built, num_ranks: int, devices: Mapping[str, torch.device]
) -> Rule:
    """The rule that mode and `average` name; alone in the world a rank simply takes its own steps."""
    common: dict[str, Any] = {
        "max_grad_norm": job.trainer.max_grad_norm,
        "bn_buffers": elche.bn_buffers,
        **devices,
    }
    if num_ranks == 1:
        return ParameterRule(built.model, built.optimizer, **common)
    if elche.averages == "gradients":
        return GradientRule(built.model, built.optimizer, **common)
    if elche.is_async:
        common |= {"alpha": elche.easgd_alpha, "beta": elche.beta(num_ranks), "center": elche.center}
    rule = (ElasticRule if elche.is_async else ParameterRule)(built.model, built.optimizer, **common)
    rule.move_consensus(job.outer)
    return rule


def _feed(job: JobSpec, built: Built, device: torch.device) -> Feed:
    return Feed(
        built.train,
        batch_size=built.batch_size,
        seed=job.trainer.seed,
        num_positions=positions_per_epoch(job, built.num_samples),
        device=device,
        loading=built.loading,
    )


def _ema(job: JobSpec, elche: ElCheConfig, built: Built, rule: Rule) -> Ema | None:
    """The consensus's moving average, where the consensus lies; None where none is asked for."""
    if job.trainer.ema is None:
        return None
    consensus = rule.standing().consensus
    held = next(built.model.parameters()) if consensus is None else consensus.vectors[0]
    place = None if held.device.type == "cpu" else held.device  # None: pinned, where that helps
    return Ema(built.model, job.trainer.ema, with_buffers=elche.bn_buffers != "local", device=place)


def positions_per_epoch(job: JobSpec, num_samples: int) -> int:
    """Samples of an epoch: whole batches of trainer.batch_size, at most trainer.limit_batches of them."""
    batches = num_samples // job.trainer.batch_size
    if job.trainer.limit_batches is not None:
        batches = min(batches, job.trainer.limit_batches)
    return batches * job.trainer.batch_size


def _rate(payload: RankPayload, built: Built, positions: int) -> LearningRate:
    """What one rank says, none of the others need say."""
    trainer, say = payload.job.trainer, print if payload.rank == 0 else _silent
    return LearningRate(built.optimizer, built.schedule, positions * trainer.num_epochs, trainer.batch_size, say)


def _silent(text: str) -> None:
    """Another rank says it."""


def _slices(payload: RankPayload, built: Built, device: torch.device) -> Slices:
    return Slices(
        model=built.model,
        step=built.step,
        optimizer=built.optimizer,
        precision=built.precision,
        device=device,
        seed=payload.job.trainer.seed,
        size=built.slice_size,
        where=_where(payload),
    )


def _group(payload: RankPayload, elche: ElCheConfig, limits: Timeouts):
    waits = limits.alone if elche.is_sync or elche.averages == "gradients" else 0.0
    timeout_seconds = limits.collective + waits
    if elche.backend == "nccl":
        return nccl_group(timeout_seconds)
    return gloo_group(payload.interface or "127.0.0.1", timeout_seconds)


def _own_group(payload: RankPayload, link: Link) -> tuple[GroupAverager, torch.device]:
    """What a loop of the user's own averages over, and where vectors are summed."""
    elche = payload.job.elche.resolved(resolve_mode(payload.world))
    limits = timeouts_of(payload.job.membership.timeout_scale)
    on_device = elche.backend == "nccl" or len(payload.world) == 1
    summing = torch.device(payload.torch_device if on_device else "cpu")
    seconds = limits.stall + limits.alone
    group = nccl_group(seconds) if elche.backend == "nccl" else gloo_group(payload.interface or "127.0.0.1", seconds)
    return GroupAverager(payload.rank, link.store, group), summing


def _ready(payload: RankPayload, built: Built | None) -> RankReady:
    """built None: a loop of the user's own builds what it wants."""
    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    return RankReady(
        at=0.0,
        rank=payload.rank,
        host=payload.host,
        device=payload.device,
        num_samples=0 if built is None else built.num_samples,
        data_signature="" if built is None else built.data_signature,
        fingerprint="" if built is None else fingerprint(built.model),
        num_parameters=0 if built is None else built.num_parameters,
        batch_size=1 if built is None else built.batch_size,
        precision="float32" if built is None else built.precision.name,
        is_compiled=built is not None and built.is_compiled,
        versions=versions,
        project=project_files(payload.path or ""),
        incarnation=payload.incarnation,
    )


def _kind(error: BaseException, loop: Loop | OwnRank | None) -> FailureKind:
    has_trained = _has_trained(loop)
    if isinstance(error, ConfigError):
        return "config"
    if _is_refused(error, loop):
        return "not_ready"
    if has_trained and isinstance(error, RunFailed | LinkClosedError):
        return "contact"
    return "step" if has_trained or not isinstance(error, FlodlError | OSError | ImportError) else "not_ready"
