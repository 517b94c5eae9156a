"""A rank's life by its link: ready, trained, goodbye; and every failure told with its kind before it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from flodl.decide.messages import Goodbye, Range, RankFailed, RankReady, Round, RunWindow, WindowDone
from flodl.decide.roster import Place
from flodl.engine.keys import KeyPair
from flodl.engine.own_loop import LoopContext
from flodl.engine.payload import RankPayload
from flodl.engine.worker import positions_per_epoch, serve
from flodl.spec.cluster import ClusterSpec, HostSpec
from flodl.spec.elche import ElCheConfig
from flodl.spec.job import Component, JobSpec, TrainerConfig
from tests.engine import rig

pytestmark = pytest.mark.own_process

JOB = JobSpec(
    elche=ElCheConfig(mode="cpu_cadence"),
    cluster=ClusterSpec(workers=(HostSpec(host="here"),)),
    model=Component(target="flodl.models.mlp.MLP", args={"in_shape": [1, 8, 8], "num_classes": 10}),
    dataset=Component(target="flodl.datasets.digits.digits"),
    step=Component(target="flodl.steps.classification.Classification"),
    optim=Component(target="torch.optim.SGD", args={"lr": 0.1}, partial=True),
    scheduler=Component(target="flodl.decide.schedule.Cosine"),
)


def payload(job: JobSpec) -> RankPayload:
    keys = KeyPair(public=b"p", secret=b"s")
    return RankPayload(
        run_id="r",
        job=job,
        rank=0,
        world=(Place(rank=0, host="here", device="cpu", batch_size=64),),
        host="here",
        device="cpu",
        local_rank=0,
        control="",
        bulk="",
        server_key=keys.public,
        keys=keys,
    )


def life(job: JobSpec, store: Path, orders: list[Any] | None = None) -> tuple[bool, rig.ScriptedLink]:
    link = rig.ScriptedLink(orders or [], store)
    return serve(payload(job), link), link


def windows() -> list[Any]:
    grant = RunWindow(
        to=(0,),
        generation=1,
        rounds=(Round(1, 2, 0, 128),),
        ranges=(Range(0, 0, 128),),
        alone=True,
        epoch=0,
        reason="test",
    )
    return [rig.form((0,)), grant, rig.After(WindowDone, 1), rig.finish("eval", "save")]


def test_a_rank_builds_tells_what_it_has_trains_and_says_goodbye(tmp_path: Path) -> None:
    done, link = life(JOB, tmp_path / "store", windows())
    assert done
    ready, last = link.sent[0], link.sent[-1]
    assert isinstance(ready, RankReady)
    assert (ready.num_samples, ready.batch_size, len(ready.fingerprint)) == (1497, 64, 64)
    assert ready.versions["torch"] == torch.__version__
    assert link.told(WindowDone)[0].samples == 128
    assert isinstance(last, Goodbye)
    assert [(result.name, result.ok) for result in last.callbacks] == [("eval", True), ("save", True)]
    assert {name.partition("/")[0] for name in rig.saved(link)} == {"model.param"}


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"optim": Component(target="torch.optim.SGD", args={"lr": -1.0}, partial=True)}, "config", "optim.lr=-1.0"),
        (
            {"optim": Component(target="torch.optim.SGD", args={"lr": 0.1, "nesterov": True}, partial=True)},
            "config",
            "Nesterov momentum requires",
        ),
        ({"model": Component(target="os.system", args={"command": "true"})}, "config", "os.system"),
        ({"dataset": Component(target="tests.engine.test_worker.missing")}, "config", "missing"),
    ],
    ids=["value", "optimizer's own", "target outside the allow-list", "no such target"],
)
def test_what_the_config_has_wrong_is_told_as_such(
    change: dict[str, Any], kind: str, words: str, tmp_path: Path
) -> None:
    done, link = life(JOB.replace(**change), tmp_path / "store")
    (failed,) = link.sent
    assert not done
    assert isinstance(failed, RankFailed)
    assert failed.kind == kind
    assert words in failed.message


def test_a_step_that_raises_is_told_with_its_last_lines(tmp_path: Path) -> None:
    model = Component(target="torch.nn.Linear", args={"in_features": 3, "out_features": 2})  # digits have 64 values
    done, link = life(JOB.replace(model=model), tmp_path / "store", windows())
    failed = link.sent[-1]
    assert not done
    assert failed.kind == "step"
    assert failed.message.startswith("RuntimeError: mat1 and mat2")
    assert failed.trace.splitlines()[-1] == failed.message


class Swapping(nn.Module):
    """Replaces a layer each time it runs, as a model with lazily built parts may."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.last = nn.Linear(64, 10)
        out: torch.Tensor = self.last(images.flatten(1))
        return out


class Growing(Swapping):
    """Gains a parameter while it runs."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.extra = nn.Parameter(torch.zeros(1))
        out: torch.Tensor = self.last(images.flatten(1)) + self.extra
        return out


@pytest.mark.parametrize(("name", "culprit"), [("Swapping", "last.bias"), ("Growing", "extra")])
def test_a_model_whose_parameters_are_replaced_while_training_is_refused(
    name: str, culprit: str, tmp_path: Path
) -> None:
    model = Component(target=f"tests.engine.test_worker.{name}")
    done, link = life(JOB.replace(model=model, trusted_targets=("tests",)), tmp_path / "store", windows())
    assert not done
    assert f"replaced while training: {culprit}" in link.sent[-1].message


def reads_at_once(ctx: LoopContext) -> None:
    """A loop that asks for its data first."""
    assert len(ctx.loader)


def reads_later(ctx: LoopContext) -> None:
    """A loop that averages before it asks for its data."""
    ctx.averager.watch(nn.Linear(1, 1))
    ctx.averager.average_parameters()
    assert len(ctx.loader)


@pytest.mark.parametrize(("loop", "kind"), [("reads_at_once", "not_ready"), ("reads_later", "step")])
def test_what_an_own_loop_is_refused_before_it_has_averaged_is_a_start_that_failed(
    loop: str, kind: str, tmp_path: Path
) -> None:
    missing = Component(target="flodl.datasets.mnist.mnist", args={"folders": [str(tmp_path / "not there")]})
    own = Component(target=f"tests.engine.test_worker.{loop}", partial=True)
    done, link = life(JOB.replace(loop=own, dataset=missing, trusted_targets=("tests",)), tmp_path / "store",
                      [rig.form((0,))])  # fmt: skip
    failed = link.sent[-1]
    assert not done
    assert failed.kind == kind, failed.trace
    assert "not there" in failed.message


@pytest.mark.parametrize(
    ("samples", "limit", "positions"), [(1000, None, 960), (1000, 3, 192), (1000, 99, 960), (64, None, 64)]
)
def test_an_epoch_is_whole_batches(samples: int, limit: int | None, positions: int) -> None:
    job = JOB.replace(trainer=TrainerConfig(batch_size=64, limit_batches=limit))
    assert positions_per_epoch(job, samples) == positions
