"""The controller's side of GPU sampling: one small program per host that trains on GPUs, and what they say, summed up.

Nothing of it can hold up or end a run: a host that says nothing has no figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import msgspec

from flodl.errors import HostUnready
from flodl.ports import Errand, Fleet
from flodl.probe.report import Gpu
from flodl.probe.sampling import GpuSample, Sample, Watch
from flodl.record.gpu_use import GpuUse

__all__ = ["GpuWatch"]

PROGRAM = "flodl.probe.sampling"


class GpuWatch:
    """Made by `begin`. `keep` is to be called often; it never blocks."""

    def __init__(
        self,
        errands: Mapping[str, Errand],
        gpus: Mapping[str, Sequence[Gpu]],
        interval_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._errands = dict(errands)
        self._interval = interval_seconds
        self._clock = clock
        self._due = 0.0
        cards = {(host, gpu.uuid): gpu for host in errands for gpu in gpus[host]}
        self._total = {key: _Sum(key[0], gpu) for key, gpu in cards.items()}
        self._since = {key: _Sum(key[0], gpu) for key, gpu in cards.items()}

    @classmethod
    def begin(cls, fleet: Fleet, gpus: Mapping[str, Sequence[Gpu]], interval_seconds: float = 2.0) -> Self:
        """Watch these GPUs of these hosts, which were met. Hosts without any are left alone."""
        errands: dict[str, Errand] = {}
        for host, cards in gpus.items():
            watch = Watch(uuids=tuple(gpu.uuid for gpu in cards), interval_seconds=interval_seconds)
            try:
                if cards:
                    errands[host] = fleet.run(host, PROGRAM, msgspec.json.encode(watch).decode())
            except HostUnready:  # its end is told elsewhere
                continue
        return cls(errands, gpus, interval_seconds)

    def keep(self) -> None:
        """Take in what the programs have said."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + self._interval / 2
        for host, errand in self._errands.items():
            while (line := errand.line(0.0)) is not None:
                self._hear(host, line)

    def taken(self) -> tuple[GpuUse, ...]:
        """What was seen since the last call; nothing of GPUs that have said nothing."""
        self.keep()
        found = tuple(some.use() for some in self._since.values() if some.count)
        for some in self._since.values():
            some.clear()
        return found

    def totals(self) -> tuple[GpuUse, ...]:
        """What was seen from the beginning."""
        return tuple(some.use() for some in self._total.values() if some.count)

    def close(self) -> None:
        """End the programs. Idempotent."""
        for errand in self._errands.values():
            errand.end()
        self._errands.clear()

    def _hear(self, host: str, line: str) -> None:
        try:
            sample = msgspec.json.decode(line, type=Sample)
        except msgspec.MsgspecError:  # a foreign line costs one sample
            return
        for gpu in sample.gpus:
            for sums in (self._total, self._since):
                if (host, gpu.uuid) in sums:
                    sums[host, gpu.uuid].add(gpu, self._interval)


class _Sum:
    """Figures of one GPU, added up."""

    def __init__(self, host: str, gpu: Gpu) -> None:
        self._host, self._gpu = host, gpu
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self._seconds = 0.0
        self._utilisation = _Mean()
        self._watts = _Mean()
        self._memory: int | None = None
        self._temperature: float | None = None
        self._total_bytes: int | None = None
        self._throttled: dict[str, float] = {}

    def add(self, sample: GpuSample, seconds: float) -> None:
        self.count += 1
        self._seconds += seconds
        self._utilisation.add(sample.utilisation)
        self._watts.add(sample.power_watts)
        if sample.memory_used_bytes is not None:
            self._memory = max(self._memory or 0, sample.memory_used_bytes)
        if sample.temperature_celsius is not None:
            self._temperature = max(self._temperature or 0.0, sample.temperature_celsius)
        self._total_bytes = sample.memory_total_bytes or self._total_bytes
        for cause in sample.throttled:
            self._throttled[cause] = self._throttled.get(cause, 0.0) + seconds

    def use(self) -> GpuUse:
        return GpuUse(
            host=self._host,
            index=self._gpu.index,
            uuid=self._gpu.uuid,
            name=self._gpu.name,
            seconds=self._seconds,
            utilisation=self._utilisation.value,
            memory_peak_bytes=self._memory,
            memory_total_bytes=self._total_bytes,
            temperature_peak_celsius=self._temperature,
            power_mean_watts=self._watts.value,
            throttled_seconds=dict(self._throttled),
        )


class _Mean:
    """Of those values that were told."""

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self._sum, self._count = self._sum + value, self._count + 1

    @property
    def value(self) -> float | None:
        return self._sum / self._count if self._count else None
