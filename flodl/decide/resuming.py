"""Going on from a bundle: what must be the same, and what of the old coordinator's state the new one takes over.

Coverage, figures and epochs always go on as they were. With the same ranks every rank gets back what it held, and ElChe
its calibration; with others (or another mode) the work is dealt anew and speeds are measured anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from flodl.decide.messages import Command, Resumed
from flodl.decide.mind import Mind, State, alert, asked
from flodl.decide.stopping import begin_limits
from flodl.errors import Problem
from flodl.spec.component import Component
from flodl.spec.counting import counted
from flodl.spec.job import JobSpec
from flodl.spec.reader import shown

__all__ = ["data_problems", "epochs_done", "go_on", "job_problems", "on_resumed"]


def on_resumed(mind: Mind, event: Resumed) -> list[Command]:
    """The run is to go on from a bundle: kept until all ranks are ready."""
    state = mind.state
    if state.activity != "gathering":
        return []
    state.origin = event
    state.callbacks.kept = event.round
    return []


def job_problems(job: JobSpec, snapshot: dict[str, Any]) -> Iterator[Problem]:
    """What of a job forbids to go on from there: another model, seed or batch; nothing left to do."""
    theirs, own = snapshot["asked"], asked(job)
    for key, value in own.items():
        if key != "pace" and theirs[key] != value:
            yield _other_model(job, theirs[key]) if key == "model" else Problem(
                key=key, value=shown(value), constraint=f"the bundle was saved with {shown(theirs[key])}",
                remedy=f"a run goes on with what it began with: {key}={shown(theirs[key])}")  # fmt: skip
    epochs, done = job.trainer.num_epochs, epochs_done(snapshot)
    if done >= epochs:
        are_done = f"{counted(done, 'epoch')} {'is' if done == 1 else 'are'} done"
        more = f"trainer.num_epochs={done + epochs}"
        yield Problem(key="trainer.num_epochs", value=str(epochs), constraint=f"nothing is left to do: {are_done}",
                      remedy=f"name how many are to be done in all, such as {more}")  # fmt: skip


def epochs_done(snapshot: Mapping[str, Any]) -> int:
    """How many epochs were done when it was taken."""
    return len(snapshot.get("state", {}).get("epochs_ended", ()))


def _other_model(job: JobSpec, theirs: str) -> Problem:
    """A model is no word that is typed: of a class there is no choice of that name, and some live in a program."""
    there = "a model that lived in its program" if Component(target=theirs).is_live else theirs
    return Problem(key="model", value=job.model.name, constraint=f"the bundle was saved with {there}",
                   remedy="a run goes on with the model that it began with: task=resume has it where none is typed, a "
                   "program hands in the same")  # fmt: skip


def data_problems(mind: Mind, snapshot: dict[str, Any]) -> Iterator[Problem]:
    """The first difference between the data that the ranks have and that of the bundle."""
    old = _state_of(snapshot)
    before = old.readies[min(old.readies)]
    ready = mind.state.readies[mind.alive[0]]
    for what, there, here in (
        ("samples", before.num_samples, ready.num_samples),
        ("a hash of its samples", before.data_signature, ready.data_signature),
    ):
        if there != here:
            yield Problem(key="dataset", constraint=f"is another one: the bundle was saved with {what} {there}, this "
                          f"has {here}", remedy="a run goes on with the data that it began with")  # fmt: skip
            return


def go_on(mind: Mind, event: Resumed, at: float) -> list[Command]:
    """All ranks hold the bundle's weights: take over what its coordinator knew."""
    state, old = mind.state, _state_of(event.snapshot)
    is_same = _has_same_ranks(mind, old)
    keeps_pace = is_same and event.snapshot["asked"]["pace"] == asked(mind.job)["pace"]
    if keeps_pace:
        mind.pace.restore(event.snapshot["pace"])
    else:
        mind.pace.restart(mind.alive)
    ledger = state.ledger
    sizes = (ledger.epoch_samples, ledger.num_epochs)
    state.ledger = old.ledger
    state.ledger.epoch_samples, state.ledger.num_epochs = sizes
    state.ledger.void_trained()  # the bundle's weights hold accepted rounds alone
    if not is_same:
        for rank in list(old.ledger.held):
            state.ledger.reclaim(rank)
        old.tally.ranks = {}
    state.tally, state.intervals, state.epochs_ended = old.tally, old.intervals, old.epochs_ended
    state.accepted, state.origin = old.accepted, None
    _take_over_roles(mind, old, at)
    state.tally.go_on(at)
    begin_limits(mind, at)
    state.stopping.best, state.stopping.stale = old.stopping.best, old.stopping.stale
    how = "each rank has back what it held" if is_same else "other ranks: work is dealt anew, speeds are measured anew"
    text = f"going on from {event.origin}: round {event.round}, {state.ledger.samples_done} samples are done"
    return [alert(text, how)]


def _take_over_roles(mind: Mind, old: State, at: float) -> None:
    callbacks = mind.state.callbacks
    callbacks.rank = old.callbacks.rank if old.callbacks.rank in mind.alive else None
    callbacks.eval_due, callbacks.midway = old.callbacks.eval_due, old.callbacks.midway
    callbacks.eval_ms, callbacks.results = old.callbacks.eval_ms, old.callbacks.results
    callbacks.evaluated_at = callbacks.saved_at = at


def _has_same_ranks(mind: Mind, old: State) -> bool:
    """The same ranks are there, each with its batch size."""
    if old.membership.alive != list(mind.alive):
        return False
    return all(old.readies[rank].batch_size == size for rank, size in mind.batch_sizes().items())


def _state_of(snapshot: dict[str, Any]) -> State:
    return msgspec.convert(snapshot["state"], State, str_keys=True)
