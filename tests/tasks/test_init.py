"""task=init writes a cluster file that composes, from what hosts say, with comments for people."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from flodl.tasks.host_look import gpus, interface_of
from flodl.tasks.init import cluster_text, read_host
from tests.tasks.conftest import Flodl
from tests.tasks.standins import nvidia_smi, program

CARD = {"name": "GTX 1060, 6 GB", "capability": [6, 1], "memory_mib": "6144", "driver": "580.1"}


def answer(hostname: str, *cards: dict[str, object], interface: str = "eno1", client: str = "") -> dict[str, object]:
    return {"hostname": hostname, "python": "3.12.3", "machine": "x86_64", "cores": 8, "home": "/home/me",
            "address": "10.0.0.7", "interface": interface, "client": client, "gpus": list(cards),
            "trouble": ""}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "host", "user", "port"),
    [
        ("old", "old", None, None),
        ("me@old", "old", "me", None),
        ("me@old.lan:2222", "old.lan", "me", 2222),
        ("[fe80::1]:22", "fe80::1", None, 22),
    ],
)
def test_a_host_is_read_as_ssh_reads_it(text: str, host: str, user: str | None, port: int | None) -> None:
    found = read_host(text)
    assert (found.host, found.ssh.user, found.ssh.port) == (host, user, port)


@pytest.mark.parametrize("text", ["", "-x", "me@-x", "a b", "me@", "a:b", "a@b@c", "old:"])
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text) or r"^$"):
        read_host(text)


def test_the_file_says_what_the_hosts_said(here: Path) -> None:
    specs = [read_host("localhost"), read_host("me@old:2222")]
    found = {"localhost": answer("desk", interface="enp1s0"), "old": answer("attic", CARD, CARD, client="10.0.0.1")}
    text = cluster_text(specs, found, {"localhost"}, "10.0.0.9")
    tree = yaml.safe_load(text)
    assert tree["controller"] == {"host": "10.0.0.1"}, "as the other host has seen it"
    assert tree["workers"] == [
        {"host": "localhost", "local_devices": "cpu:1", "nccl_socket_ifname": "enp1s0", "path": str(here)},
        {"host": "old", "ssh": {"user": "me", "port": 2222}, "local_devices": "all", "nccl_socket_ifname": "eno1",
         "path": f"/home/me/{here.name}"},
    ]  # fmt: skip
    assert "# GPU 1: GTX 1060, 6 GB, 6144 MiB, capability 6.1, driver 580.1" in text
    assert "attic, x86_64, 8 cores, python 3.12.3" in text


def test_this_machine_is_written_and_the_file_composes(flodl: Flodl, here: Path) -> None:
    done = flodl("task=init", "hosts=localhost")
    assert done.code == 0, done
    assert "conf/cluster/mine.yaml is written" in done.out
    planned = flodl("cluster=mine", "launch.dry_run=true")
    assert planned.code == 0, planned
    assert "rank 0      localhost" in planned.out


def test_cards_become_comments(flodl: Flodl, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(here / "bin", [("RTX 5060 Ti", "12.0")])
    monkeypatch.setenv("PATH", f"{here / 'bin'}{os.pathsep}{os.environ['PATH']}")
    text = flodl("task=init", "hosts=[localhost]", "write=null").out
    assert "# GPU 0: RTX 5060 Ti, 8192 MiB, capability 12.0, driver 580.1" in text
    assert yaml.safe_load(text)["workers"][0]["local_devices"] == "all"


def test_a_file_that_exists_is_never_overwritten(flodl: Flodl, here: Path) -> None:
    file = here / "conf" / "cluster" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    done = flodl("task=init", "hosts=localhost")
    assert done.code == 2
    assert "write=conf/cluster/mine.yaml: exists, and is not overwritten" in done.err
    assert file.read_text() == "mine"


def test_every_wrong_host_is_named(flodl: Flodl) -> None:
    done = flodl("task=init", "hosts=['a b','-x',old,old]")
    assert done.code == 2
    for words in ("hosts=a b: is no host", "hosts=-x: is no host", "hosts=old: stands there twice"):
        assert words in done.err


def test_an_interface_is_found_by_its_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("::1") in ("lo", "")
    assert interface_of("192.0.2.77") == ""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 9", "nothing, and ended with 9"),
        ("echo 'No devices were found'", "No devices were found"),
        ("echo 'Driver/library version mismatch' >&2; exit 18", "Driver/library version mismatch"),
        ("echo nonsense; echo 'a, b, c, d'", "nonsense"),
        ("echo 'GPU, [N/A], 5, 6'", "GPU, [N/A], 5, 6"),
    ],
)
def test_a_broken_driver_is_no_host_without_cards(
    here: Path, monkeypatch: pytest.MonkeyPatch, flodl: Flodl, script: str, said: str
) -> None:
    program(here / "bin", "nvidia-smi", script)
    monkeypatch.setenv("PATH", f"{here / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert gpus() == ([], f"nvidia-smi says: {said}")
    text = flodl("task=init", "hosts=[localhost]", "write=null").out
    assert f"local_devices: cpu:1 # one CPU rank: nvidia-smi says: {said}" in text
    assert yaml.safe_load(text)["workers"][0]["local_devices"] == "cpu:1"
