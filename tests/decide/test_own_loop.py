"""A run whose loop is the user's own: all or nothing, the right cause, and an end within a limit."""

from __future__ import annotations

from typing import Any

from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import (
    Alert,
    Command,
    End,
    Event,
    Finish,
    FormGroup,
    Goodbye,
    GroupFormed,
    RankDied,
    RankFailed,
    RankReady,
    RankSuspected,
    StopRequested,
    TimeReached,
)
from flodl.decide.own_loop import OwnLoop, decider
from flodl.spec.component import Component
from tests.decide.hands import only
from tests.scenarios.rigs import job_of, places_of

JOB = job_of("cpu_cadence", loop=Component(target="mine.gan", partial=True))


def ready(rank: int, at: float = 1.0, **project: str) -> RankReady:
    return RankReady(at=at, rank=rank, host=f"host{rank}", device="cpu", num_samples=0, data_signature="",
                     fingerprint="", num_parameters=0, batch_size=1, project=project)  # fmt: skip


class Told:
    """A mind of two ranks, and everything it has said."""

    def __init__(self) -> None:
        self.mind = OwnLoop(JOB, places_of([10, 10]))
        self.said: tuple[Command, ...] = ()

    def hear(self, *events: Event) -> tuple[Command, ...]:
        for event in events:
            self.said = self.mind.handle(event)
        return self.said

    def begun(self) -> Told:
        self.hear(ready(0), ready(1))
        self.hear(*(GroupFormed(at=2.0, rank=rank, generation=1, last_round=0) for rank in (0, 1)))
        return self

    def end(self) -> tuple[Any, ...]:
        end = only(End, self.said)
        return end.status, end.exit_code, end.reason


def failed(rank: int, kind: Any, at: float = 3.0) -> RankFailed:
    return RankFailed(at=at, rank=rank, kind=kind, message="broke")


def test_the_job_says_who_decides() -> None:
    assert isinstance(decider(JOB, places_of([10])), OwnLoop)
    assert isinstance(decider(JOB.replace(loop=None), places_of([10])), Coordinator)


def test_all_meet_in_one_group_and_the_run_is_done_when_all_have_left() -> None:
    told = Told()
    assert told.hear(ready(0)) == ()
    group = only(FormGroup, told.hear(ready(1)))
    assert (group.to, group.ranks, group.generation, group.source) == ((0, 1), (0, 1), 1, None)
    told = Told().begun()
    assert told.mind.view().activity == "training"
    assert told.hear(TimeReached(at=3.0)) == ()
    assert told.mind.totals().wall_seconds == 1.0
    assert told.hear(Goodbye(at=5.0, rank=1), RankDied(at=5.1, rank=1, cause="exit 0")) == ()
    assert told.hear(RankSuspected(at=5.4, rank=1, silent_seconds=1.0)) == ()
    alert = only(Alert, told.hear(RankSuspected(at=5.5, rank=0, silent_seconds=6.0)))
    assert (alert.rank, alert.text) == (0, "rank 0 (cpu of here) has not been heard for 6.0 s")
    told.hear(Goodbye(at=6.0, rank=0))
    assert told.end() == ("done", 0, "all loops have ended")
    assert only(End, told.said).totals.wall_seconds == 4.0
    assert told.mind.over
    assert told.mind.deadline is None
    assert told.mind.fixed == {}
    assert told.hear(Goodbye(at=6.0, rank=0)) == ()


def test_a_host_with_an_old_copy_is_refused_by_name() -> None:
    told = Told()
    told.hear(ready(0, **{"gan.py": "a"}), ready(1, **{"gan.py": "b"}))
    status, code, reason = told.end()
    assert (status, code) == ("failed", 3)
    assert "gan.py of the project changed while its ranks were starting" in reason


