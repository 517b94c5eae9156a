"""Between a model and flat vectors, wherever each lies.

On one device a copy element by element is all there is. From a GPU to host vectors the weights are first gathered
into one flat vector on the GPU (one large transfer instead of hundreds of small ones) and sent on a side stream;
who reads the host's copy waits for it first, or would read a torn snapshot.
"""

from __future__ import annotations

import torch

from flodl.engine.averaging.flat import Flat, add, copy_vectors
from flodl.engine.averaging.layout import Layout

__all__ = ["Transfer"]


class Transfer:
    """Takes snapshots of a model and writes results back. model_device, flat_device: where the two lie."""

    def __init__(self, layout: Layout, model_device: torch.device, flat_device: torch.device) -> None:
        self._crosses = model_device.type == "cuda" and flat_device.type == "cpu"
        self._gathered = Flat(layout, device=model_device) if self._crosses else None
        self._stream = torch.cuda.Stream(model_device) if self._crosses else None
        self._arrived: torch.cuda.Event | None = None
        self._used: torch.cuda.Event | None = None
        self._mark_use()

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

    def put(self, parameters: Flat, buffers: Flat | None = None) -> None:
        """Copy values into the model. buffers: whence the float buffers, if not from `parameters`, too."""
        here, beside = self._near(parameters, buffers or parameters)
        here.write_parameters()
        beside.write_buffers()
        self._mark_use()

    def put_buffers(self, source: Flat) -> None:
        """Copy only the float buffers into the model."""
        self._near(None, source)[1].write_buffers()
        self._mark_use()

    @torch.no_grad()
    def add(self, difference: Flat, buffers: Flat) -> None:
        """Add to the model's parameters, in float32 or better and rounded once; copy its float buffers."""
        here, beside = self._near(difference, buffers)
        add(here.layout.parameters, here.parameter_views)
        beside.write_buffers()
        self._mark_use()

    def _let_it_leave(self) -> None:
        """Training goes on while a snapshot leaves the GPU; only the next use of the gathered values waits for that."""
        if self._arrived is not None:
            torch.cuda.current_stream().wait_event(self._arrived)

    def _mark_use(self) -> None:
        """What comes from the host next must not overtake what the model's stream does with the gathered values."""
        if self._crosses:
            self._used = torch.cuda.Event()
            self._used.record()

    def _near(self, parameters: Flat | None, buffers: Flat) -> tuple[Flat, Flat]:
        """(parameters, buffers) on the model's own device; without parameters the first is of no use.

        They come on the side stream, both at once, and this thread waits for them alone (the host's vectors may change
        as soon as this returns): waiting for what the model's stream has queued, which may be several batches, would
        be taken for the price of an averaging.
        """
        if self._gathered is None or self._stream is None:
            return parameters or buffers, buffers
        if self._used is not None:
            self._stream.wait_event(self._used)
        with torch.cuda.stream(self._stream):
            if parameters is not None:
                copy_vectors(self._gathered.parameters, parameters.parameters)
            copy_vectors(self._gathered.buffers, buffers.buffers)
            came = torch.cuda.Event()
            came.record(self._stream)
        torch.cuda.current_stream().wait_event(came)
        came.synchronize()
        return self._gathered, self._gathered
