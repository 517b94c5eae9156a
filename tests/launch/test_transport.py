"""Agents on a host over a real sshd: their streams, login noise, ways not to begin, and an end for certain."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flodl.errors import HostUnready
from flodl.ports import HostCall
from flodl_launch.transport import open_streams
from tests.launch.sshd import Sshd

MARKER = "flodl-0123456789abcdef"


@pytest.fixture
def opened() -> Iterator[Callable[[HostCall], Any]]:
    """opened(call): an agent's streams; ended with the test."""
    found: list[Any] = []

    def begin(call: HostCall) -> Any:
        found.append(open_streams(call, MARKER))
        return found[-1]

    yield begin
    for streams in found:
        streams.kill()


def words_after_marker(streams: Any) -> dict[str, Any]:
    """The agent's first word; the marker is the first line."""
    assert streams.stdout.readline() == f"{MARKER}\n".encode()
    return json.loads(streams.stdout.readline())


def pid_of_agent(streams: Any) -> int:
    """The number of the one process that carries this marker as its last argument."""
    end = f"\0{MARKER}\0".encode()
    found = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and (entry / "cmdline").exists() and _cmdline(entry).endswith(end)
    ]
    assert len(found) == 1
    return found[0]


def _cmdline(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def is_gone(pid: int, within_seconds: float) -> bool:
    end = time.monotonic() + within_seconds
    while time.monotonic() < end:
        if not _cmdline(Path(f"/proc/{pid}")):
            return True
        time.sleep(0.02)
    return False


def refusal(call: HostCall) -> HostUnready:
    with pytest.raises(HostUnready) as caught:
        open_streams(call, MARKER)
    assert caught.value.host == "node-a"
    assert caught.value.remedy
    return caught.value


def test_an_agent_answers_and_ends_with_its_standard_input(sshd: Sshd, opened: Callable[[HostCall], Any]) -> None:
    streams = opened(sshd.call())
    assert words_after_marker(streams)["facts"]["executable"] == sys.executable
    assert streams.wait(0.0) is None
    pid = pid_of_agent(streams)
    streams.stdin.close()
    assert streams.wait(5.0) == 0
    assert is_gone(pid, 1.0)
    assert streams.stdout.read() == b""
    assert streams.stderr.read() == b""


def test_kill_ends_a_stopped_agent_too(sshd: Sshd, opened: Callable[[HostCall], Any]) -> None:
    streams = opened(sshd.call())
    words_after_marker(streams)
    pid = pid_of_agent(streams)
    os.kill(pid, signal.SIGSTOP)
    streams.kill()
    assert is_gone(pid, 2.0)
    assert streams.wait(1.0) == -signal.SIGKILL
    assert streams.stdout.read() == b""


def test_a_closed_line_ends_the_agent_where_no_command_can_be_run_any_more(
    make_sshd: Callable[..., Sshd], opened: Callable[[HostCall], Any]
) -> None:
    streams = opened(make_sshd("MaxSessions 1").call())
    words_after_marker(streams)
    pid = pid_of_agent(streams)
    streams.kill()
    assert is_gone(pid, 4.0)


def test_an_agent_that_is_killed_is_told_by_its_signal(sshd: Sshd, opened: Callable[[HostCall], Any]) -> None:
    streams = opened(sshd.call())
    words_after_marker(streams)
    os.kill(pid_of_agent(streams), signal.SIGKILL)
    assert streams.stdout.read() == b""
    assert streams.wait(1.0) == -signal.SIGKILL


def test_a_lost_line_is_the_code_of_ssh_and_the_end_of_both_outputs(
    sshd: Sshd, opened: Callable[[HostCall], Any]
) -> None:
    streams = opened(sshd.call())
    words_after_marker(streams)
    pid = pid_of_agent(streams)
    server = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])  # its parent: sshd's session
    os.kill(server, signal.SIGKILL)
    assert streams.stdout.read() == b""
    assert streams.stderr.read() == b""
    assert streams.wait(1.0) == 255
    assert is_gone(pid, 4.0)


def test_bytes_of_every_kind_arrive_in_both_directions(sshd: Sshd, opened: Callable[[HostCall], Any]) -> None:
    streams = opened(sshd.call())
    words_after_marker(streams)
    streams.stdin.write(b'{"nonsense": "' + b"x" * 3_000_000 + b'"}\n')
    assert b"Failed" in streams.stdout.readline()


