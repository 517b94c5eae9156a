"""FAULTS rows 12 and 15: a host is cut off. One side goes on and writes; the other one stops by itself."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from flodl.decide.messages import RankDied
from flodl.record.journal import read_journal
from tests.e2e.command import Command
from tests.lab.lab import Lab
from tests.lab.running import ENDLESS, awaited, flodl, lone_ranks

AGENT = "flodl.engine.agent"
SCALED = (*ENDLESS, "membership.timeout_scale=0.2")
HEARTBEAT, DEAD = 0.2, 6.0
LEFT_SECONDS = 5.0
END_SECONDS = 20.0  # what an end may take in all, whoever does not answer
RESUMABLE = 75


def deaths(run: Command) -> list[RankDied]:
    _, told = read_journal(run.folder / "run/journal.jsonl")
    return [event for event, _ in told if isinstance(event, RankDied)]


def ours(lab: Lab, name: str) -> dict[int, str]:
    """What of flodl runs there (its sshd does not know yet that nobody is there any more)."""
    return {pid: line for pid, line in lab[name].processes().items() if "flodl" in line}


def goes_on(run: Command) -> None:
    lines = run.output.count("epoch ")
    run.until(lambda: run.output.count("epoch ") > lines + 5)


@pytest.mark.row(12, 15)
def test_the_ranks_of_a_host_that_is_lost_die_together_after_the_limit_and_the_end_does_not_wait_for_it(
    lab: Lab, desk: Path
) -> None:
    with flodl(desk, *SCALED) as run:
        run.trains()
        lab.link_down("node-b")
        cut = time.monotonic()  # at the latest: the cable is pulled by a program, which takes its time
        run.until(lambda: "going on with ranks 0, 1, 4, 5" in run.output, 30)
        died = deaths(run)
        assert sorted(event.rank for event in died) == [2, 3]
        told = [re.fullmatch(r"its host is lost: .* for (\d+\.\d) s", event.cause) for event in died]
        silent = [float(found[1]) for found in told if found is not None]
        assert len(silent) == 2, died
        assert min(silent) >= DEAD, "not before the limit, counted from the last word"
        assert all(event.at - cut <= DEAD + 2 * HEARTBEAT for event in died)
        # the isolated side ends by itself, while the cable is still out
        awaited(lambda: not ours(lab, "node-b"), DEAD + LEFT_SECONDS)
        goes_on(run)
        lab.link_up("node-b")
        goes_on(run)
        # one whose agent answers no more is left behind, and that is said
        (agent,) = [pid for pid, line in ours(lab, "node-c").items() if AGENT in line and "python" in line]
        os.kill(agent, signal.SIGSTOP)
        run.signal(signal.SIGTERM)
        begun = time.monotonic()
        assert run.end(30) == RESUMABLE, run.output
        assert time.monotonic() - begun < END_SECONDS
        assert "[node-c] warning: no answer within 4 s of the end: this host is left behind" in run.output
        assert run.result["dead_ranks"] == [2, 3]


@pytest.mark.row(15)
def test_ten_short_flaps_evict_nobody(lab: Lab, desk: Path) -> None:
    lab.write_cluster(desk / "conf/cluster/lab.yaml", lone_ranks(lab))
    with flodl(desk, *ENDLESS) as run:  # limits as they are: how long TCP backs off over flaps is scaled by nobody
        run.trains()
        for _ in range(10):
            lab.link_down("node-b")
            time.sleep(0.5)
            lab.link_up("node-b")
            time.sleep(0.5)
        goes_on(run)
        run.signal(signal.SIGTERM)
        assert run.end(120) == RESUMABLE, run.output
        assert run.result["dead_ranks"] == []
        assert deaths(run) == []
