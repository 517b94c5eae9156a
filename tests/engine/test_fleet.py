"""Agents that stay from run to run: met once, cleared between runs, met anew when they died, and never orphans."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flodl.decide.messages import RankDied, RankReady
from flodl.engine import fleet as fleets
from flodl.engine.fleet import FACTS_SECONDS, PING_SECONDS, AgentFleet, the_fleet
from flodl.engine.payload import encode_host_secret
from flodl.errors import HostUnready, NotReady
from flodl.ports import Greeting, HostCall, HostLaunch
from flodl.spec.cluster import HostSpec
from tests.engine.live import (
    GONE_SECONDS,
    ROOT,
    a_call,
    agents_of,
    alive,
    children,
    cmdline,
    cpu_seconds,
    live,
    wait_gone,
    warm_of,
)


@pytest.fixture
def fleet() -> Iterator[AgentFleet]:
    agents = AgentFleet()
    yield agents
    agents.close(0.0)


def named(name: str, **fields: Any) -> HostCall:
    return msgspec.structs.replace(a_call(**fields), spec=HostSpec(host=name))


def launch(call: HostCall, *ranks: int) -> HostLaunch:
    return HostLaunch(
        label=call.label,
        ranks=ranks,
        devices=("cpu",) * len(ranks),
        path=call.path,
        env=call.env,
        preload=call.preload,
        secret=encode_host_secret({}, {}),
    )


def test_hosts_are_greeted_with_facts_and_the_time_to_them(fleet: AgentFleet) -> None:
    met = fleet.meet([named("a"), named("b")])
    assert list(met) == ["a", "b"]
    for greeting in met.values():
        assert isinstance(greeting, Greeting)
        assert greeting.facts["executable"] == sys.executable
        assert greeting.facts["cores"] >= 1
        assert 0.0 < greeting.latency_ms < 1000.0
    assert len({greeting.facts["machine"] for greeting in met.values() if isinstance(greeting, Greeting)}) == 1


def test_troubles_of_all_hosts_come_together_and_the_others_are_met(fleet: AgentFleet, tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -S "$@"\n')
    bare.chmod(0o755)
    calls = [named("good"), named("gone", python="/no/such/python"), named("false", python="/bin/false"),
             named("bare", python=str(bare))]  # fmt: skip
    met = fleet.meet(calls)
    assert isinstance(met["good"], Greeting)
    troubles = {host: answer for host, answer in met.items() if isinstance(answer, HostUnready)}
    assert {host: trouble.kind for host, trouble in troubles.items()} == {
        "gone": "no_python", "false": "ended", "bare": "no_flodl"}  # fmt: skip
    assert "/no/such/python does not start: No such file or directory" in str(troubles["gone"])
    assert "its agent ended with exit code 1 before it began" in str(troubles["false"])
    assert "No module named" in str(troubles["bare"])


def test_a_second_run_has_the_same_agent_and_the_same_warm_process(fleet: AgentFleet) -> None:
    with live(2, fleet=fleet) as run:
        first = run.pids(2)
        agent = run.agent()
        warm = warm_of(agent)
        import_seconds = cpu_seconds(warm)
    wait_gone(list(first.values()), GONE_SECONDS)
    assert alive(agent)
    assert children(agent) == [warm]
    with live(2, fleet=fleet) as run:
        second = run.pids(2)
        computed = cpu_seconds(warm) - import_seconds + sum(map(cpu_seconds, second.values()))
        assert computed < 0.5 * import_seconds, "nobody has imported torch"
        assert run.agent() == agent
        assert warm_of(agent) == warm
    assert not set(first.values()) & set(second.values())


def test_nothing_of_an_old_run_reaches_the_next(fleet: AgentFleet) -> None:
    with live(1, "stubborn", fleet=fleet) as run:
        stubborn = run.pids(1)[0]
        family = [stubborn, *children(stubborn)]
        os.kill(stubborn, signal.SIGSTOP)
        run.world.hurry("a test")
    wait_gone(family, GONE_SECONDS)
    with live(1, fleet=fleet) as run:
        run.until(RankReady)
        assert run.world.next_event(0.5) is None
        assert [event for event in run.events if isinstance(event, RankDied)] == []


def test_other_variables_get_another_warm_process_and_the_same_agent(fleet: AgentFleet) -> None:
    with live(1, "tells_its_place", fleet=fleet) as run:
        (event,) = run.until(RankReady)
        agent = run.agent()
        warm = warm_of(agent)
        assert event.versions["OF_THE_HOST"] == "-"
    with live(1, "tells_its_place", fleet=fleet, env={"OF_THE_HOST": "2"}) as run:
        (event,) = run.until(RankReady)
        assert event.versions["OF_THE_HOST"] == "2"
        assert run.agent() == agent
        assert warm_of(agent) != warm


def test_an_agent_that_died_between_runs_is_met_anew(fleet: AgentFleet) -> None:
    (call,) = [a_call()]
    fleet.meet([call])
    (first,) = agents_of(os.getpid())
    os.kill(first, signal.SIGKILL)
    wait_gone([first], GONE_SECONDS)
    with live(1, fleet=fleet) as run:
        run.until(RankReady)
        assert run.agent() != first


def test_an_agent_that_says_nothing_any_more_is_met_anew(fleet: AgentFleet) -> None:
    fleet.meet([named("a")])
    (first,) = agents_of(os.getpid())
    os.kill(first, signal.SIGSTOP)
    begun = time.monotonic()
    assert isinstance(fleet.meet([named("a")])["a"], Greeting)
    assert time.monotonic() - begun < PING_SECONDS + FACTS_SECONDS
    wait_gone([first], GONE_SECONDS)
    assert len(agents_of(os.getpid())) == 1


def test_a_warm_process_that_died_between_runs_is_made_anew(fleet: AgentFleet) -> None:
    fleet.meet([a_call()])
    (agent,) = agents_of(os.getpid())
    first = warm_of(agent)
    os.kill(first, signal.SIGKILL)
    wait_gone([first], GONE_SECONDS)
    with live(1, fleet=fleet) as run:
        run.until(RankReady)
        assert run.agent() == agent


def test_another_interpreter_is_another_agent(fleet: AgentFleet, tmp_path: Path) -> None:
    fleet.meet([named("a")])
    (first,) = agents_of(os.getpid())
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec env PYTHONPATH={ROOT} {sys.executable} "$@"\n')
    other.chmod(0o755)
    fleet.meet([named("a", python=str(other))])
    wait_gone([first], GONE_SECONDS)
    assert len(agents_of(os.getpid())) == 1


def test_the_start_is_all_or_nothing(fleet: AgentFleet) -> None:
    good, bad = named("good"), named("bad", path="/no/such/folder")
    met = fleet.meet([good, bad])
    assert all(isinstance(answer, Greeting) for answer in met.values())  # a missing folder is the probe's to tell
    fan_out = fleet.fan_out()
    begun = time.monotonic()
    with pytest.raises(NotReady, match=r"(?s)^bad: .*/no/such/folder"):
        fan_out.start([launch(good, 0), launch(bad, 1)])
    assert time.monotonic() - begun < 1.0  # nobody waits for the good one to be warm
    fan_out.close(0.0)
    assert {notice.kind for notice in fan_out.poll(0.1)} <= {"line"}  # no rank was born


def test_two_runs_at_once_need_hosts_of_their_own(fleet: AgentFleet) -> None:
    with live(1, fleet=fleet) as run:
        run.until(RankReady)
        other = fleet.fan_out()
        with pytest.raises(NotReady, match="here: another run of this process is under way there"):
            other.start([launch(a_call(), 0)])
        assert run.world.next_event(0.2) is None
        with pytest.raises(NotReady, match="elsewhere: was not met"):
            fleet.fan_out().start([launch(named("elsewhere"), 0)])


def test_after_the_close_nothing_is_left_and_nobody_is_met(fleet: AgentFleet) -> None:
    fleet.meet([named("a")])
    (agent,) = agents_of(os.getpid())
    family = [agent, *children(agent)]
    fleet.close(0.0)
    wait_gone(family, GONE_SECONDS)
    assert isinstance(fleet.meet([named("a")])["a"], HostUnready)
    assert agents_of(os.getpid()) == []


IDLE = """
import sys, time
from flodl.engine.fleet import AgentFleet, keep, the_fleet
from tests.engine.live import a_call
keep()
with the_fleet() as fleet:
    fleet.meet([a_call()])
