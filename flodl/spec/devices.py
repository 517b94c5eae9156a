"""The words for devices in a cluster file: ``all``, ``auto``, ``cpu:N`` or a list of GPU numbers."""

from __future__ import annotations

import re

__all__ = ["cpu_count", "device_fault", "named_count"]

_CPU = re.compile(r"cpu:(\d{1,4})")


def cpu_count(devices: str | tuple[int, ...]) -> int | None:
    """N of ``cpu:N``; None for anything else."""
    found = _CPU.fullmatch(devices) if isinstance(devices, str) else None
    return int(found[1]) if found else None


def named_count(devices: str | tuple[int, ...]) -> int | None:
    """How many devices are named; None where they have to be counted on the host (`all`, `auto`)."""
    return cpu_count(devices) if isinstance(devices, str) else len(devices)


def device_fault(devices: str | tuple[int, ...]) -> tuple[str, str] | None:
    """(what is wrong, remedy) for words that name no device; None where they do."""
    remedy = "write all, auto, cpu:2 or a list of GPU numbers such as [0, 1]"
    if isinstance(devices, str):
        wrong = devices not in ("all", "auto") and not cpu_count(devices)
        return ("names no device", remedy) if wrong else None
    if not devices:
        return "names no device", remedy
    twice = sorted({d for d in devices if devices.count(d) > 1})
    return (f"names GPU {twice[0]} twice", "one rank per GPU") if twice else None
