"""The run's torch.distributed.Store: process groups meet over the encrypted link instead of an open TCPStore.

gloo and NCCL call it from threads of their own and from several at once; so does `RankLink.ask`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import msgspec
from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import Store

from flodl.engine.protocol import Answer, Ask, StoreOp
from flodl.errors import FlodlError

__all__ = ["Asked", "LinkStore"]

ANSWER_SECONDS = 30.0  # what a question that waits for nobody may take
MARGIN_SECONDS = 2.0  # a wait is timed by the controller; the rank's own limit lies behind it


class Asked(Protocol):
    """Who puts a question to the controller: a rank's link."""

    def ask(self, ask: Ask, timeout_seconds: float) -> Answer:
        """Raises TimeoutError, FlodlError; an Answer's own error is the caller's."""
        ...


class LinkStore(Store):
    """Keys under `prefix` in the controller's dictionary. Raises DistStoreError, as c10d's own stores do."""

    def __init__(self, link: Asked, prefix: str = "", timeout: timedelta = timedelta(seconds=300)) -> None:
        super().__init__()
        self._link = link
        self._prefix = prefix
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        self._put(Ask(id=0, op="set", keys=(key,), value=_bytes(value)))

    def get(self, key: str) -> bytes:
        return self._wait_for("get", (key,), self._timeout).value

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        self._wait_for("wait", tuple(keys), timeout if timeout is not None else self._timeout)

    def add(self, key: str, value: int) -> int:
        return self._put(Ask(id=0, op="add", keys=(key,), amount=value)).number

    def append(self, key: str, value: str | bytes) -> None:
        self._put(Ask(id=0, op="append", keys=(key,), value=_bytes(value)))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        ask = Ask(id=0, op="compare_set", keys=(key,), value=_bytes(desired_value), expected=_bytes(expected_value))
        return self._put(ask).value

    def delete_key(self, key: str) -> bool:
        return bool(self._put(Ask(id=0, op="delete", keys=(key,))).number)

    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._put(Ask(id=0, op="check", keys=tuple(keys))).number)

    def num_keys(self) -> int:
        return self._put(Ask(id=0, op="num_keys", keys=("",))).number

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> LinkStore:
        return LinkStore(self._link, self._prefix, self._timeout)

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    @property
    def timeout(self) -> timedelta:
        return self._timeout

    def _wait_for(self, op: StoreOp, keys: tuple[str, ...], timeout: timedelta) -> Answer:
        seconds = timeout.total_seconds()
        ask = Ask(id=0, op=op, keys=keys, timeout_ms=int(seconds * 1000))
        return self._put(ask, seconds + MARGIN_SECONDS)

    def _put(self, ask: Ask, limit_seconds: float = ANSWER_SECONDS) -> Answer:
        ask = msgspec.structs.replace(ask, keys=tuple(self._prefix + key for key in ask.keys))
        try:
            answer = self._link.ask(ask, limit_seconds)
        except (TimeoutError, FlodlError) as error:
            raise DistStoreError(f"store {ask.op}: {error}") from None
        if answer.error:
            raise DistStoreError(f"store {ask.op}: {answer.error}")
        return answer


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
