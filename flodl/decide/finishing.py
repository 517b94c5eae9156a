"""The end: the callback rank evaluates and saves, then everybody says goodbye.

The rank that saves goes first; the others leave when the bundle is in place, so that a failed save (or a death) can be
tried again on the next fastest rank. After a clean end nobody waits for a goodbye that a dead rank owes, and for one
that a rank owes which hangs no longer than a limit: the run ends with what is whole.
"""

from __future__ import annotations

from flodl.decide.messages import BundleKept, CallbackName, Command, Finish, Goodbye, StopRequested
from flodl.decide.mind import Mind, alert
from flodl.decide.rejoin import dismiss_awaited
from flodl.decide.saving import begin_save, failure_code, note_kept, save_failed
from flodl.spec.checkpoint import SaveReason
from flodl.spec.counting import all_are

__all__ = [
    "begin_finish",
    "end_alone",
    "end_before_start",
    "on_bundle_kept",
    "on_death_at_end",
    "on_goodbye",
    "on_lingering",
    "release_by",
]

_EXIT_RESUMABLE = 75
_EXIT_INTERRUPTED = 130


def begin_finish(mind: Mind, reason: str, at: float) -> list[Command]:
    """Training is over."""
    state = mind.state
    state.activity = "finishing"
    state.order = None
    return [*dismiss_awaited(mind), *_ask_saver(mind, reason, at)]


def _ask_saver(mind: Mind, reason: str, at: float) -> list[Command]:
    """Send the rank that evaluates and saves off, or, when all have tried, everybody."""
    state = mind.state
    callbacks = state.callbacks
    saver = callbacks.next_saver(mind.alive, mind.speeds, callbacks.tried)
    if saver is None:
        return _release(mind, reason, at)
    wants_eval = _wants_eval(mind)
    begun = begin_save(mind, saver, _why(mind), evaluates=wants_eval)
    names: tuple[CallbackName, ...] = ("save",)
    if wants_eval:
        names = ("eval", "save")
        callbacks.begin_eval(saver, epoch=state.ledger.newest)
    callbacks.tried.append(saver)
    return [begun, _leave(mind, (saver,), names, reason, at)]


def _wants_eval(mind: Mind) -> bool:
    """The first saver evaluates, where that is asked for; the next one too where the first took it along."""
    callbacks = mind.state.callbacks
    if not callbacks.tried:
        return mind.job.eval.at_end or callbacks.eval_due is not None
    return callbacks.running is not None and callbacks.runner in mind.state.membership.dead


def _leave(mind: Mind, ranks: tuple[int, ...], names: tuple[CallbackName, ...], reason: str, at: float) -> Finish:
    """These may go, within what their callbacks may take and an averaging beside that."""
    callbacks, limits = mind.state.callbacks, mind.limits
    callbacks.leaving = list(ranks)
    callbacks.leave_by = at + limits.collective + (limits.callback if names else 0.0)
    return Finish(to=ranks, callbacks=names, epoch=mind.state.ledger.newest, reason=reason)


def _why(mind: Mind) -> SaveReason:
    """What the last save is for."""
    state = mind.state
    if state.callbacks.why is not None:
        return state.callbacks.why
    if state.failure:
        return "nonfinite"
    if state.stop is None or state.ledger.epoch is None:
        return "final"
    return "interrupted" if state.stop.status == "interrupted" else "graceful_shutdown"


def _release(mind: Mind, reason: str, at: float) -> list[Command]:
    """Everybody who is left may go."""
    if not mind.alive:
        return end_alone(mind, at)
    everywhere: tuple[CallbackName, ...] = ("eval",) if mind.job.debug.eval_everywhere else ()
    return [_leave(mind, mind.alive, everywhere, reason, at)]


def on_goodbye(mind: Mind, event: Goodbye) -> list[Command]:
    """A rank has left in order; a goodbye is never counted as a death."""
    state = mind.state
    if state.activity != "finishing" or not state.membership.leave(event.rank):
        return []
    told: list[Command] = []
    for result in event.callbacks:
        problem = state.callbacks.take(result)
        if problem and result.name == "eval" and mind.job.debug.eval_everywhere:
            state.failure = state.failure or f"{mind.name(event.rank)}: {problem}"
        if problem:
            told.append(alert(f"{mind.name(event.rank)}: {problem}", "another rank tries where it can", event.rank))
        if result.name == "save" and not result.ok:
            state.callbacks.saving = state.callbacks.unheard = None
    return [*told, *_go_on(mind, event.rank, event.at)]


def on_death_at_end(mind: Mind, rank: int, at: float) -> list[Command]:
    """A rank died on its way out: whatever it had to save is saved by the next."""
    cause, callbacks = mind.state.membership.causes[rank], mind.state.callbacks
    if callbacks.saver == rank:
        callbacks.saving = None
    told = alert(f"{cause}, while leaving", "all ranks hold the same consensus", rank)
    return [told, *_go_on(mind, rank, at)]


