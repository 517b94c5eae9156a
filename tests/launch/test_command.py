"""Command lines: whatever a user may write arrives byte for byte in whatever login shell, and nothing else is run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flodl.ports import HostCall
from flodl.spec.cluster import HostSpec
from flodl_launch.command import agent_argv, begun_word, docker_argv, kill_line, line_for_shell, plain_fault

SHELLS = [shell for shell in ("sh", "bash", "dash", "zsh", "ksh", "tcsh", "fish") if shutil.which(shell)]
HOSTILE = [
    "two words", "it's", 'a "quoted" one', "$(touch canary)", "`touch canary`", "; touch canary", "&& touch canary",
    "a\nnewline", "tab\there", "back\\slash", "\\'; touch canary; '", "größe", "-leading", "--", "", "a=b", "~", "*",
    "!x", "#no comment", "%d", "_0101", "{a,b}", "$HOME", "trailing\n", "\x01", os.fsdecode(b"\xff"),
]  # fmt: skip
SHOW = "import json, os, sys; print(json.dumps([*sys.argv[1:], os.getcwd()]))"


def run(shell: str, line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [shell, "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "HOME": str(folder)},
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_hostile_words_arrive_byte_for_byte_and_nothing_else_runs(shell: str, tmp_path: Path) -> None:
    done = run(shell, line_for_shell([sys.executable, "-c", SHOW, *HOSTILE], "m"), tmp_path)
    said, shown = done.stdout.splitlines()
    assert said.startswith(begun_word("m") + " ")
    assert json.loads(shown)[:-1] == HOSTILE
    assert list(tmp_path.rglob("canary")) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_a_folder_of_any_name_is_entered(shell: str, tmp_path: Path) -> None:
    above = tmp_path / "in here"
    for name in filter(None, HOSTILE):
        (above / name).mkdir(parents=True)
        for folder in (name, str(above / name)):
            line = line_for_shell(["/bin/pwd", "-P"], "m", folder)
            done = subprocess.run([shell, "-c", line], cwd=above, capture_output=True, timeout=30)
            assert done.stdout.partition(b"\n")[2] == os.fsencode(f"{above / name}\n"), done
    assert list(tmp_path.rglob("canary")) == []


def test_a_folder_that_is_missing_leaves_the_program_where_the_login_landed(tmp_path: Path) -> None:
    done = run("sh", line_for_shell([sys.executable, "-c", SHOW], "m", "/no/such folder"), tmp_path)
    assert json.loads(done.stdout.splitlines()[1]) == [str(tmp_path)]


def test_a_plain_line_can_be_read_by_people() -> None:
    line = line_for_shell(["/usr/bin/python3", "-P", "-m", "x"], "m")
    assert line.startswith("exec /bin/sh -c 'echo m.shell $$ ")
    assert line.endswith("exec /usr/bin/python3 -P -m x'")


def test_the_agent_is_started_by_the_hosts_interpreter_and_in_its_container() -> None:
    bare = HostCall(spec=HostSpec(host="a"), python="/x/bin/python")
    assert agent_argv(bare, "m") == ["/x/bin/python", "-P", "-m", "flodl.engine.agent", "m"]
    assert agent_argv(HostCall(spec=HostSpec(host="a")), "m")[0] == sys.executable
    inside = HostCall(spec=HostSpec(host="a", docker="train"), python="/x/bin/python")
    assert agent_argv(inside, "m") == ["docker", "compose", "exec", "-T", "train", *agent_argv(bare, "m")]
    assert docker_argv(None, ["ls"]) == ["ls"]


def test_a_kill_reaches_the_recorded_process_and_its_group_only(tmp_path: Path) -> None:
    script = "import os, time; os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(60)"
    line = line_for_shell([sys.executable, "-c", script], "m")
    with subprocess.Popen(["bash", "-c", line], stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        _, pid, start_time = process.stdout.readline().split()
        pids = {int(process.stdout.readline()) for _ in range(2)}
        assert int(pid) in pids
        other = kill_line(int(pid), int(start_time) + 1)
        assert run("sh", other, tmp_path).returncode != 0
        assert process.poll() is None
        run("sh", kill_line(int(pid), int(start_time)), tmp_path)
        assert process.wait(5) == -9
        assert process.stdout.read() == ""  # the child is gone too: it held the pipe


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "", "two words", "new\nline", "bell\a"])
def test_names_that_programs_would_misread_are_refused(name: str) -> None:
    assert plain_fault(name)


@pytest.mark.parametrize("name", ["node-a", "10.0.0.2", "fe80::1%eth0", "größe", "me_1"])
def test_names_of_hosts_and_users_are_accepted(name: str) -> None:
    assert plain_fault(name) == ""
