"""The controller's side of the rendezvous store: a plain dictionary and those who wait for a key.

Pure: who asks is an opaque value, time is told, answers are returned. Rank processes reach it through
`engine.store.LinkStore`; process groups of a generation meet in it under that generation's prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

import msgspec

from flodl.engine.protocol import Answer, Ask

__all__ = ["KeyValue", "Reply"]

LIMIT_BYTES: Final = 64 << 20  # rendezvous keys are addresses and identifiers: kilobytes


class Reply(msgspec.Struct, frozen=True):
    """An answer and to whom it goes."""

    to: Hashable
    answer: Answer


class _Waiter(msgspec.Struct, frozen=True):
    who: Hashable
    ask: Ask
    until: float


class KeyValue:
    """Values by key. `ask` answers at once or keeps the question until its keys are there or its time is over."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._bytes = 0
        self._waiters: list[_Waiter] = []
        self._over: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self._values)

    def ask(self, who: Hashable, ask: Ask, now: float) -> list[Reply]:
        """Everything that can be answered after this question; now: seconds of a monotonic clock."""
        if any(key.startswith(self._over) for key in ask.keys):
            return [Reply(who, _superseded(ask))]
        if ask.op in ("get", "wait") and not self._has(ask.keys):
            self._waiters.append(_Waiter(who, ask, now + ask.timeout_ms / 1000))
            return []
        try:
            replies = [Reply(who, self._answer(ask))]
        except (ValueError, IndexError) as error:
            return [Reply(who, Answer(id=ask.id, error=str(error) or "malformed question"))]
        if ask.op in ("set", "add", "append", "compare_set"):
            replies += self._release()
        return replies

    def expire(self, now: float) -> list[Reply]:
        """Answers to those whose time is over."""
        late = self._drop(lambda waiter: waiter.until <= now)
        return [Reply(w.who, Answer(id=w.ask.id, error=f"timed out: {', '.join(w.ask.keys)}")) for w in late]

    def forget(self, prefix: str) -> list[Reply]:
        """Drop all keys with this prefix for good: whoever waits for one, or will ask for one, is sent home."""
        self._over = (*self._over, prefix)
        for key in [key for key in self._values if key.startswith(prefix)]:
            self._remove(key)
        gone = self._drop(lambda waiter: any(key.startswith(prefix) for key in waiter.ask.keys))
        return [Reply(waiter.who, _superseded(waiter.ask)) for waiter in gone]

    def _drop(self, over: Callable[[_Waiter], bool]) -> list[_Waiter]:
        dropped = [waiter for waiter in self._waiters if over(waiter)]
        self._waiters = [waiter for waiter in self._waiters if not over(waiter)]
        return dropped

    def _release(self) -> list[Reply]:
        ready = [waiter for waiter in self._waiters if self._has(waiter.ask.keys)]
        if ready:
            self._waiters = [waiter for waiter in self._waiters if not self._has(waiter.ask.keys)]
        return [Reply(waiter.who, self._answer(waiter.ask)) for waiter in ready]

    def _has(self, keys: tuple[str, ...]) -> bool:
        return all(key in self._values for key in keys)

    def _answer(self, ask: Ask) -> Answer:
        return _OPS[ask.op](self, ask)

    # ------------------------------------------------------------------------------------------ the operations

    def _ping(self, ask: Ask) -> Answer:
        return Answer(id=ask.id)

    def _set(self, ask: Ask) -> Answer:
        self._put(ask.keys[0], ask.value)
        return Answer(id=ask.id)

    def _get(self, ask: Ask) -> Answer:
        return Answer(id=ask.id, value=self._values[ask.keys[0]])

    def _wait(self, ask: Ask) -> Answer:
        return Answer(id=ask.id)

    def _add(self, ask: Ask) -> Answer:
        number = int(self._values.get(ask.keys[0], b"0")) + ask.amount
        self._put(ask.keys[0], str(number).encode("ascii"))
        return Answer(id=ask.id, number=number)

    def _append(self, ask: Ask) -> Answer:
        self._put(ask.keys[0], self._values.get(ask.keys[0], b"") + ask.value)
        return Answer(id=ask.id)

    def _compare_set(self, ask: Ask) -> Answer:
        """As c10d has it: an absent key is set when nothing is expected; the value that then stands is returned."""
        key = ask.keys[0]
        present = self._values.get(key)
        if present == ask.expected or (present is None and not ask.expected):
            self._put(key, ask.value)
        return Answer(id=ask.id, value=self._values.get(key, ask.expected))

    def _delete(self, ask: Ask) -> Answer:
        return Answer(id=ask.id, number=int(self._remove(ask.keys[0])))

    def _check(self, ask: Ask) -> Answer:
        return Answer(id=ask.id, number=int(self._has(ask.keys)))

    def _num_keys(self, ask: Ask) -> Answer:
        prefix = ask.keys[0] if ask.keys else ""
        return Answer(id=ask.id, number=sum(key.startswith(prefix) for key in self._values))

    def _put(self, key: str, value: bytes) -> None:
        self._remove(key)
        size = len(key) + len(value)
        if self._bytes + size > LIMIT_BYTES:
            raise ValueError(f"the run's store is full ({LIMIT_BYTES} bytes): it is for rendezvous, not for data")
        self._values[key] = value
        self._bytes += size

    def _remove(self, key: str) -> bool:
        value = self._values.pop(key, None)
        if value is None:
            return False
        self._bytes -= len(key) + len(value)
        return True


def _superseded(ask: Ask) -> Answer:
    return Answer(id=ask.id, error=f"superseded: {', '.join(ask.keys)}")


_OPS: Final[dict[str, Callable[[KeyValue, Ask], Answer]]] = {
    "ping": KeyValue._ping,
    "set": KeyValue._set,
    "get": KeyValue._get,
    "wait": KeyValue._wait,
    "add": KeyValue._add,
    "append": KeyValue._append,
    "compare_set": KeyValue._compare_set,
    "delete": KeyValue._delete,
    "check": KeyValue._check,
    "num_keys": KeyValue._num_keys,
}