def on_bundle_kept(mind: Mind, event: BundleKept) -> list[Command]:
    """What came of a save: at the end the others have waited for it. Whoever has sent it, and be it late: where it
    is of the last round the weights are saved."""
    state = mind.state
    told = note_kept(mind, event)
    is_end = state.activity == "finishing"
    if is_end and not event.error and event.round == state.accepted:
        state.callbacks.saved = True
    if told is None:
        was_last = is_end and not mind.alive and state.callbacks.saving is None
        return _end(mind) if was_last and state.callbacks.unheard is None else []
    if not is_end:
        return told
    return told if event.rank in mind.alive else [*told, *_go_on(mind, event.rank, event.at)]


def release_by(mind: Mind) -> float | None:
    """When those who may go must be gone, and a save that they have sent in place; None: a debugger has the time."""
    return None if mind.job.debug.inprocess else mind.state.callbacks.leave_by


def on_lingering(mind: Mind, at: float) -> list[Command]:
    """The limit has passed: who should be gone is given up, and so is a save of which nothing more is heard."""
    callbacks, due = mind.state.callbacks, release_by(mind)
    if due is None or at < due:
        return []
    callbacks.leave_by = None
    if not mind.alive and callbacks.saving is None:
        return _end(mind)
    late = [rank for rank in callbacks.leaving if rank in mind.alive]
    told: list[Command] = []
    for rank in late:
        mind.state.membership.die(rank, f"{mind.name(rank)}: did not leave in time when the run was over")
        told += on_death_at_end(mind, rank, at)
    if late or callbacks.saving is None or callbacks.saver is None:
        return told
    saver = callbacks.saver
    told.append(save_failed(mind, saver, "nothing was heard of it in time"))
    return [*told, *_go_on(mind, saver, at)]


def _go_on(mind: Mind, rank: int, at: float) -> list[Command]:
    """`rank` is gone. The saver's leaving, and word of its bundle, let the others go, or have the next one save. That
    word is waited for when nobody is left, too."""
    callbacks = mind.state.callbacks
    was_saver = callbacks.tried[-1:] == [rank] and not callbacks.released
    if was_saver:
        if callbacks.saving is not None:
            return []
        if callbacks.saved:
            callbacks.released = True
            return _release(mind, "the weights are saved", at)
        following = callbacks.next_saver(mind.alive, mind.speeds, callbacks.tried)
        callbacks.released = following is None
        return _ask_saver(mind, f"{mind.name(rank)} could not save the weights", at)
    return end_alone(mind, at) if not mind.alive else []


def end_alone(mind: Mind, at: float) -> list[Command]:
    """Nobody is left: the run ends, once it is known whether the bundle that somebody sent before is there."""
    callbacks = mind.state.callbacks
    if callbacks.saved or callbacks.unheard is None:
        return _end(mind)
    mind.state.activity = "finishing"
    callbacks.leave_by = at + mind.limits.collective
    return []


def _end(mind: Mind) -> list[Command]:
    """The last rank is gone: how the run ended."""
    state = mind.state
    if state.failure:
        return mind.end("failed", failure_code(mind), state.failure)
    if not state.callbacks.saved:
        return _end_unsaved(mind)
    is_whole = len(state.epochs_ended) == mind.job.trainer.num_epochs
    if state.stop is not None and not (is_whole and state.stop.status == "stopped"):
        return mind.end(state.stop.status, _exit_code(state.stop), state.stop.reason)
    if state.membership.causes:
        return mind.end("degraded", 0, f"all epochs are done; on the way: {state.membership.first_cause}")
    done, deaths = all_are(mind.job.trainer.num_epochs, "epoch", "done"), state.membership.deaths
    return mind.end("done", 0, f"{done}; who died on the way came back: {deaths[0]}" if deaths else done)


def _end_unsaved(mind: Mind) -> list[Command]:
    """No rank could save: an interrupted run can go on from an earlier bundle, where there is one."""
    kept, stop = mind.state.callbacks.kept, mind.state.stop
    said = "training ended, but no rank could save the weights"
    if kept is not None:
        said += f"; the newest bundle that is whole is that of round {kept}"
        if stop is not None and stop.status == "interrupted":
            return mind.end("interrupted", _EXIT_RESUMABLE, f"{stop.reason}; {said}")
    return mind.end("failed", failure_code(mind), said)


def end_before_start(mind: Mind, stop: StopRequested) -> list[Command]:
    """Somebody wants the run to end, and nothing was trained."""
    resumable = mind.state.callbacks.kept is not None  # the bundle that this run was to go on from
    code = 0 if stop.status == "stopped" else (_EXIT_RESUMABLE if resumable else _EXIT_INTERRUPTED)
    return mind.end(stop.status, code, f"{stop.reason}, before the first window")


def _exit_code(stop: StopRequested) -> int:
    return _EXIT_RESUMABLE if stop.status == "interrupted" else 0
