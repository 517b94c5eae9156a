"""Commands on hosts: every word as it is, side by side, ended in time, and all troubles told together."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from flodl.errors import HostUnready, TaskFindings
from flodl.ports import HostCall
from flodl.spec.cluster import HostSpec
from flodl.tasks.hosts import AT_ONCE, Host, each, execute_here
from tests.engine.live import wait_gone
from tests.tasks.conftest import Flodl

HOSTILE = [
    "a b",
    "it's",
    '"',
    "$(touch canary)",
    "`touch canary`",
    ";touch canary",
    "-n",
    "größte",
    "a\nb",
    "\\",
    "*",
    "",
]


def call(path: Path | None = None) -> HostCall:
    return HostCall(spec=HostSpec(host="localhost"), here=True, path=str(path or ""))


def run(
    *argv: str, given: bytes = b"", timeout: float | None = None, path: Path | None = None
) -> tuple[int, list[str]]:
    lines: list[str] = []
    return execute_here(call(path), argv, given=given, on_line=lines.append, timeout_seconds=timeout), lines


def test_words_arrive_as_they_are(here: Path) -> None:
    code, lines = run("sh", "-c", 'for w in "$@"; do printf "%s\\n--\\n" "$w"; done', "sh", *HOSTILE, path=here)
    assert code == 0
    assert "\n".join(lines).split("\n--")[:-1] == [HOSTILE[0], *("\n" + word for word in HOSTILE[1:])]
    assert list(here.iterdir()) == []


def test_it_runs_in_the_hosts_folder_where_that_is_there(here: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    assert run("pwd", path=there) == (0, [str(there)])
    assert run("pwd", path=tmp_path / "missing") == (0, [str(here)])


def test_output_and_errors_come_line_by_line_and_the_code_is_the_commands(here: Path) -> None:
    assert run("sh", "-c", "echo a; echo b >&2; printf '\\377c'; exit 7") == (7, ["a", "b", "\ufffdc"])
    assert run("sh", "-c", "kill -9 $$")[0] == -9
    assert run("no-such-program") == (127, ["no-such-program: No such file or directory"])


def test_its_whole_input_is_given_also_more_than_a_pipe_holds(here: Path) -> None:
    assert run("wc", "-c", given=bytes(3_000_000)) == (0, ["3000000"])
    assert run("true", given=bytes(3_000_000)) == (0, []), "it need not be read"


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(here: Path) -> None:
    begun = time.monotonic()
    lines: list[str] = []
    with pytest.raises(HostUnready, match="took longer than") as caught:
        execute_here(call(), ["sh", "-c", "sleep 50 & echo $!; wait"], on_line=lines.append, timeout_seconds=2.0)
    assert caught.value.kind == "timeout"
    assert time.monotonic() - begun < 20
    wait_gone([int(lines[0])], 5.0)


def test_hosts_are_asked_side_by_side_a_few_at_a_time(here: Path) -> None:
    hosts = [Host(HostCall(spec=HostSpec(host=f"h{i}"), here=True), execute_here) for i in range(2 * AT_ONCE)]
    inside, most, lock = 0, 0, threading.Lock()
    full = threading.Barrier(AT_ONCE)  # breaks where fewer than that are there at a time

    def do(host: Host) -> str:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        full.wait(20)
        with lock:
            inside -= 1
        return host.label

    assert each(hosts, do) == {host.label: host.label for host in hosts}
    assert most == AT_ONCE


def test_the_troubles_of_all_hosts_are_told_together_and_in_order(here: Path) -> None:
    hosts = [Host(HostCall(spec=HostSpec(host=name), here=True), execute_here) for name in ("c", "a", "b")]

    def do(host: Host) -> None:
        if host.label == "c":
            time.sleep(0.1)
            raise HostUnready("c", "unreachable", "no route", "switch it on")
        if host.label == "b":
            raise TaskFindings("b: full")

    with pytest.raises(TaskFindings) as caught:
        each(hosts, do)
    assert str(caught.value) == "c: no route; switch it on\nb: full"


def test_a_bug_is_no_finding(here: Path) -> None:
    def do(host: Host) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        each([Host(call(), execute_here)], do)


# ---------------------------------------------------------------------------------------------------------- task=exec


def test_a_command_runs_on_every_host_and_its_lines_name_the_host(flodl: Flodl) -> None:
    done = flodl("task=exec", "command='echo $((6*7)) && echo bad >&2'", "cluster=local")
    assert (done.code, done.out) == (0, "[localhost] 42\n[localhost] bad\n")


def test_words_of_a_list_are_no_shell_line(flodl: Flodl) -> None:
    assert flodl("task=exec", "command=[printf,'%s|','$HOME','a b']").out == "[localhost] $HOME|a b|\n"


def test_a_command_that_fails_is_a_finding(flodl: Flodl) -> None:
    done = flodl("task=exec", "command='exit 3'")
    assert done.code == 1
    assert "localhost: sh -c 'exit 3' ended with 3" in done.err


def test_what_a_host_prints_cannot_touch_the_terminal(flodl: Flodl, here: Path) -> None:
    (here / "evil").write_bytes(b"\x1b[31mred\x1b]0;title\x07 end\n")
    assert flodl("task=exec", "command=[cat,evil]").out == "[localhost] red end\n"


def test_a_dry_run_runs_nothing(flodl: Flodl, here: Path) -> None:
    done = flodl("task=exec", "command='touch canary'", "launch.dry_run=true")
    assert (done.code, done.out) == (0, "[localhost] sh -c 'touch canary'\n")
    assert not (here / "canary").exists()


@pytest.mark.parametrize("words", [["command=''"], ["command=[]"], ["command={a: b}"], ["command=[[a]]"], []])
def test_what_is_no_command_is_refused(flodl: Flodl, words: list[str]) -> None:
    done = flodl("task=exec", *words)
    assert done.code == 2
    assert "command=" in done.err


def test_a_name_in_launch_execute_that_may_not_be_called_is_refused(flodl: Flodl) -> None:
    done = flodl("task=exec", "command=hostname", "launch.execute=os.system", "cluster.workers.0.host=elsewhere")
    assert done.code == 2
    assert "launch.execute" in done.err
