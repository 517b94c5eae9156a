"""Any command on a host over a real sshd: its words, its input, its lines, its end."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from flodl.errors import HostUnready
from flodl.ports import Execute, HostCall
from flodl.spec.cluster import HostSpec
from flodl_launch.execute import execute
from tests.engine.live import wait_gone
from tests.launch.sshd import Sshd


def run(call: HostCall, *argv: str, given: bytes = b"", limit: float | None = 30.0) -> tuple[int, list[str]]:
    lines: list[str] = []
    port: Execute = execute
    code = port(call, argv, given=given, on_line=lines.append, timeout_seconds=limit)
    return code, lines


def test_words_arrive_as_they_are_and_the_exit_code_comes_back(sshd: Sshd) -> None:
    words = ["two words", "$(touch canary)", "a\nb", "it's", "back\\slash", ""]
    code, lines = run(sshd.call(), "/bin/sh", "-c", 'for w; do echo "[$w]"; done; exit 7', "sh", *words)
    assert code == 7
    assert lines == "".join(f"[{word}]\n" for word in words).splitlines()


def test_what_is_given_is_its_whole_standard_input(sshd: Sshd) -> None:
    given = os.urandom(200_000)
    code, lines = run(sshd.call(), "sha256sum", given=given)
    assert (code, lines) == (0, [f"{hashlib.sha256(given).hexdigest()}  -"])


def test_errors_and_output_are_both_heard_and_bad_utf8_is_replaced(sshd: Sshd) -> None:
    _, lines = run(sshd.call(), "/bin/sh", "-c", "echo out; echo err >&2; printf '\\377\\n'; printf 'no newline'")
    assert sorted(lines) == ["err", "no newline", "out", "\N{REPLACEMENT CHARACTER}"]


def test_a_megabyte_of_lines_comes_in_order(sshd: Sshd) -> None:
    _, lines = run(sshd.call(), "seq", "150000")
    assert lines == [str(number) for number in range(1, 150001)]


def test_login_noise_is_no_output_of_the_command(sshd: Sshd) -> None:
    sshd.before_commands("echo Welcome; printf 'and no newline'")
    assert run(sshd.call(), "echo", "mine") == (0, ["mine"])


def test_it_runs_in_the_hosts_folder_where_there_is_one(sshd: Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "a folder of Bob's"
    folder.mkdir()
    assert run(sshd.call(path=str(folder)), "pwd") == (0, [str(folder)])
    assert run(sshd.call(path="/no/such/folder"), "pwd") == run(sshd.call(), "pwd")


def test_a_missing_command_is_an_exit_code(sshd: Sshd) -> None:
    code, lines = run(sshd.call(), "no-such-command")
    assert code == 127
    assert "no-such-command" in lines[0]


def test_a_command_that_a_signal_ended_is_told_by_it(sshd: Sshd) -> None:
    assert run(sshd.call(), "/bin/sh", "-c", "kill -TERM $$")[0] == -15


@pytest.mark.parametrize("is_here", [False, True])
def test_a_command_that_takes_too_long_is_ended_with_its_children(sshd: Sshd, tmp_path: Path, is_here: bool) -> None:
    alive = tmp_path / "alive"
    call = HostCall(spec=HostSpec(host="node-a"), here=True) if is_here else sshd.call()
    script = f"while :; do date > '{alive}'; sleep 0.05; done & echo started; wait"
    begun = time.monotonic()
    with pytest.raises(HostUnready, match=r"did not end within 1 s, and was ended") as caught:
        run(call, "/bin/sh", "-c", script, limit=1.0)
    assert caught.value.kind == "timeout"
    assert time.monotonic() - begun < 8
    alive.unlink()
    time.sleep(0.3)  # six turns of the loop
    assert not alive.exists()


def test_a_command_that_is_no_longer_wanted_is_ended_with_its_children(sshd: Sshd, tmp_path: Path) -> None:
    alive, stop = tmp_path / "alive", threading.Event()
    script = f"while :; do date > '{alive}'; sleep 0.05; done & echo started; wait"
    with pytest.raises(HostUnready, match="/bin/sh was ended: interrupted"):
        execute(sshd.call(), ["/bin/sh", "-c", script], on_line=lambda _: stop.set(), stop=stop)
    alive.unlink(missing_ok=True)
    time.sleep(0.3)
    assert not alive.exists()


def test_a_command_whose_line_is_lost_is_ended_and_what_it_left_behind_is_not(sshd: Sshd, tmp_path: Path) -> None:
    pid, left = tmp_path / "pid", tmp_path / "left"
    script = (
        "import sys, time; sys.path[:0] = sys.argv[2:]; from tests.launch.sshd import *;"
        "from flodl_launch.execute import execute; import msgspec, flodl.ports as p;"
        "call = msgspec.json.decode(sys.argv[1], type=p.HostCall);"
        f"execute(call, ['sh', '-c', 'echo $$ > {pid}; exec sleep 60'], on_line=print)"
    )
    assert run(sshd.call(), "sh", "-c", f"(sleep 2; touch '{left}') > /dev/null 2>&1 &")[0] == 0
    controller = subprocess.Popen([sys.executable, "-c", script, msgspec.json.encode(sshd.call()), *sys.path])
    end = time.monotonic() + 20
    while not (pid.exists() and pid.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    controller.kill()
    controller.wait()
    wait_gone([int(pid.read_text())], 5.0)
    while not left.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_command_that_leaves_something_behind_is_not_waited_for_for_ever(sshd: Sshd) -> None:
    begun = time.monotonic()
    code, lines = run(sshd.call(), "/bin/sh", "-c", "sleep 8 & echo done")
    assert (code, lines) == (0, ["done"])
    assert time.monotonic() - begun < 7


def test_a_login_shell_that_exits_is_told_as_such(sshd: Sshd) -> None:
    sshd.before_commands("exit 3")
    with pytest.raises(HostUnready, match="login shell ended with 3 before our program began"):
        run(sshd.call(), "true")


def test_on_this_machine_no_ssh_is_needed(tmp_path: Path) -> None:
    call = HostCall(spec=HostSpec(host="here"), here=True, path=str(tmp_path))
    assert run(call, sys.executable, "-c", "import os; print(os.getcwd())") == (0, [str(tmp_path)])
    with pytest.raises(HostUnready, match="no-such-command does not start"):
        run(call, "no-such-command")
