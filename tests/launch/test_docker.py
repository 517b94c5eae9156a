"""Agents in containers. A stand-in for docker is on the PATH: it checks its words and becomes the program."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flodl.errors import HostUnready
from flodl.ports import HostCall
from flodl.spec.cluster import HostSpec
from flodl_launch.execute import execute
from flodl_launch.transport import open_streams
from tests.launch.sshd import Sshd

MARKER = "flodl-fedcba9876543210"
STAND_IN = """#!/bin/sh
# docker compose exec -T <service> <program> [words]
[ "$1 $2 $3" = "compose exec -T" ] || { echo "unknown docker command: $*" >&2; exit 125; }
[ -f compose.yaml ] || { echo "no configuration file provided: not found" >&2; exit 14; }
[ "$4" = train ] || { echo "service \\"$4\\" is not running" >&2; exit 1; }
shift 4
FLODL_INSIDE=1 exec "$@"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a compose file, and the stand-in first on the PATH."""
    folder, programs = tmp_path / "a project", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    (folder / "compose.yaml").write_text("services: {train: {image: any}}\n")
    (programs / "docker").write_text(STAND_IN)
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return folder


@pytest.fixture
def call_of(sshd: Sshd, project: Path, tmp_path: Path) -> Callable[..., HostCall]:
    """call_of(way, service): a call to the service here or over SSH, where the login finds the stand-in as well."""
    sshd.before_commands(f"export PATH='{tmp_path / 'bin'}:/usr/bin:/bin'")

    def make(way: str, service: str = "train", **given: Any) -> HostCall:
        given = {"path": str(project), "python": sys.executable} | given
        if way == "here":
            return HostCall(spec=HostSpec(host="node-a", docker=service), here=True, **given)
        return sshd.call(docker=service, **given)

    return make


WAYS = pytest.mark.parametrize("way", ["here", "ssh"])


@WAYS
def test_an_agent_in_a_container_answers_and_ends_with_its_input(call_of: Callable[..., HostCall], way: str) -> None:
    streams = open_streams(call_of(way), MARKER)
    assert streams.stdout.readline() == f"{MARKER}\n".encode()
    assert json.loads(streams.stdout.readline())["type"] == "Facts"
    streams.stdin.close()
    assert streams.wait(5.0) == 0
    streams.stdout.close()
    streams.stderr.close()


@WAYS
def test_kill_ends_it(call_of: Callable[..., HostCall], way: str) -> None:
    streams = open_streams(call_of(way), MARKER)
    streams.kill()
    assert streams.wait(3.0) == -9
    streams.stdout.close()
    streams.stderr.close()


@WAYS
def test_a_service_that_is_down_is_told_in_dockers_words(call_of: Callable[..., HostCall], way: str) -> None:
    with pytest.raises(HostUnready) as caught:
        open_streams(call_of(way, "other"), MARKER)
    assert (caught.value.kind, caught.value.message) == ("ended", "docker compose exec other failed")
    assert caught.value.lines == ('service "other" is not running',)


@WAYS
def test_a_container_without_the_interpreter_or_flodl_is_told_apart(
    call_of: Callable[..., HostCall], way: str, tmp_path: Path
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    for python, kind in (("/no/such/python", "no_python"), (str(bare), "no_flodl")):
        with pytest.raises(HostUnready) as caught:
            open_streams(call_of(way, python=python), MARKER)
        assert caught.value.kind == kind


def test_a_host_without_docker_is_told_over_ssh(sshd: Sshd, tmp_path: Path) -> None:
    sshd.before_commands(f"export PATH='{tmp_path}'")
    with pytest.raises(HostUnready) as caught:
        open_streams(sshd.call(docker="train"), MARKER)
    assert (caught.value.kind, caught.value.message) == ("ended", "docker compose exec train failed")


@WAYS
def test_a_command_runs_in_the_container(call_of: Callable[..., HostCall], way: str) -> None:
    lines: list[str] = []
    code = execute(call_of(way), ["/bin/sh", "-c", "echo $FLODL_INSIDE"], on_line=lines.append)
    assert (code, lines) == (0, ["1"])


def test_variables_that_are_withheld_reach_no_container_of_this_machine(
    call_of: Callable[..., HostCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    lines: list[str] = []
    execute(
        call_of("here", withheld=frozenset({"MY_TOKEN"})), ["/bin/sh", "-c", "echo [$MY_TOKEN]"], on_line=lines.append
    )
    assert lines == ["[]"]


def test_a_machine_without_docker_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostUnready, match="docker does not start") as caught:
        open_streams(HostCall(spec=HostSpec(host="node-a", docker="train"), here=True), MARKER)
    assert "compose plugin" in caught.value.remedy
