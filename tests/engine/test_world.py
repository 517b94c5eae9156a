"""The live world: what ranks, agents and signals do arrives as events, stamped and in order."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import msgspec
import pytest

from flodl.decide.messages import (
    Cut,
    Finish,
    FormGroup,
    Goodbye,
    GroupFormed,
    RankDied,
    RankReady,
    RankSuspected,
    StopRequested,
)
from flodl.decide.timeouts import Timeouts
from flodl.engine.payload import RankPayload
from flodl.errors import Interrupted, NotReady
from tests.engine.live import GONE_SECONDS, ROOT, Live, alive, children, live, wait_gone


def test_a_whole_life_in_order_and_nobody_is_mourned() -> None:
    with live(2) as run:
        pids = run.pids(2)
        run.world.execute(FormGroup(to=(0, 1), generation=1, ranks=(0, 1), reason="a test"))
        run.until(GroupFormed, 2)
        run.world.execute(Cut(to=(1,), reason="a test"))
        run.world.execute(Finish(to=(0, 1), callbacks=("save",), reason="a test"))
        run.until(Goodbye, 2)
        wait_gone(list(pids.values()), GONE_SECONDS)
        run.ended()
        assert run.world.next_event(0.5) is None
        assert run.uploads.whole == {0: b"\0" * 3_000_000, 1: b"\1" * 3_000_000}
        assert (1, "cut") in run.lines
        assert (0, "cut") not in run.lines
        stamps = [event.at for event in run.events]
    assert stamps == sorted(stamps)
    assert all(0 < time.monotonic() - at < 60 for at in stamps)


def test_a_killed_rank_is_reported_within_moments_with_its_signal() -> None:
    with live(2) as run:
        pids = run.pids(2)
        begun = time.monotonic()
        os.kill(pids[1], signal.SIGKILL)
        (died,) = run.until(RankDied)
        assert time.monotonic() - begun < 0.5
        assert (died.rank, died.cause) == (1, "was ended by SIGKILL")
        assert alive(pids[0])
        assert run.world.next_event(0.3) is None


def test_leaving_with_zero_and_without_a_goodbye_is_a_death() -> None:
    with live(1, "silent_exit") as run:
        run.until(RankReady)
        (died,) = run.until(RankDied)
    assert died.cause == "ended with exit code 0 and no goodbye"


def test_an_exception_reaches_the_log_before_the_death_is_told() -> None:
    with live(1, "raises") as run:
        (died,) = run.until(RankDied)
        assert died.cause == "ended with exit code 1 and no goodbye"
        assert run.world.last_lines(0)[-1] == "RuntimeError: broken on rank 0"


def test_a_worker_that_cannot_be_imported_says_which() -> None:
    with live(1, "there_is_no_such_function") as run:
        (died,) = run.until(RankDied)
        assert died.cause == "ended with exit code 3 and no goodbye"
        assert "there_is_no_such_function" in run.world.last_lines(0)[-1]


def test_hostile_output_breaks_nothing() -> None:
    with live(1, "noisy") as run:
        (died,) = run.until(RankDied)
        assert died.cause == "was ended by SIGSEGV"
        lines = [text for rank, text in run.lines if rank == 0]
    assert {"plain", "\\xff\\xfe not utf-8", "\x1b[31mred\x1b[0m", "to stderr", "no newline"} <= set(lines)
    assert [len(text) for text in lines if set(text) == {"x"}] == [16384, 16384, 40_000 - 2 * 16384]


def test_a_rank_that_ignores_term_is_killed_after_the_grace_with_its_children() -> None:
    with live(1, "stubborn") as run:
        pid = run.pids(1)[0]
        family = [pid, *children(pid)]
        assert len(family) == 2
        run.world.hurry("a test")
        with pytest.raises(Interrupted):
            run.until(RankDied)
    wait_gone(family, GONE_SECONDS)


def test_what_a_dead_rank_leaves_behind_is_ended_too() -> None:
    with live(1, "stubborn") as run:
        pid = run.pids(1)[0]
        (child,) = children(pid)
        os.kill(pid, signal.SIGKILL)
        run.until(RankDied)
        wait_gone([child], GONE_SECONDS)


def test_a_killed_agent_takes_its_ranks_along_and_all_are_mourned() -> None:
    with live(2) as run:
        pids = run.pids(2)
        os.kill(run.agent(), signal.SIGKILL)
        died = run.until(RankDied, 2)
        wait_gone(list(pids.values()), GONE_SECONDS)
    assert sorted(event.rank for event in died) == [0, 1]
    assert all("its host is lost" in event.cause for event in died)


def test_a_killed_warm_process_takes_its_ranks_along() -> None:
    with live(2) as run:
        pids = run.pids(2)
        (warm,) = children(run.agent())[:1]
        os.kill(warm, signal.SIGKILL)
        died = run.until(RankDied, 2)
        wait_gone(list(pids.values()), GONE_SECONDS)
    assert {event.cause for event in died} == {"its host is lost: its warm process was ended by SIGKILL"}


def test_the_agent_ends_everything_when_it_is_told_by_term() -> None:
    with live(1, "stubborn") as run:
        pid = run.pids(1)[0]
        os.kill(run.agent(), signal.SIGTERM)
        (died,) = run.until(RankDied)
        wait_gone([pid, run.agent()], GONE_SECONDS)
    assert died.cause == "its host is lost: its agent was told to end by SIGTERM"


def test_a_stop_is_an_event_and_a_hurry_an_error() -> None:
    with live(1) as run:
        run.until(RankReady)
        run.world.request_stop("SIGINT")
        (stop,) = run.until(StopRequested)
        assert (stop.reason, stop.status) == ("SIGINT", "interrupted")
        run.world.hurry("second signal (SIGINT)")
        with pytest.raises(Interrupted) as raised:
            run.until(RankDied)
    assert raised.value.exit_code == 130


def test_ranks_that_do_not_come_in_time_are_named() -> None:
    def mute(payload: RankPayload) -> RankPayload:
        entry = "tests.engine.tiny_worker:mute" if payload.rank else payload.entry
        return msgspec.structs.replace(payload, entry=entry)

    with live(2, tell=mute, join_seconds=10.0) as run, pytest.raises(NotReady) as raised:
        run.until(RankDied, 2)
    assert str(raised.value) == (
        "not ready within cluster.controller.join.timeout_seconds=10: rank 1 (here cpu)"
        "\n  | building something for ever"
    )


def test_with_enough_ranks_the_late_ones_are_given_up() -> None:
    def mute(payload: RankPayload) -> RankPayload:
        entry = "tests.engine.tiny_worker:mute" if payload.rank else payload.entry
        return msgspec.structs.replace(payload, entry=entry)

    with live(2, tell=mute, join_seconds=8.0, min_ranks=1) as run:
        (ready,) = run.until(RankReady)
        (died,) = run.until(RankDied)
        assert (ready.rank, died.rank) == (0, 1)
        assert died.cause == "not ready within cluster.controller.join.timeout_seconds=8"
        run.ended(but=1)
        assert run.world.next_event(0.3) is None  # its end by our signal is no second death


def test_with_too_few_ranks_the_start_fails_all_the_same() -> None:
    def mute(payload: RankPayload) -> RankPayload:
        return msgspec.structs.replace(payload, entry="tests.engine.tiny_worker:mute")

    with live(1, tell=mute, join_seconds=1.0, min_ranks=1) as run, pytest.raises(NotReady, match="rank 0"):
        run.until(RankReady)


def test_a_folder_that_is_not_there_is_named() -> None:
    with live(1, path="/no/such/folder") as run, pytest.raises(NotReady, match="/no/such/folder"):
        run.until(RankReady)


def test_a_rank_finds_its_own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with live(2, "tells_its_place", env={"OF_THE_HOST": "größte; $(x)"}) as run:
        seen = {event.rank: event.versions for event in run.until(RankReady, 2)}
        warm = Path(f"/proc/{children(run.agent())[0]}/task")
        assert len(list(warm.iterdir())) == 1  # else a fork could hang
        secret = "hunter2-in-the-rank-only"
        for pid in (run.agent(), *children(run.agent())):
            assert secret not in Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    for rank, place in seen.items():
        assert place["cwd"] == place["path"] == str(ROOT)
        assert place["session"] == place["pid"]
        assert place["threads"] == place["OMP_NUM_THREADS"] == place["OPENBLAS_NUM_THREADS"] == "1", rank
        assert place["tasks"] == "1"
        assert place["stdin"] == "b''"
        assert place["A_TEST_SECRET"] == secret
        assert place["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert place["CUDA_VISIBLE_DEVICES"] == ""
        assert (place["GLOO_SOCKET_IFNAME"], place["NCCL_SOCKET_IFNAME"]) == ("lo", "=lo")
        assert place["OF_THE_HOST"] == "größte; $(x)"


def test_a_rank_has_its_own_number_of_threads_in_every_thread() -> None:
    def tell(payload: RankPayload) -> RankPayload:
        return msgspec.structs.replace(payload, threads=3)

    with live(1, "tells_its_place", tell=tell) as run:
        (event,) = run.until(RankReady)
        place = event.versions
    assert place["threads"] == place["elsewhere"] == place["OMP_NUM_THREADS"] == "3"
    assert place["OPENBLAS_NUM_THREADS"] == "1"


SHORT = Timeouts(heartbeat=0.05, suspected=0.3, dead=1.5, collective=3.0)
LATE_SECONDS = 1.0  # two heartbeats are promised, of a second each at the usual scale


def test_who_has_left_in_order_is_not_missed_however_late_that_is_read() -> None:
    """The drive writes to a disk that hangs for longer than a rank may be silent."""
    with live(2, limits=SHORT) as run:
        pids = run.pids(2)
        run.world.execute(Finish(to=(0, 1), reason="a test"))
        wait_gone(list(pids.values()), GONE_SECONDS)
        time.sleep(2 * SHORT.dead)
        run.until(Goodbye, 2)
        assert run.world.next_event(0.3) is None
        assert not [event for event in run.events if isinstance(event, RankDied | RankSuspected)]


def test_a_stopped_rank_is_suspected_declared_dead_after_the_limit_and_killed_by_its_agent() -> None:
    with live(2, limits=SHORT) as run:
        pids = run.pids(2)
        run.world.next_event(0.2)
        os.kill(pids[1], signal.SIGSTOP)
        begun = time.monotonic()
        (suspected,) = run.until(RankSuspected)
        (died,) = run.until(RankDied)
        assert time.monotonic() - begun <= SHORT.dead + LATE_SECONDS
        assert (suspected.rank, died.rank) == (1, 1)
        told = re.fullmatch(r"nothing was heard from it for (\d+\.\d) s", died.cause)
        assert told is not None, died.cause
        assert SHORT.dead <= float(told[1]) <= SHORT.dead + LATE_SECONDS, "since its last word, which may be older"
        wait_gone([pids[1]], GONE_SECONDS)
        assert nothing_more(run)
        assert alive(pids[0])


def nothing_more(run: Live, seconds: float = 0.4) -> bool:
    """No second death, and no other news."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if run.world.next_event(0.1) is not None:
            return False
    return True


