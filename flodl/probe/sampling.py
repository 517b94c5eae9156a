"""The program that watches a host's GPUs while a run goes on: one line per interval, asked from NVML.

    python -P -m flodl.probe.sampling

First line in: `Watch`; out: a `Sample` every interval, until its input ends. Where there is no GPU to watch, or no
NVML, it ends at once. Figures that a card does not tell are null; a MIG instance tells its memory alone.
"""

from __future__ import annotations

import selectors
import sys
from typing import Any

import msgspec

__all__ = ["GpuSample", "Sample", "Watch", "main", "sampled"]

# NVML's bits -> words. Idling and clocks that were set on purpose are no throttling.
REASONS = {
    0x04: "power",
    0x08: "hardware",
    0x10: "sync boost",
    0x20: "temperature",
    0x40: "temperature",
    0x80: "power brake",
}


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """uuids: of GPUs or MIG instances."""

    uuids: tuple[str, ...]
    interval_seconds: float = 2.0


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU now. utilisation: part of the last moments in which a kernel ran. throttled: by what it is held back."""

    uuid: str
    utilisation: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    throttled: tuple[str, ...] = ()


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """All watched GPUs of a host."""

    gpus: tuple[GpuSample, ...]


def sampled(nvml: Any, uuid: str, handle: Any) -> GpuSample:
    """What NVML tells about one GPU; it has to be initialised."""

    def told(ask: str, *more: Any) -> Any:
        try:
            return getattr(nvml, ask)(handle, *more)
        except nvml.NVMLError:  # this card does not tell, or is gone
            return None

    rates, memory = told("nvmlDeviceGetUtilizationRates"), told("nvmlDeviceGetMemoryInfo")
    milliwatts = told("nvmlDeviceGetPowerUsage")
    temperature = told("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)
    bits = told("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
    return GpuSample(
        uuid=uuid,
        utilisation=None if rates is None else rates.gpu / 100,
        memory_used_bytes=None if memory is None else memory.used,
        memory_total_bytes=None if memory is None else memory.total,
        temperature_celsius=None if temperature is None else float(temperature),
        power_watts=None if milliwatts is None else milliwatts / 1000,
        throttled=tuple(dict.fromkeys(word for bit, word in REASONS.items() if bits & bit)),
    )


def main() -> None:
    """Serve the controller's line."""
    watch = msgspec.json.decode(sys.stdin.readline(), type=Watch)
    try:
        import pynvml as nvml
    except ImportError:
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return
    handles = _handles(nvml, watch.uuids)
    if not handles:
        return
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        while not (selector.select(watch.interval_seconds) and not sys.stdin.readline()):
            sample = Sample(gpus=tuple(sampled(nvml, uuid, handle) for uuid, handle in handles.items()))
            sys.stdout.buffer.write(msgspec.json.encode(sample) + b"\n")
            sys.stdout.buffer.flush()


def _handles(nvml: Any, uuids: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for uuid in uuids:
        try:
            found[uuid] = nvml.nvmlDeviceGetHandleByUUID(uuid)
        except nvml.NVMLError:  # it has fallen off the bus: the rank will say so
            continue
    return found


if __name__ == "__main__":
    main()
