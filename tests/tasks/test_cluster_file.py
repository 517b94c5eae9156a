"""One value of a cluster file is changed, and not a character more."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from flodl.errors import FlodlError
from flodl.tasks.cluster_file import scalar, set_value, with_value

FILE = """\
# my rig
defaults: [local, _self_]
controller:
  host: 10.0.0.1 # the desk
workers:
  - host: new # label
    path: /srv/me
    python: null # later
    env: {}
  - host: old   # the one
    path: /home/me
    env: {A: b} # and more
  -   nccl_socket_ifname: eno1
      host: third
      ssh:
        user: me
      env:
        NCCL_DEBUG: WARN # loud
        B: c
  - {host: fourth, path: /x}
  - ssh: {user: me}
    host: fifth
    python:
# the end
"""
HOSTS = ("new", "old", "third", "fourth", "fifth")


def others(before: str, after: str) -> list[str]:
    """Lines of the old text that are not in the new one."""
    return [line for line in before.splitlines() if line not in after.splitlines()]


@pytest.mark.parametrize("i", range(len(HOSTS)), ids=HOSTS)
@pytest.mark.parametrize("value", ["/home/me/envs/sm61/bin/python", "/a b/#1: 'x'/\"y\"/größte", "yes", "", "1.5"])
def test_an_interpreter_is_written_beside_its_host(i: int, value: str) -> None:
    after = with_value(FILE, ("workers", i, "python"), value)
    wanted = yaml.safe_load(FILE)
    wanted["workers"][i]["python"] = value
    assert yaml.safe_load(after) == wanted
    assert len(others(FILE, after)) <= 1
    assert "# later" in after or i == 0
    assert after.count("#") - value.count("#") == FILE.count("#")


@pytest.mark.parametrize("i", range(len(HOSTS)), ids=HOSTS)
def test_a_variable_is_added_to_those_of_its_host(i: int) -> None:
    after = with_value(FILE, ("workers", i, "env", "LD_PRELOAD"), "/n/libnccl.so.2")
    wanted = yaml.safe_load(FILE)
    wanted["workers"][i].setdefault("env", {})["LD_PRELOAD"] = "/n/libnccl.so.2"
    assert yaml.safe_load(after) == wanted
    assert len(others(FILE, after)) <= 1


def test_a_value_is_changed_in_its_place_and_its_comment_stays() -> None:
    after = with_value(FILE, ("workers", 0, "python"), "/p")
    assert "    python: /p # later\n" in after
    assert with_value(after, ("workers", 0, "python"), "null") == FILE.replace("null", '"null"')


def test_the_last_line_may_lack_its_end() -> None:
    assert (
        with_value("workers:\n  - host: a", ("workers", 0, "python"), "/p") == "workers:\n  - host: a\n    python: /p\n"
    )


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("workers: [", ("workers", 0, "python")),
        ("workers:\n  - host: a\n", ("workers", 1, "python")),
        ("workers: none\n", ("workers", 0, "python")),
        ("", ("workers", 0, "python")),
        ("a: &h {host: a}\nworkers: [*h]\nb: *h\n", ("workers", 0, "python")),
    ],
    ids=["no YAML", "no such host", "no list", "empty", "an alias shared with others"],
)
def test_what_cannot_be_changed_alone_is_left_alone(text: str, keys: tuple[str | int, ...]) -> None:
    with pytest.raises(FlodlError, match="write it by hand"):
        with_value(text, keys, "/p")


def test_a_file_keeps_its_rights_and_a_link_stays_one(tmp_path: Path) -> None:
    real = tmp_path / "real.yaml"
    real.write_text(FILE)
    real.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(real)
    set_value(link, ("workers", 1, "python"), "/p")
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert yaml.safe_load(real.read_text())["workers"][1]["python"] == "/p"


@pytest.mark.parametrize(
    "value", ["/a/b", "a", "null", "yes", "~", "1e3", "a: b", "a #b", "'", "\n", "ü", "- a", "{a}", "2026-01-01"]
)
def test_text_comes_back_as_text(value: str) -> None:
    assert yaml.safe_load(f"{{a: {scalar(value)}}}") == {"a": value}
