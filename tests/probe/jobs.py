"""Jobs and reports for the tests of the probe: made of what a test cares about, and otherwise healthy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flodl.probe.report import DataCopy, Gpu, HostReport, Interface, Library
from flodl.spec.codec import decode_job
from flodl.spec.job import JobSpec

__all__ = ["GIB", "copy", "gpu", "healthy", "job_of"]

GIB = 1 << 30


def job_of(*workers: Mapping[str, Any], mode: str = "auto", data: Any = None, **cluster: Any) -> JobSpec:
    """A job on these hosts. data: an argument of its data set."""
    many = len(workers) > 1
    filled = [{**({"nccl_socket_ifname": "eth0"} if many else {}), "local_devices": "cpu:1", **w} for w in workers]
    return decode_job(
        {
            "elche": {"mode": mode},
            "cluster": {"workers": filled, **cluster},
            "model": {"_target_": "flodl.models.mlp.mlp"},
            "dataset": {"_target_": "flodl.datasets.digits.digits", **({} if data is None else {"file": data})},
            "step": {"_target_": "flodl.steps.classification.classification"},
            "optim": {"_target_": "torch.optim.SGD", "lr": 0.1},
            "scheduler": {"_target_": "flodl.engine.schedule.constant"},
        }
    )


def gpu(index: int = 0, capability: tuple[int, int] = (8, 6), **fields: Any) -> Gpu:
    """An idle card."""
    known = {"uuid": f"GPU-{index}", "name": "RTX 3090", "installed_index": index}
    memory = {"memory_total_bytes": 24 * GIB, "memory_free_bytes": 24 * GIB}
    return Gpu(**{"index": index, "capability": capability, **known, **memory, **fields})


def copy(part: str = "", **fields: Any) -> DataCopy:
    """Data that is there."""
    known = {"path": f"/data/{part}", "exists": True, "num_files": 1, "num_bytes": 9, "names": "n", "signature": "s"}
    return DataCopy(**{"part": part, **known, "ends": {"a": "1"}, **fields})


def healthy(host: str, **fields: Any) -> HostReport:
    """A host without a fault."""
    known: dict[str, Any] = {
        "hostname": host,
        "executable": "/env/bin/python",
        "flodl": "1.0",
        "torch": "2.13.0+cu130",
        "cuda": "13.0",
        "nccl": Library(path="/env/libnccl.so.2", version="2.27.5"),
        "cores": 8,
        "memory_total_bytes": 64 * GIB,
        "memory_free_bytes": 60 * GIB,
        "path": "/srv/project",
        "path_exists": True,
        "path_is_writable": True,
        "disk_free_bytes": 100 * GIB,
        "disk_free_inodes": 1 << 20,
        "interfaces": (
            Interface(name="lo", is_up=True, addresses=("127.0.0.1",)),
            Interface(name="eth0", is_up=True, addresses=("10.0.0.1",)),
        ),
    }
    return HostReport(host=host, **(known | fields))
