"""The drive: Coordinator x World. Events go in, orders come out and are carried out; listeners hear both.

The loop knows no clock, no process and no file: the world stamps events, listeners write journals and terminals. What
the coordinator wants to be told of, should nothing happen before, it says as a deadline, and the world tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from flodl.decide.messages import Command, End, Event
from flodl.decide.own_loop import Decider, decider
from flodl.decide.roster import Place
from flodl.ports import World
from flodl.spec.job import JobSpec

__all__ = ["Listener", "Tick", "replay", "run"]

Listener = Callable[[Event, tuple[Command, ...]], None]
Tick = Callable[[], None]

POLL_SECONDS = 0.2


def run(
    coordinator: Decider,
    world: World,
    listeners: Iterable[Listener] = (),
    *,
    tick: Tick | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> End:
    """Run to the end. The world stays open: who made it closes it.

    Listeners hear (event, commands) before the commands are carried out, so that a journal is never behind the
    world. tick: called at least every `poll_seconds`, for displays.
    """
    heard = tuple(listeners)
    while True:
        event = world.next_event(poll_seconds, coordinator.deadline)
        if event is not None:
            end = _step(coordinator, world, heard, event)
            if end is not None:
                return end
        if tick is not None:
            tick()


def _step(coordinator: Decider, world: World, listeners: Sequence[Listener], event: Event) -> End | None:
    commands = coordinator.handle(event)
    for listener in listeners:
        listener(event, commands)
    for command in commands:
        world.execute(command)
        if isinstance(command, End):
            return command
    return None


def replay(events: Iterable[Event], job: JobSpec, roster: Sequence[Place]) -> Iterator[tuple[Command, ...]]:
    """The commands of a fresh Coordinator for each of a journal's events."""
    coordinator = decider(job, roster)
    for event in events:
        yield coordinator.handle(event)
