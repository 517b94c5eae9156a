"""The one mind: facts in, orders out. It never asks the time, never logs, and treats every late or doubled word kindly.

Which part answers which event is a table; an event that fits nothing (an older generation or round, an unknown rank,
a run that is over) is answered with no orders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flodl.decide.finishing import on_bundle_kept, on_goodbye
from flodl.decide.gathering import on_first_group, on_loss_before_start, on_ready
from flodl.decide.messages import (
    AveragingDone,
    BundleKept,
    Command,
    EndBy,
    Event,
    Goodbye,
    GroupFormed,
    RankDied,
    RankFailed,
    RankReady,
    RankSuspected,
    Resumed,
    StopRequested,
    TimeReached,
    WindowDone,
)
from flodl.decide.mind import Mind
from flodl.decide.recovery import on_death, on_group_formed, on_stall, on_suspected, stalls_at
from flodl.decide.replacements import (
    on_joined,
    on_late_joiners,
    on_replacement,
    on_replacement_lost,
    on_restarts,
    restarts_at,
)
from flodl.decide.resuming import on_resumed
from flodl.decide.roster import Place
from flodl.decide.stopping import on_end_by
from flodl.decide.totals import RunTotals
from flodl.decide.training import on_averaging_done, on_stop, on_time, on_window_done
from flodl.decide.view import View, view_of
from flodl.spec.job import JobSpec

__all__ = ["Coordinator"]


class Coordinator:
    """Decides a run. The same class runs live, in virtual time and over a journal."""

    def __init__(self, job: JobSpec, roster: Sequence[Place]) -> None:
        """job: with a resolved mode. roster: all ranks, numbered from 0."""
        self._mind = Mind(job, roster)

    def handle(self, event: Event) -> tuple[Command, ...]:
        """What follows from `event`: orders in the order in which they are to be carried out, each with its reason."""
        if self.over:
            return ()
        told = [command for on_clock in _CLOCK for command in on_clock(self._mind, event.at)]
        return tuple(told if self.over else [*told, *_TABLE[type(event)](self._mind, event)])

    @property
    def deadline(self) -> float | None:
        """When `TimeReached` is due unless another event tells the time before, by the clock of events; None: never."""
        state = self._mind.state
        if state.activity == "over":
            return None
        has_stopped = state.stop is not None or state.activity == "finishing"
        dues = (stalls_at(self._mind), restarts_at(self._mind), None if has_stopped else state.stopping.due)
        return min((due for due in dues if due is not None), default=None)

    @property
    def over(self) -> bool:
        """True after `End`."""
        return self._mind.state.activity == "over"

    def view(self) -> View:
        """What a person wants to see of the run now."""
        return view_of(self._mind)

    def totals(self) -> RunTotals:
        """What the run adds up to so far: of one that ends at once nobody says `End`."""
        return self._mind.totals()

    def audit(self) -> tuple[int, int]:
        """(lost, dup) of the ledger: both are 0 after every event."""
        return self._mind.state.ledger.audit()

    def snapshot(self) -> dict[str, Any]:
        """Plain, JSON-able state: all that `restore` needs to answer as this mind would."""
        return self._mind.snapshot()

    @property
    def fixed(self) -> dict[str, Any]:
        """What was known when the newest save was ordered: it goes into the bundle."""
        return self._mind.fixed

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take over the snapshot of a coordinator of the same job and roster."""
        self._mind.restore(snapshot)


def _on_group(mind: Mind, event: GroupFormed) -> list[Command]:
    if event.generation != mind.state.generation or event.rank not in mind.alive:
        return []
    if mind.state.activity == "forming":
        return on_first_group(mind, event)
    if mind.state.activity == "joining":
        return on_joined(mind, event)
    return on_group_formed(mind, event) if mind.state.activity in ("recovering", "repairing") else []


def _on_ready(mind: Mind, event: RankReady) -> list[Command]:
    return on_ready(mind, event) if mind.state.activity == "gathering" else on_replacement(mind, event)


def _on_loss(mind: Mind, event: RankDied | RankFailed) -> list[Command]:
    if mind.state.activity in ("gathering", "forming"):
        return on_loss_before_start(mind, event)
    membership = mind.state.membership
    if event.incarnation != membership.incarnation(event.rank):
        return []  # of a process that was replaced
    return (on_replacement_lost if event.rank in membership.awaited else on_death)(mind, event)


def _on_time_reached(mind: Mind, event: TimeReached) -> list[Command]:
    return []  # every event tells the time: on_time has judged it


_CLOCK = (on_late_joiners, on_stall, on_restarts, on_time)  # what the time that any event tells may make due

_TABLE: dict[type, Callable[[Mind, Any], list[Command]]] = {
    RankReady: _on_ready,
    GroupFormed: _on_group,
    WindowDone: on_window_done,
    AveragingDone: on_averaging_done,
    Goodbye: on_goodbye,
    RankDied: _on_loss,
    RankSuspected: on_suspected,
    RankFailed: _on_loss,
    BundleKept: on_bundle_kept,
    Resumed: on_resumed,
    StopRequested: on_stop,
    TimeReached: _on_time_reached,
    EndBy: on_end_by,
}