def test_a_noisy_login_shell_is_heard_and_works(sshd: Sshd, opened: Callable[[HostCall], Any]) -> None:
    sshd.before_commands("echo 'Welcome to größe'; echo warning >&2; printf '\\xff no newline'")
    streams = opened(sshd.call())
    assert [streams.stdout.readline() for _ in range(2)] == ["Welcome to größe\n".encode(), b"\xff no newline\n"]
    assert words_after_marker(streams)["type"] == "Facts"
    assert streams.stderr.readline() == b"warning\n"


def test_a_login_shell_that_exits_is_told_with_its_code_and_its_last_lines(sshd: Sshd) -> None:
    sshd.before_commands("echo 'quota exceeded'; exit 3")
    found = refusal(sshd.call())
    assert found.kind == "login_shell"
    assert found.message == "login shell ended with 3 before our program began"
    assert found.lines == ("quota exceeded",)


def test_a_login_shell_that_exits_with_0_is_told_too(sshd: Sshd) -> None:
    sshd.before_commands("exit 0")
    assert refusal(sshd.call()).message == "login shell ended with 0 before our program began"


def test_a_missing_interpreter(sshd: Sshd) -> None:
    found = refusal(sshd.call(python="/no/such/python"))
    assert (found.kind, found.message) == ("no_python", "there is no interpreter /no/such/python")
    assert "task=setup" in found.remedy


def test_an_interpreter_that_is_a_folder_or_no_program(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for python in (tmp_path, tmp_path / "text"):
        assert refusal(sshd.call(python=str(python))).kind == "no_python"


def test_an_interpreter_that_is_too_old(sshd: Sshd, tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\necho "Unknown option: -P" >&2\nexit 2\n')  # word for word what 3.9 answers
    old.chmod(0o755)
    found = refusal(sshd.call(python=str(old)))
    assert (found.kind, found.message) == ("no_python", f"{old} is older than Python 3.11")


def test_an_interpreter_without_flodl(sshd: Sshd, tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    found = refusal(sshd.call(python=str(bare)))
    assert (found.kind, found.message) == ("no_flodl", f"{bare} has no flodl")
    assert f"{bare} -m pip install" in found.remedy


def test_an_agent_that_fails_otherwise_shows_its_last_lines(sshd: Sshd, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'libpython3.11.so: cannot open shared object file' >&2\nexit 9\n")
    broken.chmod(0o755)
    found = refusal(sshd.call(python=str(broken)))
    assert (found.kind, found.message) == ("ended", "its agent ended with 9 before it began")
    assert found.lines == ("libpython3.11.so: cannot open shared object file",)


def test_an_interpreter_of_any_name_arrives_byte_for_byte(
    sshd: Sshd, tmp_path: Path, opened: Callable[[HostCall], Any]
) -> None:
    for name in ("two words", "$(touch canary)", "it's; touch canary", "back\\slash !x", "new\nline", "größe"):
        python = tmp_path / name
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        streams = opened(sshd.call(python=str(python)))
        assert words_after_marker(streams)["type"] == "Facts"
        streams.kill()
    assert not (Path.home() / "canary").exists()


def test_a_host_that_hangs_after_the_login_is_given_up(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flodl_launch.beginning.BEGIN_SECONDS", 0.5)
    sshd.before_commands("sleep 30")
    found = refusal(sshd.call())
    assert found.kind == "timeout"
    assert "its login shell did not begin within 0.5 s" in found.message


def test_an_accepted_key_is_told_on_the_error_stream(
    sshd: Sshd, tmp_path: Path, opened: Callable[[HostCall], Any]
) -> None:
    streams = opened(sshd.call(known_hosts=str(tmp_path / "none"), host_key_policy="accept_new"))
    assert b"flodl: accepted the new host key of [127.0.0.1]" in streams.stderr.readline()


def test_no_thread_and_no_line_is_left_after_an_agent_that_ended(sshd: Sshd) -> None:
    before = threading.active_count()
    for _ in range(3):
        streams = open_streams(sshd.call(), MARKER)
        streams.stdin.close()
        assert streams.wait(5.0) == 0
        streams.stdout.read()
        streams.stderr.read()
    end = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.02)
    assert threading.active_count() == before


def test_secrets_of_the_environment_do_not_travel(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch, opened: Callable[[HostCall], Any]
) -> None:
    monkeypatch.setenv("A_TOKEN_OF_MINE", "s3cret")
    streams = opened(sshd.call())
    words_after_marker(streams)
    environment = Path(f"/proc/{pid_of_agent(streams)}/environ").read_bytes()
    assert b"s3cret" not in environment
