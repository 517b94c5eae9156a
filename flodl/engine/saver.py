"""A rank's part in a save: copy at a step's edge, everything else on a thread of its own, while training goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import msgspec
from torch import Tensor, nn

from flodl.decide.messages import BundleKept
from flodl.engine.averaging.layout import unshared
from flodl.engine.bundle import TrainingState
from flodl.engine.failpoints import reach
from flodl.engine.orders import Link
from flodl.engine.snapshot import Snapshot
from flodl.engine.tensorfile import row_of
from flodl.engine.weights import bare_name
from flodl.errors import FlodlError, in_words
from flodl.record.bundle_names import PLAIN, upload_name
from flodl.record.tensor_header import Row
from flodl.record.weights import SHOWN, Shown

__all__ = ["Saver"]


class Saver:
    """Saves this rank's model. For its training thread; one save goes out at a time, a later one waits for it."""

    def __init__(self, rank: int, link: Link, model: nn.Module, state: TrainingState) -> None:
        self._rank, self._link, self._model, self._state = rank, link, model, state
        self._thread: threading.Thread | None = None

    def begin(self, round_: int) -> None:
        """Copy what is to be saved, and send it beside training. Raises FlodlError for what cannot be copied."""
        self.wait()
        snapshot = self._captured()
        self._thread = threading.Thread(target=self._send_beside, args=(round_, snapshot), name="saving", daemon=True)
        self._thread.start()

    def save(self, round_: int) -> None:
        """Copy and send now. Raises FlodlError with the controller's reason where that fails."""
        self.wait()
        self._send(round_, self._captured())

    def wait(self) -> None:
        """Until the save that is under way has ended."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _captured(self) -> Snapshot:
        _ = self._head  # what cannot be weights for people is told before anything is copied
        return self._state.capture()

    def _send_beside(self, round_: int, snapshot: Snapshot) -> None:
        try:
            self._send(round_, snapshot)
        except Exception as error:  # noqa: BLE001  whatever it is, training goes on and another rank may try
            with contextlib.suppress(FlodlError):  # of a rank that is ending: why, others have said
                self._link.send(BundleKept(at=0.0, rank=self._rank, round=round_, error=in_words(error)))

    def _send(self, round_: int, snapshot: Snapshot) -> None:
        snapshot.freeze()
        self._link.upload(self._files(round_, snapshot))
        self._state.copier.reuse(snapshot)

    def _files(self, round_: int, snapshot: Snapshot) -> Iterator[tuple[str, Iterable[memoryview]]]:
        """The model comes last: with it the bundle is whole."""
        yield upload_name(round_, PLAIN), (memoryview(msgspec.json.encode(snapshot.plain)),)
        reach("save.sending", self._rank)
        for kind in sorted(snapshot.kinds, reverse=True):  # outer before model
            yield upload_name(round_, kind), snapshot.chunks(kind, self._head if kind == "model" else None)

    @cached_property
    def _head(self) -> dict[str, str]:
        """What the model's file says of the weights in it. Raises FlodlError for a state_dict that it cannot give."""
        return {SHOWN: msgspec.json.encode(_shown(self._model)).decode()}


def _shown(model: nn.Module) -> Shown:
    """How the user's own state_dict comes out of a bundle, which holds tied tensors once."""
    held = {bare_name(name) for name, _ in unshared([*model.named_parameters(), *model.named_buffers()])}
    firsts = _first_names(model, held)
    tied: dict[str, str] = {}
    empty: dict[str, Row] = {}
    names: set[str] = set()
    for given, value in model.state_dict(keep_vars=True).items():
        name, first = bare_name(given), firsts.get(bare_name(given))
        if first is None or not isinstance(value, Tensor):
            kind = type(value).__name__
            raise FlodlError(f"weights: {name} is a {kind}; only tensors can be stored without pickle")
        names.add(name)
        if not value.numel():
            empty[name] = row_of(name, value)
        elif first not in held:
            raise FlodlError(f"weights: {name} is a part of another tensor's memory; clone it, or tie it whole")
        elif first != name:
            tied[name] = first
    return Shown(tied=dict(sorted(tied.items())), empty=empty, aside=tuple(sorted(held - names)))


def _first_names(model: nn.Module, held: set[str]) -> dict[str, str]:
    """Name in the model -> the held name of the tensor which lies in the same place."""
    named = [
        (bare_name(name), tensor)
        for tensors in (model.named_parameters, model.named_buffers)
        for name, tensor in tensors(remove_duplicate=False)
    ]
    places: dict[Any, str] = {_place(tensor): name for name, tensor in named if name in held}
    return {name: places.get(_place(tensor), name) for name, tensor in named}


def _place(tensor: Tensor) -> tuple[object, ...]:
    return (tensor.device, tensor.data_ptr(), tensor.shape, tensor.dtype) if tensor.numel() else (id(tensor),)
