"""A rank's first steps, in the forked child: secrets, environment, folder, threads; then its worker function."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable

import msgspec

from flodl.engine.payload import RankPayload, decode_payload
from flodl.engine.pinning import pinned

__all__ = ["encode_birth", "is_rank", "live", "prepare"]

FAILED = 1
NOT_BORN = 3

_born: list[int] = []  # ranks that this process is: one, or none


def encode_birth(payload: bytes, env: dict[str, str]) -> bytes:
    """What the agent puts before a rank. env: values of env_pass, which appear in no process listing."""
    return msgspec.msgpack.encode((payload, env))


def is_rank() -> bool:
    """True in a rank: what it imports must not start a run of its own."""
    return bool(_born)


def live(born: bytes) -> int:
    """Be the rank that `born` describes; its exit code. 1: an exception, 3: it could not begin."""
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    try:
        encoded, env = msgspec.msgpack.decode(born, type=tuple[bytes, dict[str, str]])
        payload = decode_payload(encoded)
        _born.append(payload.rank)
        os.environ.update(env)
        prepare(payload)
        work = _worker(payload.entry)
    except (msgspec.MsgspecError, ImportError, AttributeError, OSError, ValueError):
        traceback.print_exc()
        return NOT_BORN
    try:
        work(payload)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED * bool(end.code)
    except BaseException:  # noqa: BLE001 - the last door: whatever it was is told and ends this process
        traceback.print_exc()
        return FAILED
    return 0


def prepare(payload: RankPayload) -> None:
    """Environment, folder and threads of this process become the rank's. Before torch is used."""
    os.environ.update(_environment(payload))
    if payload.path:
        os.chdir(payload.path)
        sys.path.insert(0, payload.path)
    import torch

    torch.set_num_threads(payload.threads)  # of this thread and, by torch's own doing, of every later one


def _environment(payload: RankPayload) -> dict[str, str]:
    """What NCCL, gloo and CUDA read. The rank sees its own GPU and no other."""
    found = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": pinned(payload.device, os.environ.get("CUDA_VISIBLE_DEVICES"), payload.uuid),
    }
    found |= {"OMP_NUM_THREADS": str(payload.threads), "MKL_NUM_THREADS": str(payload.threads)}
    if payload.interface:  # NCCL takes a bare name for the beginning of one: eth1 would be eth10 too
        found |= {"NCCL_SOCKET_IFNAME": f"={payload.interface}", "GLOO_SOCKET_IFNAME": payload.interface}
    return found


def _worker(entry: str) -> Callable[[RankPayload], object]:
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)
