"""How a GPU was used over some time, as metrics and results tell it."""

from __future__ import annotations

import msgspec

__all__ = ["GpuLine", "GpuUse"]


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU over some time. index: as `local_devices` counts. Means and peaks are null where the card does not tell.

    seconds: that were watched. throttled_seconds: by cause (power, temperature, hardware ...).
    """

    host: str
    index: int
    uuid: str
    name: str
    seconds: float = 0.0
    utilisation: float | None = None
    memory_peak_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_peak_celsius: float | None = None
    power_mean_watts: float | None = None
    throttled_seconds: dict[str, float] = {}


class GpuLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of metrics: GPUs since the last such line. epoch: that has just ended, or of which a part has."""

    epoch: int
    gpus: tuple[GpuUse, ...]
