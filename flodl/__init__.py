"""Train one PyTorch model on several devices that are not equal. Importing this loads neither torch nor hydra.

What is public is listed in ``__all__``; most of it comes when it is first asked for. docs/python.md shows it in use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, SupportsFloat

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flodl.decide.totals import EpochMetrics, Reduction
    from flodl.door.builder import TrainerBuilder
    from flodl.door.cluster import ClusterBuilder
    from flodl.door.config import EpochCallbackPolicy, TrainerConfig
    from flodl.door.handle import RunHandle, TrainedState
    from flodl.door.trainer import Trainer
    from flodl.engine.load import Module
    from flodl.engine.own_loop import LoopContext
    from flodl.engine.rank_averager import RankAverager
    from flodl.errors import ConfigError, FlodlError, Interrupted, NotReady, Problem, RunFailed, RunLost
    from flodl.spec.checkpoint import BestConfig, CheckpointConfig
    from flodl.spec.cluster import ClusterSpec, HostOverrides
    from flodl.spec.elche import ElCheConfig, ElCheMode
    from flodl.spec.guard import MsfGuardConfig, NoGuardConfig, TrendGuardConfig
    from flodl.spec.job import EvalConfig, JobSpec, MembershipConfig
    from flodl.spec.loader import LoaderConfig
    from flodl.spec.outer import AverageConfig, DiLoCoConfig, SlowMoConfig
    from flodl.spec.stop import EarlyConfig, StopConfig, TargetConfig

__all__ = [
    "AverageConfig",
    "BestConfig",
    "CheckpointConfig",
    "ClusterBuilder",
    "ClusterSpec",
    "ConfigError",
    "DiLoCoConfig",
    "EarlyConfig",
    "ElCheConfig",
    "ElCheMode",
    "EpochCallbackPolicy",
    "EpochMetrics",
    "EvalConfig",
    "FlodlError",
    "HostOverrides",
    "Interrupted",
    "JobSpec",
    "LoaderConfig",
    "LoopContext",
    "MembershipConfig",
    "MsfGuardConfig",
    "NoGuardConfig",
    "NotReady",
    "Problem",
    "RankAverager",
    "RunFailed",
    "RunHandle",
    "RunLost",
    "SlowMoConfig",
    "StopConfig",
    "TargetConfig",
    "TrainedState",
    "Trainer",
    "TrainerBuilder",
    "TrainerConfig",
    "TrendGuardConfig",
    "load_model",
    "record_scalar",
]

# Where what is not written out below comes from, when it is first asked for.
_HOMES = {
    "flodl.decide.totals": ("EpochMetrics",),
    "flodl.door.builder": ("TrainerBuilder",),
    "flodl.door.cluster": ("ClusterBuilder",),
    "flodl.door.config": ("EpochCallbackPolicy", "TrainerConfig"),
    "flodl.door.handle": ("RunHandle", "TrainedState"),
    "flodl.door.trainer": ("Trainer",),
    "flodl.engine.own_loop": ("LoopContext",),
    "flodl.engine.rank_averager": ("RankAverager",),
    "flodl.errors": ("ConfigError", "FlodlError", "Interrupted", "NotReady", "Problem", "RunFailed", "RunLost"),
    "flodl.spec.checkpoint": ("BestConfig", "CheckpointConfig"),
    "flodl.spec.cluster": ("ClusterSpec", "HostOverrides"),
    "flodl.spec.elche": ("ElCheConfig", "ElCheMode"),
    "flodl.spec.guard": ("MsfGuardConfig", "NoGuardConfig", "TrendGuardConfig"),
    "flodl.spec.job": ("EvalConfig", "JobSpec", "MembershipConfig"),
    "flodl.spec.loader": ("LoaderConfig",),
    "flodl.spec.outer": ("AverageConfig", "DiLoCoConfig", "SlowMoConfig"),
    "flodl.spec.stop": ("EarlyConfig", "StopConfig", "TargetConfig"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Bring a public name in from where it is written."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'flodl' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_model(run: str | Path, *, trusted_targets: Sequence[str] = ()) -> Module:
    """The model of a run with the weights that it saved last, on the CPU, in evaluation mode.

    run: a run folder, or ``"last"``: the newest under ./outputs. The model's class is found as in a config: in the
    usual packages, in the working folder, and in trusted_targets. Raises ConfigError where something does not fit.
    """
    from flodl.door.asked import require_saved
    from flodl.engine.load import load_model

    require_saved(run, trusted_targets)
    return load_model(run, trusted_targets=trusted_targets)


def record_scalar(name: str, value: SupportsFloat, reduction: Reduction = "mean") -> None:
    """Tell a figure from inside a training step; it arrives in the epoch's ``scalars`` in metrics.jsonl.

    reduction: how an epoch's figures of all batches and ranks become one: mean (weighted by samples), sum, max, min,
    or last (of the epoch's last round; of several ranks the highest numbered). value: a number, or a tensor of one
    element, which is not waited for. Outside a training step (evaluation, unit tests) nothing happens.
    Raises ValueError or TypeError for what is no name, no number or no reduction.
    """
    from flodl.engine.scalars import record

    record(name, value, reduction)
