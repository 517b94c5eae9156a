"""Callback roles: which rank evaluates and saves, what is due, and what came of it.

The fastest rank does it (lowest smoothed ms after the first calibration) or the rank that the user named; the role is
sticky and moves only on a death. A failed evaluation is reported and training goes on; a failed save is tried on the
next fastest rank that has not tried yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from flodl.decide.messages import CallbackResult
from flodl.spec.checkpoint import SaveReason

__all__ = ["Callbacks", "Speeds"]

Speeds = Callable[[], Mapping[int, float | None]]  # smoothed ms per batch by rank, None unknown; asked when needed

_REMEMBERED = 3  # durations that the slack is the mean of


class Callbacks(msgspec.Struct, kw_only=True):
    """rank: holds the role. eval_due: epoch whose evaluation waits for the next window. running: epoch that is being
    evaluated, by rank `runner`. tried: ranks that have tried the final save. saved: it worked. released: everybody
    may leave. results: newest evaluation. evaluated_at: when the newest one was ordered. midway: it is due within its
    epoch, not at its end. save_due: why a save waits for the next order. saving: the round that `saver` is saving.
    unheard: rank and round of the newest save, until word of it has come, whoever is gone.
    save_tried: ranks whose save has failed since. kept: newest round whose bundle is whole. saved_at: when the newest
    save became due. why: what the last save is for, where the end is no ordinary one. leaving: who may go. leave_by:
    when they must be gone at the latest, and what they save be in place."""

    rank: int | None = None
    eval_due: int | None = None
    running: int | None = None
    runner: int | None = None
    tried: list[int] = []
    saved: bool = False
    released: bool = False
    eval_ms: list[float] = []
    results: dict[str, float] = {}
    evaluated_at: float = 0.0
    midway: bool = False
    save_due: SaveReason | None = None
    saving: int | None = None
    saver: int | None = None
    unheard: tuple[int, int] | None = None
    save_tried: list[int] = []
    kept: int | None = None
    saved_at: float = 0.0
    why: SaveReason | None = None
    leaving: list[int] = []
    leave_by: float | None = None

    def elect(self, policy: Literal["fastest"] | int, alive: Sequence[int], speeds: Speeds) -> int:
        """The rank with the role; elects where there is none or it is gone. Before any timing nobody keeps it."""
        if self.rank is not None and self.rank in alive:
            return self.rank
        ms = speeds()
        chosen = policy if policy in alive and isinstance(policy, int) else _by_speed(alive, ms)[0]
        self.rank = chosen if chosen == policy or any(ms.get(rank) is not None for rank in alive) else None
        return chosen

    def next_saver(self, alive: Sequence[int], speeds: Speeds, tried: Sequence[int] | None = None) -> int | None:
        """The rank that tries a save now: the role's, else the fastest not in `tried` (None: of the last save)."""
        tried = self.tried if tried is None else tried
        order = _by_speed(alive, speeds())
        if self.rank in order:
            order = [self.rank, *order]
        return next((rank for rank in order if rank not in tried), None)

    def begin_eval(self, rank: int, epoch: int | None = None) -> None:
        """`rank` is told to evaluate `epoch`, or the one that is due."""
        self.running, self.runner, self.eval_due = self.eval_due if epoch is None else epoch, rank, None

    def lose(self, rank: int) -> str:
        """`rank` died. Returns what is lost with it, in words; "" for nothing. Its save is due once more."""
        if self.saver == rank and self.saving is not None:
            self.saving, self.saver, self.save_due = None, None, self.save_due or "checkpoint"
        if self.runner != rank or self.running is None:
            return ""
        epoch, self.running, self.runner = self.running, None, None
        return f"the evaluation {_of(epoch)} is lost with rank {rank}"

    @property
    def is_idle(self) -> bool:
        """No save is due or under way."""
        return self.save_due is None and self.saving is None

    @property
    def slack_ms(self) -> float:
        """What an evaluation is expected to take."""
        return sum(self.eval_ms) / len(self.eval_ms) if self.eval_ms else 0.0

    def take(self, result: CallbackResult) -> str:
        """Note what came of a callback. Returns what a person should know, "" where all is well."""
        if result.name == "save":
            return "" if result.ok else f"saving failed: {result.error}"
        epoch = self.running if result.epoch < 0 else result.epoch
        self.running = self.runner = None
        self.eval_ms = [*self.eval_ms, result.seconds * 1000.0][-_REMEMBERED:]
        if result.ok:
            self.results = dict(result.values)
            return ""
        return f"the evaluation {_of(epoch)} failed: {result.error}"


def _of(epoch: int | None) -> str:
    """For people, who count epochs from 1."""
    return "at the end" if epoch is None else f"of epoch {epoch + 1}"


def _by_speed(alive: Sequence[int], ms: Mapping[int, float | None]) -> list[int]:
    """Fastest first; ranks without a reading come last, the lower of equals first."""

    def key(rank: int) -> tuple[bool, float, int]:
        known = ms.get(rank)
        return known is None, known or 0.0, rank

    return sorted(alive, key=key)
