"""The drive: what listeners hear, when the run ends, and replays of a journal."""

from __future__ import annotations

from flodl import drive
from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import Command, End, Event, StopRequested
from tests.scenarios.rigs import job_of, places_of


class Script:
    """A world that says what it is told to say."""

    def __init__(self, *events: Event | None) -> None:
        self.events = list(events)
        self.done: list[Command] = []

    def next_event(self, timeout_seconds: float, deadline: float | None = None) -> Event | None:
        return self.events.pop(0)

    def execute(self, command: Command) -> None:
        self.done.append(command)

    def close(self) -> None:
        self.events.clear()


STOP = StopRequested(at=1.0, reason="SIGINT")


def test_listeners_hear_before_the_world_obeys_and_the_end_is_returned() -> None:
    world = Script(None, STOP)
    heard: list[tuple[Event, tuple[Command, ...], int]] = []
    ticks: list[int] = []
    end = drive.run(
        Coordinator(job_of("cpu_cadence"), places_of([1])),
        world,
        [lambda event, commands: heard.append((event, commands, len(world.done)))],
        tick=lambda: ticks.append(len(heard)),
    )
    assert isinstance(end, End)
    assert heard == [(STOP, (end,), 0)]
    assert world.done == [end]
    assert ticks == [0], "once without an event; the end needs no display"


def test_a_run_needs_neither_listeners_nor_a_tick() -> None:
    assert drive.run(Coordinator(job_of("cpu_cadence"), places_of([1])), Script(None, STOP)).status == "interrupted"


def test_a_replay_gives_the_commands_of_every_event() -> None:
    (commands,) = drive.replay([STOP], job_of("cpu_cadence"), places_of([1]))
    assert [type(command) for command in commands] == [End]
