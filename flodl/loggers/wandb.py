"""Weights & Biases: a run per run, grouped by sweep, and one more for a sweep's comparison.

Offline runs lie in the run folder; `wandb sync` sends them. Figures are told with their number of samples, which is the
axis of every chart, so that an evaluation that comes late is not lost.
"""

# The package is an extra, which the type checker may not have.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flodl.ports import LoggedRun, LoggedSweep

__all__ = ["Wandb"]


class Wandb:
    """mode: offline | online (which needs a key: WANDB_API_KEY, or `wandb login`)."""

    requires = ("wandb",)
    extra = "wandb"

    def __init__(self, *, project: str = "flodl", entity: str | None = None, mode: str = "offline") -> None:
        if mode not in ("offline", "online"):
            raise ValueError(f"mode={mode} is none of offline, online")
        self._project = project
        self._entity = entity
        self._mode = mode
        self._run: Any = None

    def begin(self, run: LoggedRun) -> None:
        self._open(run.folder, name=run.name, group=run.sweep or None, config=dict(run.parameters))
        self._run.define_metric("*", step_metric="samples")

    def log(self, figures: Mapping[str, float], step: int, at: float) -> None:
        self._run.log({**figures, "samples": step})

    def end(self, status: str, figures: Mapping[str, float]) -> None:
        self._run.summary.update({"status": status, **{f"result/{name}": value for name, value in figures.items()}})
        self._run.finish(exit_code=0 if status in ("done", "degraded", "stopped") else 1)

    def compare(self, sweep: LoggedSweep) -> None:
        import wandb

        self._open(sweep.folder, name=sweep.name, group=sweep.folder, config={"comparison": sweep.text})
        names = sorted({name for arm in sweep.arms for name in arm.figures})
        rows = [[arm.name, " ".join(arm.overrides), arm.status, *(arm.figures.get(name) for name in names)]
                for arm in sweep.arms]  # fmt: skip
        self._run.log({"comparison": wandb.Table(columns=["arm", "overrides", "status", *names], data=rows)})
        self._run.finish()

    def _open(self, folder: str, **about: Any) -> None:
        import wandb

        if self._mode == "online" and not wandb.login(prompt=False):
            raise ConnectionError("there is no key: set WANDB_API_KEY, or say `wandb login` once")
        settings = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True)
        self._run = wandb.init(project=self._project, entity=self._entity, mode=self._mode, dir=folder,
                               settings=settings, reinit="create_new", **about)  # fmt: skip