def test_a_rank_that_comes_back_from_the_dead_is_refused_and_ends_itself() -> None:
    with live(2, limits=SHORT) as run:
        pids = run.pids(2)
        os.kill(run.agent(), signal.SIGSTOP)  # it cannot kill the rank
        os.kill(pids[1], signal.SIGSTOP)
        run.until(RankDied)
        os.kill(pids[1], signal.SIGCONT)
        wait_gone([pids[1]], GONE_SECONDS)
        os.kill(run.agent(), signal.SIGCONT)


def test_an_agent_that_hears_nothing_ends_its_ranks_and_itself_also_when_it_was_stopped_and_wakes_up() -> None:
    with live(2, limits=SHORT) as run:
        pids = run.pids(2)
        assert nothing_more(run)
        agent = run.agent()
        os.kill(agent, signal.SIGSTOP)
        assert nothing_more(run, 1.5 * SHORT.dead), "its ranks are heard, and live"
        os.kill(agent, signal.SIGCONT)
        died = run.until(RankDied, 2)
        assert all("heard nothing from the controller" in event.cause for event in died)
        wait_gone([agent, *pids.values()], GONE_SECONDS)


def test_ten_short_flaps_of_an_agent_and_a_rank_evict_nobody() -> None:
    with live(2, limits=SHORT) as run:
        pids = run.pids(2)
        for _ in range(10):
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in (run.agent(), pids[0]):
                    os.kill(pid, number)
                assert not isinstance(run.world.next_event(0.1), RankDied)
        assert nothing_more(run)
        assert alive(pids[0])
