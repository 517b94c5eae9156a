"""How long steps take, and the rehearsal's brake.

On a GPU the host only launches work, so steps are timed by events on the stream and read when the window ends: a
sync per batch would cost what it measures. A throttled step is waited for and followed by a sleep, counted as compute;
not the first one, which is mostly set-up (kernels, allocator, torch.compile), and that a slower device is no slower at.
"""

from __future__ import annotations

import time

import torch

__all__ = ["Pace"]


class Pace:
    """Times one device's steps. speed: below 1 each step but the first is followed by a sleep of (1/speed - 1) x its
    own time."""

    def __init__(self, device: torch.device, speed: float = 1.0) -> None:
        self._cuda = device.type == "cuda"
        self._brake = 1.0 / speed - 1.0
        self._done: list[float] = []
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event, float]] = []
        self._began = 0.0
        self._has_set_up = False
        self._first: torch.cuda.Event | None = None

    def begin(self) -> None:
        """A step starts."""
        self._began = time.perf_counter()
        if self._cuda:
            self._first = torch.cuda.Event(enable_timing=True)
            self._first.record()

    def end(self) -> None:
        """The step is launched (on a GPU) or done."""
        brake = self._brake if self._has_set_up else 0.0
        self._has_set_up = True
        if self._cuda and self._first is not None:
            last = torch.cuda.Event(enable_timing=True)
            last.record()
            slept = 0.0
            if brake > 0:
                last.synchronize()
                slept = self._sleep((time.perf_counter() - self._began) * brake)
            self._events.append((self._first, last, slept))
            return
        took = time.perf_counter() - self._began
        self._done.append((took + (self._sleep(took * brake) if brake > 0 else 0.0)) * 1000)

    def is_busy(self) -> bool:
        """Whether a GPU has launched steps left to run: what the host waits for meanwhile holds nothing up."""
        return bool(self._events) and not self._events[-1][1].query()

    def drain(self) -> None:
        """Wait until the launched steps have run: what the host waits for from here on is not their compute."""
        if self._events:
            self._events[-1][1].synchronize()

    def take(self) -> list[float]:
        """Milliseconds of the steps since the last call; on a GPU waits until they have run."""
        if self._events:
            self.drain()
            self._done += [first.elapsed_time(last) + slept * 1000 for first, last, slept in self._events]
            self._events.clear()
        done, self._done = self._done, []
        return done

    @staticmethod
    def _sleep(seconds: float) -> float:
        before = time.perf_counter()
        time.sleep(seconds)
        return time.perf_counter() - before
