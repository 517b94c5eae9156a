"""Secrets on real hosts: a passed value and the run's keys are in no argument and no file, and only ranks hold them."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.live import ROOT
from tests.lab.host import PRIVATE
from tests.lab.lab import Lab
from tests.lab.running import ENDLESS, RANK, awaited

NAME = "TOKEN_OF_A_TEST"
TELLING = """\
import os, sys
import flodl.trainer as trainer
door, make = int(sys.argv.pop(1)), trainer.make_keys
def make_and_tell(ranks):
    keys = make(ranks)
    pairs = [keys.server, *keys.by_rank.values()]
    with os.fdopen(door, "w") as told:
        told.write(" ".join(pair.secret.decode() for pair in pairs))
    return keys
trainer.make_keys = make_and_tell
from flodl.__main__ import main
sys.exit(main())
"""


def files(place: Path) -> Iterator[Path]:
    """Regular files below, software of this machine that shows through left out."""
    device = place.stat().st_dev
    for folder, inner, names in os.walk(place):
        inner[:] = [name for name in inner if (Path(folder) / name).stat().st_dev == device]
        yield from (path for name in names if (path := Path(folder) / name).is_file() and not path.is_symlink())


def holders(words: list[bytes], place: Path) -> list[Path]:
    return [path for path in files(place) if any(word in path.read_bytes() for word in words)]


def shown(pid: int, what: str) -> bytes:
    return Path(f"/proc/{pid}/{what}").read_bytes()


def test_a_passed_value_and_the_keys_are_in_their_ranks_and_nowhere_else(
    lab: Lab, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = secrets.token_hex(16)
    monkeypatch.setenv(NAME, value)
    lab.write_cluster(desk / "conf/cluster/lab.yaml", lab.cluster() | {"env_pass": [NAME]})
    read, write = os.pipe()
    words = [sys.executable, "-c", TELLING, str(write), *ENDLESS]
    with (desk / "output.txt").open("wb") as output:
        run = subprocess.Popen(
            words, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=output, stderr=output, pass_fds=[write]
        )
    os.close(write)
    with run, os.fdopen(read) as told:
        try:
            keys = told.read().split()
            assert len(keys) == 7  # the controller's and six ranks'
            awaited(lambda: "epoch " in (desk / "output.txt").read_text(), 90)
            look(lab, desk, run.pid, [word.encode() for word in keys], value.encode())
        finally:
            run.send_signal(signal.SIGTERM)
    assert holders([value.encode(), *(word.encode() for word in keys)], desk) == []


def look(lab: Lab, desk: Path, controller: int, keys: list[bytes], value: bytes) -> None:
    """While it trains: every process and every file, here and on the hosts."""
    on_hosts = {pid: line for found in lab.processes().values() for pid, line in found.items()}
    assert sum(RANK in line for line in on_hosts.values()) >= 9  # three warm processes, six ranks
    for pid in (controller, *on_hosts):
        assert not any(word in shown(pid, "cmdline") for word in (value, *keys))
        assert not any(word in shown(pid, "environ") for word in keys)
        if RANK not in on_hosts.get(pid, "") and pid != controller:
            assert value not in shown(pid, "environ")
    for place in (desk, *(host.path(private) for host in lab.hosts for private in PRIVATE)):
        assert holders([value, *keys], place) == []
