"""A rank's part in a save: copy at a step's edge, everything else on a thread of its own, while training goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from flodl.decide.messages import BundleKept
from flodl.engine.averaging.layout import unshared
from flodl.engine.bundle import BUFFER, COUNT, EMA, PARAMETER, TrainingState
from flodl.engine.failpoints import reach
from flodl.engine.orders import Link
from flodl.engine.snapshot import Snapshot
from flodl.engine.tensorfile import pieces
from flodl.engine.weights import bare_name
from flodl.errors import FlodlError
from flodl.record.bundle_names import EMA_WEIGHTS_FILE, PLAIN, WEIGHTS_FILE, upload_name

__all__ = ["Saver"]


class Saver:
    """Saves this rank's model. For its training thread; one save goes out at a time, a later one waits for it."""

    def __init__(self, rank: int, link: Link, model: nn.Module, state: TrainingState) -> None:
        self._rank, self._link, self._model, self._state = rank, link, model, state
        self._first = _first_names(model)
        self._thread: threading.Thread | None = None

    def begin(self, round_: int) -> None:
        """Copy what is to be saved, and send it beside training. Raises FlodlError for what cannot be copied."""
        self.wait()
        snapshot = self._state.capture()
        self._thread = threading.Thread(target=self._send_beside, args=(round_, snapshot), name="saving", daemon=True)
        self._thread.start()

    def save(self, round_: int) -> float:
        """Copy and send now; how many bytes. Raises FlodlError with the controller's reason where that fails."""
        self.wait()
        return float(self._send(round_, self._state.capture()))

    def wait(self) -> None:
        """Until the save that is under way has ended."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _send_beside(self, round_: int, snapshot: Snapshot) -> None:
        try:
            self._send(round_, snapshot)
        except Exception as error:  # noqa: BLE001  whatever it is, training goes on and another rank may try
            told = str(error) if isinstance(error, FlodlError) else f"{type(error).__name__}: {error}"
            self._link.send(BundleKept(at=0.0, rank=self._rank, round=round_, error=told))

    def _send(self, round_: int, snapshot: Snapshot) -> int:
        """The model comes last: with it the bundle is whole."""
        snapshot.freeze()
        self._link.upload(WEIGHTS_FILE, self._weights(snapshot.tensor))
        if snapshot.has(EMA + COUNT, "outer"):
            self._link.upload(EMA_WEIGHTS_FILE, self._weights(lambda name: _averaged(snapshot, name)))
        self._link.upload(upload_name(round_, PLAIN), msgspec.json.encode(snapshot.plain))
        reach("save.sending", self._rank)
        for kind in sorted(snapshot.kinds, reverse=True):  # outer before model
            self._link.upload(upload_name(round_, kind), snapshot.chunks(kind))
        return sum(snapshot.num_bytes(kind) for kind in snapshot.kinds)

    def _weights(self, read: Callable[[str], Tensor]) -> Iterator[memoryview]:
        """Weights under the user's own names; tied ones under each of theirs. read: by the name in the bundle."""
        tensors: dict[str, Tensor] = {}
        tied: dict[str, str] = {}
        for given, value in self._model.state_dict(keep_vars=True).items():
            name = bare_name(given)
            first = self._first.get(given)
            if first is None or not isinstance(value, Tensor):
                kind = type(value).__name__
                raise FlodlError(f"weights: {name} is a {kind}; only tensors can be stored without pickle")
            tensors[name] = read(first)
            if first.partition("/")[2] != name:
                tied[name] = first.partition("/")[2]
        return pieces(tensors, {"tied": json.dumps(tied, sort_keys=True)} if tied else {})


def _first_names(model: nn.Module) -> dict[str, str]:
    """Name in the model -> name in the bundle: that of the first tensor which lies in the same place."""
    named: list[tuple[str, str, Tensor]] = [
        *((PARAMETER, name, tensor) for name, tensor in model.named_parameters(remove_duplicate=False)),
        *((BUFFER, name, tensor) for name, tensor in model.named_buffers(remove_duplicate=False)),
    ]
    own = {name for name, _ in unshared([*model.named_parameters(), *model.named_buffers()])}
    places: dict[Any, str] = {_place(tensor): prefix + bare_name(name) for prefix, name, tensor in named if name in own}
    return {name: places.get(_place(tensor), prefix + bare_name(name)) for prefix, name, tensor in named}


def _averaged(snapshot: Snapshot, name: str) -> Tensor:
    """The moving average of a tensor, in the model's own dtype; what is not averaged is the consensus's."""
    own, average = snapshot.tensor(name), EMA + name.partition("/")[2]
    if not snapshot.has(average, "outer"):
        return own
    found = snapshot.tensor(average, "outer")
    return (torch.view_as_complex(found) if own.is_complex() else found).to(own.dtype)


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    return (tensor.device, tensor.data_ptr(), tensor.shape, tensor.dtype) if tensor.numel() else (id(tensor),)
