"""A rank is started again: another process with keys of its own, and nothing of its earlier one is heard."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from flodl.decide.messages import Dismiss, Finish, FormGroup, Goodbye, GroupFormed, RankDied, RankReady, Restart
from flodl.decide.timeouts import Timeouts
from flodl.engine.link import RankLink
from flodl.engine.protocol import PART_BYTES
from flodl.errors import FlodlError
from tests.engine.listening import SHORT, bye, listening
from tests.engine.live import alive, live, wait_gone


def test_the_earlier_process_is_told_to_end_itself_while_the_next_one_is_heard() -> None:
    with listening(SHORT, SHORT) as (controller, old, lost):
        controller.server.evict(0)
        keys = controller.server.readmit(0, 1)
        new = RankLink.dial(controller.door(0, keys=keys), limits=SHORT)
        old.send(bye(0))
        assert "declared this rank dead" in lost.get(timeout=5.0)
        assert controller.events.empty()
        new.send(bye(0))
        assert controller.events.get(timeout=5.0) == bye(0)
        with pytest.raises(FlodlError, match="this rank was declared dead: nothing of it is stored"):
            old.upload([("weights.safetensors", (b"x" * 3_000_000,))])
        new.upload([("weights.safetensors", (b"x" * 3_000_000,))])
        assert controller.sink.committed
        new.close()


def test_an_upload_that_a_dead_rank_has_begun_is_dropped_while_the_run_goes_on() -> None:
    with listening(SHORT, SHORT) as (controller, link, _):
        is_over = threading.Event()

        def halves() -> Iterator[bytes]:
            yield bytes(PART_BYTES)
            is_over.wait(10.0)

        def send() -> None:
            with pytest.raises(FlodlError):
                link.upload([("r1.model", halves())])

        sending = threading.Thread(target=send)
        sending.start()
        end = time.monotonic() + 5.0
        while not controller.sink.parts:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert not controller.sink.abandoned
        controller.server.evict(0)
        while not controller.sink.abandoned:
            assert time.monotonic() < end
            time.sleep(0.01)
        is_over.set()
        sending.join(5.0)
        assert not controller.sink.committed


def test_a_killed_rank_is_started_again_and_forms_a_group_with_the_other() -> None:
    with live(2) as run:
        pids = run.pids(2)
        os.kill(pids[1], signal.SIGKILL)
        run.until(RankDied)
        run.world.execute(Restart(rank=1, incarnation=1, reason="a test"))
        (ready,) = run.until(RankReady)
        assert (ready.rank, ready.incarnation, int(ready.versions["pid"]) != pids[1]) == (1, 1, True)
        run.world.execute(FormGroup(to=(0, 1), generation=2, ranks=(0, 1), reason="a test"))
        assert {event.digest.split()[0] for event in run.until(GroupFormed, 2)} == {"3"}
        os.kill(int(ready.versions["pid"]), signal.SIGKILL)
        (died,) = run.until(RankDied)
        assert (died.rank, died.incarnation) == (1, 1), "its second death is told like the first"
        run.world.execute(Finish(to=(0,), reason="a test"))
        run.until(Goodbye)


def test_a_rank_that_was_declared_dead_is_ended_before_another_one_is_started() -> None:
    with live(1, limits=SHORT) as run:
        pid = run.pids(1)[0]
        os.kill(pid, signal.SIGSTOP)
        (died,) = run.until(RankDied)
        assert "nothing was heard" in died.cause
        run.world.execute(Restart(rank=0, incarnation=1, reason="a test"))
        (ready,) = run.until(RankReady)
        assert not alive(pid)
        run.world.execute(Dismiss(rank=0, reason="a test"))
        wait_gone([int(ready.versions["pid"])], 5.0)
        assert run.world.next_event(0.3) is None, "its end was ours"


def test_where_the_agent_is_gone_nobody_can_start_it_again() -> None:
    with live(1) as run:
        run.pids(1)
        os.kill(run.agent(), signal.SIGKILL)
        (died,) = run.until(RankDied)
        assert not died.can_return
        run.world.execute(Restart(rank=0, incarnation=1, reason="a test"))
        (died,) = run.until(RankDied)
        assert (died.incarnation, died.can_return) == (1, False)
        assert "its host is lost" in died.cause


def test_where_the_agent_is_silent_nobody_waits_for_another_process_as_long_as_its_line_is_open() -> None:
    limits = Timeouts(heartbeat=0.05, suspected=0.5, dead=1.5, collective=3.0)
    with live(2, limits=limits) as run:
        pids = run.pids(2)
        agent = run.agent()
        os.kill(pids[1], signal.SIGKILL)
        run.until(RankDied)
        os.kill(agent, signal.SIGSTOP)
        begun = time.monotonic()
        run.world.execute(Restart(rank=1, incarnation=1, reason="a test"))  # it was heard a moment ago
        (died,) = run.until(RankDied)
        assert (died.rank, died.incarnation, died.can_return) == (1, 1, False)
        assert died.cause.startswith("its host is lost: nothing was heard from its agent for ")
        assert time.monotonic() - begun >= limits.dead / 2, "not before the limit, counted from its last word"
        run.world.execute(Restart(rank=1, incarnation=2, reason="a test"))  # and by now it is known
        (died,) = run.until(RankDied, seconds=5.0)
        assert (died.incarnation, died.can_return) == (2, False)
        assert alive(pids[0]), "a rank that is heard is not lost with it"
        os.kill(agent, signal.SIGCONT)
