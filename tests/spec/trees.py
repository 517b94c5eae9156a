"""Small config trees for tests of the codec."""

from __future__ import annotations

from typing import Any

COMPONENTS: dict[str, Any] = {
    "model": {"_target_": "flodl.models.mlp.MLP", "hidden": [8]},
    "dataset": {"_target_": "flodl.datasets.digits.digits"},
    "step": {"_target_": "flodl.steps.classification.Classification"},
    "optim": {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.1},
    "scheduler": {"_target_": "flodl.decide.schedule.Constant"},
}


def tree(**parts: Any) -> dict[str, Any]:
    """A whole job's tree: one CPU rank of this machine, with these top-level keys changed."""
    cluster = {"workers": [{"host": "localhost", "local_devices": "cpu:1"}]}
    return {"elche": {}, "cluster": cluster, **COMPONENTS, **parts}


def worker(host: str = "localhost", **keys: Any) -> dict[str, Any]:
    """A worker of a cluster file."""
    return {"host": host, "local_devices": "cpu:1", **keys}


def workers(*found: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    """A job's tree with these workers."""
    return tree(cluster={"workers": list(found), **cluster})
