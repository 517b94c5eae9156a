"""Which of the installed GPUs a process is lent: CUDA_VISIBLE_DEVICES in all its forms, read as the driver reads it.

Numbers (in PCI order: flodl sets CUDA_DEVICE_ORDER), UUIDs or unique beginnings of them (GPU-, MIG-), or nothing at
all. The list counts up to its first entry that names no device; a device that is named twice makes the whole list void.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from flodl.probe.report import Gpu

__all__ = ["lent_gpus"]

_NUMBER = re.compile(r"[+-]?\d+")


def lent_gpus(installed: Sequence[Gpu], lent: str | None) -> tuple[Gpu, ...]:
    """The GPUs that a run may use, numbered as it names them. lent: the variable's value, None where it is not set."""
    if lent is None:
        chosen = list(installed)
    else:
        chosen: list[Gpu] = []
        for name in lent.split(","):
            gpu = _named(installed, name.strip())
            if gpu is None:
                break
            if gpu in chosen:
                chosen = []
                break
            chosen.append(gpu)
    return tuple(replace(gpu, index=index) for index, gpu in enumerate(chosen))


def _named(installed: Sequence[Gpu], name: str) -> Gpu | None:
    if name.startswith(("GPU-", "MIG-")):
        found = [gpu for gpu in installed if gpu.uuid.startswith(name)]
        return found[0] if len(found) == 1 else None
    number = _NUMBER.match(name)
    if number is None:
        return None
    return next((gpu for gpu in installed if gpu.installed_index == int(number.group())), None)