def test_a_failure_ends_the_run_with_what_it_was() -> None:
    for kind, code in (("config", 2), ("not_ready", 3), ("step", 5)):
        told = Told()
        told.hear(failed(1, kind))
        assert told.end()[:2] == ("failed", code)
        assert told.end()[2].endswith(": broke")
    told = Told()
    told.hear(RankDied(at=1.0, rank=0, cause="SIGKILL"))
    assert told.end()[:2] == ("failed", 3)
    told = Told().begun()
    told.hear(RankDied(at=3.0, rank=0, cause="SIGKILL"))
    assert told.end()[:2] == ("failed", 5)
    assert only(End, told.said).totals.dead_ranks == (0,)


def test_where_an_averaging_broke_who_was_lost_is_the_cause() -> None:
    told = Told().begun()
    assert told.hear(failed(1, "contact"), RankDied(at=3.1, rank=1, cause="exit 1"), failed(1, "contact")) == ()
    told.hear(RankDied(at=3.2, rank=0, cause="SIGKILL"))
    assert told.end()[2].endswith(": SIGKILL")
    told = Told().begun()
    told.hear(failed(1, "contact"))
    assert told.mind.deadline is not None
    told.hear(TimeReached(at=told.mind.deadline))
    assert told.end()[:2] == ("failed", 5)
    assert told.end()[2].endswith(": broke")
    told = Told().begun()
    assert told.hear(Goodbye(at=3.0, rank=1), failed(1, "step", at=3.1)) == ()


def test_a_stop_is_asked_for_and_waited_for_within_a_limit() -> None:
    told = Told()
    told.hear(StopRequested(at=1.0, reason="SIGINT"))
    assert told.end() == ("interrupted", 130, "SIGINT")
    told = Told().begun()
    finish = only(Finish, told.hear(Goodbye(at=3.0, rank=1), StopRequested(at=4.0, reason="SIGINT")))
    assert (finish.to, finish.callbacks) == ((0,), ())
    assert told.hear(StopRequested(at=4.5, reason="again")) == ()
    assert told.mind.deadline is not None
    told.hear(TimeReached(at=told.mind.deadline))
    assert told.end()[:2] == ("interrupted", 130)
    assert "SIGINT: the loops did not end within" in told.end()[2]
    told = Told().begun()
    told.hear(StopRequested(at=4.0, reason="SIGINT"), Goodbye(at=5.0, rank=0), Goodbye(at=5.0, rank=1))
    assert told.end()[0] == "done"
    for began in (Told(), Told().begun()):
        began.hear(StopRequested(at=4.0, reason="good enough", status="stopped"))
        if began.mind.deadline is not None:
            began.hear(Goodbye(at=5.0, rank=0), Goodbye(at=5.0, rank=1))
        assert began.end() == ("stopped", 0, "good enough"), "the program's own stop is no interruption"


def test_after_a_stop_an_averaging_that_others_have_left_is_part_of_it() -> None:
    told = Told().begun()
    told.hear(StopRequested(at=4.0, reason="SIGINT"))
    deadline = told.mind.deadline
    assert told.hear(failed(1, "contact", at=4.1), RankDied(at=4.2, rank=1, cause="exit 1")) == ()
    assert told.mind.deadline == deadline  # rank 0 may still save
    told.hear(Goodbye(at=6.0, rank=0))
    assert told.end()[:2] == ("interrupted", 130)
    assert told.end()[2].startswith("SIGINT: rank 1 (")
    told = Told().begun()
    told.hear(StopRequested(at=4.0, reason="SIGINT"), failed(1, "contact", at=4.1))
    told.hear(RankDied(at=4.5, rank=0, cause="SIGKILL"))
    assert told.end()[:2] == ("failed", 5)
    told = Told().begun()  # it had broken before the stop
    told.hear(failed(1, "contact", at=3.9))
    deadline = told.mind.deadline
    told.hear(StopRequested(at=4.0, reason="SIGINT"))
    assert told.mind.deadline == deadline
    assert told.hear(Goodbye(at=4.1, rank=0)) == ()
    assert deadline is not None
    told.hear(TimeReached(at=deadline))
    assert told.end()[:2] == ("failed", 5)
    assert "had ended its loop already" in told.end()[2]
