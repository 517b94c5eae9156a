"""Before the first window: all ranks report ready, agree, form the first group and start from one rank's weights."""

from __future__ import annotations

from flodl.decide.evaluation import missing_figures, trial_rank
from flodl.decide.ledger import Ledger
from flodl.decide.messages import CallbackResult, Command, FormGroup, GroupFormed, RankDied, RankFailed, RankReady
from flodl.decide.mind import Mind, alert
from flodl.decide.ordering import next_order
from flodl.decide.readiness import readiness_problems
from flodl.decide.resuming import data_problems, go_on
from flodl.decide.stopping import begin_limits
from flodl.spec.counting import all_are

__all__ = ["on_first_group", "on_loss_before_start", "on_ready"]

_EXIT_NOT_READY = 3
_EXIT_CONFIG = 2


def on_ready(mind: Mind, event: RankReady) -> list[Command]:
    """A rank has built all it needs."""
    state = mind.state
    if state.activity != "gathering" or not state.membership.is_alive(event.rank):
        return []
    state.readies[event.rank] = event
    return _start_when_complete(mind)


def _start_when_complete(mind: Mind) -> list[Command]:
    state = mind.state
    waiting = [rank for rank in mind.alive if rank not in state.readies]
    if waiting or not mind.alive:
        return []
    readies = {rank: state.readies[rank] for rank in mind.alive}
    batch_size = mind.job.trainer.batch_size
    problems = readiness_problems(readies, mind.places, batch_size)
    if problems:
        return mind.end("failed", _EXIT_NOT_READY, "\n".join(str(problem) for problem in problems))
    if state.origin is not None:
        refused = tuple(data_problems(mind, state.origin.snapshot))
        if refused:
            return mind.end("failed", _EXIT_CONFIG, "\n".join(str(problem) for problem in refused))
    num_batches = readies[mind.alive[0]].num_samples // batch_size
    limit = mind.job.trainer.limit_batches
    state.ledger = Ledger(
        epoch_samples=batch_size * (num_batches if limit is None else min(limit, num_batches)),
        num_epochs=mind.job.trainer.num_epochs,
    )
    return _form_first_group(mind)


def _form_first_group(mind: Mind) -> list[Command]:
    """Everybody adopts the parameters and buffers of the lowest rank, or the bundle that it fetches."""
    state = mind.state
    state.activity = "forming"
    state.generation += 1
    state.formed, state.digests = {}, {}
    source = mind.alive[0]
    start = f"the weights of {mind.name(source)}" if state.origin is None else state.origin.origin
    begin = "they start" if len(mind.alive) > 1 else "it starts"
    reason = f"{all_are(len(mind.alive), 'rank', 'ready')}; {begin} from {start}"
    return [
        FormGroup(
            to=mind.alive,
            generation=state.generation,
            ranks=mind.alive,
            source=source,
            trial=trial_rank(mind),
            bundle=None if state.origin is None else state.origin.round,
            reason=f"{reason}; {_numbers(mind)}",
        )
    ]


def _numbers(mind: Mind) -> str:
    """What the ranks compute in, in words; where they differ, each with its ranks."""
    ways: dict[str, list[str]] = {}
    for rank in mind.alive:
        ready = mind.state.readies[rank]
        ways.setdefault(ready.precision + (", compiled" if ready.is_compiled else ""), []).append(str(rank))
    if len(ways) == 1:
        return next(iter(ways))
    return "; ".join(f"{way}: rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}" for way, ranks in ways.items())


def on_first_group(mind: Mind, event: GroupFormed) -> list[Command]:
    """A rank has adopted the common start."""
    state = mind.state
    state.formed[event.rank] = event.last_round
    state.digests[event.rank] = event.digest
    if event.trial is not None:
        refusal = _refused_trial(mind, event.rank, event.trial)
        if refusal:
            return refusal
    if any(rank not in state.formed for rank in mind.alive):
        return []
    first = mind.alive[0]
    differing = [rank for rank in mind.alive if state.digests[rank] != state.digests[first]]
    if differing:
        names = ", ".join(mind.name(rank) for rank in differing)
        reason = f"after the common start the weights of {names} differ from those of {mind.name(first)}"
        return mind.end("failed", _EXIT_NOT_READY, reason)
    state.activity = "training"
    if state.origin is not None:
        return [*go_on(mind, state.origin, event.at), *next_order(mind, event.at)]
    state.tally.begin(event.at)
    state.callbacks.evaluated_at = state.callbacks.saved_at = event.at
    begin_limits(mind, event.at)
    return next_order(mind, event.at)


def _refused_trial(mind: Mind, rank: int, trial: CallbackResult) -> list[Command]:
    """The end, where one evaluation batch shows that evaluations would fail or not tell what the job asks for."""
    if not trial.ok:
        reason = f"{mind.name(rank)}: one batch was evaluated before the first window, and that failed: {trial.error}"
        return mind.end("failed", _EXIT_NOT_READY, reason)
    problems = missing_figures(mind, trial)
    if problems:
        return mind.end("failed", _EXIT_CONFIG, "\n".join(str(problem) for problem in problems))
    return []


def on_loss_before_start(mind: Mind, event: RankDied | RankFailed) -> list[Command]:
    """A rank is gone before the first window: all or nothing, unless controller.join.min_ranks allows less."""
    state = mind.state
    cause = event.message if isinstance(event, RankFailed) else event.cause
    if not state.membership.die(event.rank, f"{mind.name(event.rank)}: {cause}"):
        return []
    state.readies.pop(event.rank, None)
    least = mind.job.cluster.controller.join.min_ranks
    is_config = isinstance(event, RankFailed) and event.kind == "config"
    if least is None or len(mind.alive) < least or is_config:
        return mind.end("failed", _EXIT_CONFIG if is_config else _EXIT_NOT_READY, state.membership.first_cause)
    mind.pace.remove(event.rank)
    told = alert(
        f"starting without {mind.name(event.rank)}: {cause}",
        f"controller.join.min_ranks={least} allows a start with {len(mind.alive)} ranks",
        event.rank,
    )
    return [told, *(_form_first_group(mind) if state.activity == "forming" else _start_when_complete(mind))]
