"""Between a model and flat vectors, wherever each lies.

On one device a copy element by element is all there is. From a GPU to host vectors the weights are first gathered
into one flat vector on the GPU (one large transfer instead of hundreds of small ones) and sent on a side stream;
who reads the host's copy waits for it first, or would read a torn snapshot.
"""

from __future__ import annotations

import torch

from flodl.engine.averaging.flat import Flat, add
from flodl.engine.averaging.layout import Layout

__all__ = ["Transfer"]


class Transfer:
    """Takes snapshots of a model and writes results back. model_device, flat_device: where the two lie."""

    def __init__(self, layout: Layout, model_device: torch.device, flat_device: torch.device) -> None:
        self._crosses = model_device.type == "cuda" and flat_device.type == "cpu"
        self._gathered = Flat(layout, device=model_device) if self._crosses else None
        self._stream = torch.cuda.Stream(model_device) if self._crosses else None
        self._arrived: torch.cuda.Event | None = None

    def take(self, into: Flat) -> None:
        """Copy the model's values into `into`; complete only after `wait`."""
        if self._gathered is None or self._stream is None:
            into.read()
            return
        self._let_it_leave()
        self._gathered.read()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            into.copy_(self._gathered)
            self._arrived = torch.cuda.Event()
            self._arrived.record(self._stream)

    def wait(self) -> None:
        """Block this thread until the last `take` is complete."""
        if self._arrived is not None:
            self._arrived.synchronize()

    def put(self, source: Flat, *, buffers: bool = True) -> None:
        """Copy values into the model."""
        self._near(source).write(buffers=buffers)

    def put_buffers(self, source: Flat) -> None:
        """Copy only the float buffers into the model."""
        self._near(source).write_buffers()

    @torch.no_grad()
    def add(self, difference: Flat) -> None:
        """Add to the model's parameters: in float32 or better, rounded once."""
        near = self._near(difference)
        add(near.layout.parameters, near.parameter_views)

    def _let_it_leave(self) -> None:
        """Training goes on while a snapshot leaves the GPU; only the next use of the gathered values waits for that."""
        if self._arrived is not None:
            torch.cuda.current_stream().wait_event(self._arrived)

    def _near(self, flat: Flat) -> Flat:
        """The values on the model's own device."""
        if self._gathered is None:
            return flat
        self._let_it_leave()
        self._gathered.copy_(flat)
        torch.cuda.current_stream().synchronize()  # the host's vectors may change as soon as this returns
        return self._gathered
