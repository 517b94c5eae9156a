"""Everything that the programmatic door offers, in one file: pyright checks it in its strict mode."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset

import flodl
from flodl import (
    AverageConfig,
    BestConfig,
    CheckpointConfig,
    ClusterBuilder,
    ClusterSpec,
    ConfigError,
    DiLoCoConfig,
    EarlyConfig,
    ElCheConfig,
    ElCheMode,
    EpochCallbackPolicy,
    EpochMetrics,
    EvalConfig,
    FlodlError,
    HostOverrides,
    Interrupted,
    JobSpec,
    LoaderConfig,
    LoopContext,
    MembershipConfig,
    MsfGuardConfig,
    NoGuardConfig,
    NotReady,
    Problem,
    RankAverager,
    RunFailed,
    RunHandle,
    RunLost,
    SlowMoConfig,
    StopConfig,
    TargetConfig,
    TrainedState,
    Trainer,
    TrainerBuilder,
    TrainerConfig,
    TrendGuardConfig,
)

Batch = tuple[Tensor, Tensor]


def net(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))


def sgd(params: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1)


def step(model: nn.Module, batch: Batch) -> Tensor:
    loss = F.cross_entropy(model(batch[0]), batch[1])
    flodl.record_scalar("loss_again", loss)
    return loss


def points() -> TensorDataset:
    return TensorDataset(torch.zeros(64, 4), torch.zeros(64, dtype=torch.int64))


def falling(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimizer, 10)


def begin(epoch: int, model: nn.Module) -> None:
    model.requires_grad_(epoch >= 0)


def judge(model: nn.Module) -> Mapping[str, float]:
    return {"tensors": float(len(list(model.parameters())))}


def keep(round_: int, model: nn.Module) -> None:
    del round_, model


def told(metrics: EpochMetrics) -> None:
    epoch: int = metrics.epoch
    loss: float | None = metrics.loss
    del epoch, loss


def figures(epoch: int, values: Mapping[str, float]) -> None:
    del epoch, values


def modes() -> dict[ElCheMode, ElCheConfig]:
    return {
        "nccl_sync": ElCheConfig.nccl_sync(partition_ratios=(0.7, 0.3), bn_buffers="mean"),
        "nccl_cadence": ElCheConfig.nccl_cadence(relax_up=True, anchor=20, max_anchor=200),
        "cpu_sync": ElCheConfig.cpu_sync(max_batch_diff=0, gamma=0.5),
        "cpu_cadence": ElCheConfig.cpu_cadence(overhead_target=0.1, min_anchor=2, anchor_rank=1),
        "cpu_async": ElCheConfig.cpu_async(easgd_alpha=0.6, easgd_beta="p").replace(max_overshoot=4),
    }


def cluster() -> ClusterSpec:
    return (
        ClusterBuilder()
        .controller("10.0.0.1", port=29400)
        .join(min_ranks=1)
        .env({"NCCL_DEBUG": "WARN"})
        .env_pass("WANDB_API_KEY")
        .deploy(code="rsync")
        .host("a").devices(0, 1).ranks([0, 1]).nccl_socket_ifname("eth0").path("/srv/me").arch("cu126")
        .host("b").all_devices().nccl_socket_ifname("eth0").python("/opt/env/bin/python").data_path("/data")
        .ssh_target("b.lan").ssh_port(22).ssh_user("me").ssh_identity_file("~/.ssh/id").ssh_proxy_jump("gate")
        .ssh_known_hosts("/k").ssh_host_key_policy("accept_new").overrides(HostOverrides(batch_size=16)).speed(0.5)
        .env({"A": "b"})
        .build()
    )  # fmt: skip


def config() -> TrainerConfig:
    return TrainerConfig(
        dataset=points,
        eval_dataset=functools.partial(points),
        batch_size=16,
        num_epochs=2,
        elche=modes()["cpu_async"],
        cluster="rehearsal",
        guard=MsfGuardConfig(nudge_factor=0.7),
        meta=True,
        ema=500,
        membership=MembershipConfig(max_failure="25%"),
        loader=LoaderConfig(num_workers=0),
        eval=EvalConfig(every_epochs=1),
        stop=StopConfig(
            max_time="2h", target=TargetConfig(metric="tensors", value=9.0), early=EarlyConfig(metric="tensors")
        ),
        checkpoint=CheckpointConfig(keep=3, best=BestConfig(metric="tensors")),
        max_grad_norm=5.0,
        precision="float32",
        save_path=Path("runs") / "sample",
        checkpoint_every=1,
        epoch_callback_policy=EpochCallbackPolicy.fastest(),
        scheduler_fn=falling,
        epoch_fn=begin,
        eval_fn=judge,
        checkpoint_fn=keep,
        metrics_fn=told,
        eval_result_fn=figures,
        overrides=("optim.lr_scale=none",),
    )


def chain() -> TrainerBuilder:
    return (
        Trainer.builder(functools.partial(net, width=4), sgd, step)
        .dataset(points, eval=points).eval_dataset(points).batch_size(16).num_epochs(2).elche(ElCheConfig.cpu_sync())
        .cluster("rehearsal").guard(TrendGuardConfig(threshold=0.1)).guard(NoGuardConfig()).meta(False)
        .membership(MembershipConfig()).loader(LoaderConfig()).eval(EvalConfig()).stop(StopConfig())
        .checkpoint(CheckpointConfig()).name("sample").seed(1).deterministic().max_grad_norm(5.0).limit_batches(8)
        .outer(SlowMoConfig(mu=0.2)).outer(DiLoCoConfig(lr=0.7)).outer(AverageConfig()).ema(1000)
        .accumulate(2).micro_batch("auto").precision("auto").compile(False).save_path("runs/chain")
        .checkpoint_every(1).epoch_callback_policy(EpochCallbackPolicy.rank(1)).scheduler_fn(falling).epoch_fn(begin)
        .eval_fn(judge).checkpoint_fn(keep).metrics_fn(told).eval_result_fn(figures).override("eval.at_end=true")
    )  # fmt: skip


def specs() -> tuple[JobSpec, JobSpec]:
    return chain().spec(), Trainer.spec(net, sgd, step, config())


def train() -> TrainedState:
    handle: RunHandle = Trainer.run(net, sgd, step, config())
    while (metrics := handle.next_metrics()) is not None:
        told(metrics)
    for metrics in handle.poll_metrics():
        told(metrics)
    handle.stop("enough")
    state = handle.join()
    net().load_state_dict(state.state_dict)
    first: Tensor = next(iter(state.params.values()))
    folder: Path = state.folder
    assert handle.is_over, (first.shape, folder, handle.spec.name, handle.folder)
    return state


def loop(ctx: LoopContext) -> dict[str, nn.Module]:
    model = net().to(ctx.device)
    averager: RankAverager = ctx.averager
    averager.watch(model)
    optimizer = sgd(model.parameters())
    for batch in ctx.loader:
        torch.autograd.backward(step(model, batch))
        averager.weighted_average_gradients(len(batch[0]))
        optimizer.step()
        if ctx.is_stopping:
            break
    averager.average_parameters(weight=1.0)
    averager.average_buffers()
    assert ctx.rank < ctx.world_size, (len(ctx.loader), averager.rounds)
    return {"model": model}


def problems() -> tuple[Problem, ...]:
    try:
        train()
        Trainer.run_loop(loop, config()).join()
    except ConfigError as error:
        return error.problems
    except (NotReady, RunFailed, RunLost, Interrupted) as error:
        code: int = error.exit_code
        del code
    except FlodlError:
        raise
    return ()


if __name__ == "__main__":
    assert not problems()
    flodl.load_model("last").eval()