print("idle", flush=True)
time.sleep(float(sys.argv[1]))
"""


def idle(seconds: float) -> subprocess.Popen[bytes]:
    """A controller that keeps its agents, between two runs."""
    command = [sys.executable, "-c", IDLE, str(seconds)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"idle\n"
    process.stdout.close()
    return process


def test_kept_agents_die_with_a_controller_that_is_killed_between_two_runs() -> None:
    controller = idle(60)
    family = children(controller.pid)
    assert len(family) >= 1
    controller.kill()
    controller.wait()
    wait_gone(family, GONE_SECONDS)


def test_kept_agents_end_with_the_process() -> None:
    controller = idle(0.5)
    family = children(controller.pid)
    assert controller.wait(10) == 0
    wait_gone(family, GONE_SECONDS)


def test_a_fleet_is_kept_only_where_that_was_asked_for() -> None:
    with the_fleet() as one, the_fleet() as two:
        assert one is not two
    fleets.keep()
    try:
        with the_fleet() as one:
            one.meet([named("a")])
            (agent,) = agents_of(os.getpid())
        with the_fleet() as two:
            assert two is one
        assert alive(agent)
    finally:
        fleets.release()
    wait_gone([agent], GONE_SECONDS)


def test_a_program_is_told_lines_and_answers_with_lines(fleet: AgentFleet) -> None:
    fleet.meet([named("a")])
    errand = fleet.run("a", "flodl.probe.host", "{}")
    line = errand.line(20.0)
    assert line is not None
    assert sys.executable in line
    errand.give("now")
    assert abs(float(errand.line(5.0) or 0) - time.time()) < 5
    assert errand.line(0.05) is None
    assert errand.end() == 0


def test_only_probes_are_run(fleet: AgentFleet) -> None:
    fleet.meet([named("a")])
    errand = fleet.run("a", "antigravity")
    assert errand.line(5.0) is None
    assert errand.end() == 126
    assert errand.errors() == ("antigravity is no module under flodl.probe",)


def test_a_program_that_fails_tells_its_last_words(fleet: AgentFleet) -> None:
    fleet.meet([named("a")])
    errand = fleet.run("a", "flodl.probe.nothing_like_that")
    assert errand.line(10.0) is None
    assert errand.end() == 1
    assert "nothing_like_that" in errand.errors()[-1]


def test_a_program_ends_with_its_agent(fleet: AgentFleet) -> None:
    fleet.meet([named("a")])
    (agent,) = agents_of(os.getpid())
    errand = fleet.run("a", "flodl.probe.host", "{}")
    assert errand.line(20.0)
    programs = [pid for pid in children(agent) if b"flodl.probe.host" in cmdline(pid)]
    os.kill(agent, signal.SIGKILL)
    assert errand.line(5.0) is None
    assert errand.end() == -1
    wait_gone(programs, GONE_SECONDS)
    with pytest.raises(HostUnready, match="was ended by SIGKILL"):
        fleet.run("a", "flodl.probe.host")
