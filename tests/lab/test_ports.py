"""FAULTS rows 16 and 17: ports that are taken, runs at once, and strangers at the door."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest
import zmq

from flodl.decide.messages import RankReady, WindowDone
from flodl.record.journal import read_journal
from tests.e2e.command import Command
from tests.lab.host import PYTHON
from tests.lab.lab import Lab
from tests.lab.running import ENDLESS, SHORT, flodl, lone_ranks, write_own

PORT = 29400
PACED = """\
import time
from flodl.steps.classification import Classification

class Paced(Classification):
    def __call__(self, model, batch):
        time.sleep(0.05)
        return super().__call__(model, batch)
"""
CROWD = """\
import os, socket, sys, time
lines = []
for number in range(1000):
    line = socket.create_connection((sys.argv[1], int(sys.argv[2]) + number % 2), timeout=5)
    line.setblocking(False)
    lines.append(line)
    try:
        line.send(os.urandom(2000) if number % 3 else b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    except OSError:
        pass
print(len(lines), flush=True)
sys.stdin.read()
"""


def fixed(lab: Lab, desk: Path) -> None:
    cluster = lab.cluster()
    cluster["controller"]["port"] = PORT
    lab.write_cluster(desk / "conf/cluster/lab.yaml", cluster)


@pytest.mark.row(16)
def test_a_busy_port_is_an_error_that_names_its_holder(lab: Lab, desk: Path) -> None:
    fixed(lab, desk)
    which = PORT + 1  # of bulk; that of control is in tests/engine
    with socket.create_server((lab.controller, which)), flodl(desk, *SHORT) as run:
        assert run.end(40) == 3, run.output
        assert str(which) in run.output
        assert f"process {os.getpid()} " in run.output


@pytest.mark.row(16)
def test_two_runs_on_the_same_hosts_in_the_same_second_share_nothing(lab: Lab, desk: Path) -> None:
    job = [word for word in SHORT if not word.startswith("hydra.run.dir")]  # each takes the folder of its own
    outputs = desk / "outputs"
    outputs.mkdir()
    second = desk / "second"
    for folder in (desk, second):
        lab.write_cluster(folder / "conf/cluster/lab.yaml", lone_ranks(lab))
    (second / "outputs").symlink_to(outputs)
    with flodl(desk, *job) as one, flodl(second, *job) as two:
        assert one.end(120) == 0, one.output
        assert two.end(120) == 0, two.output
    folders = [path.parent for path in outputs.rglob("result.json")]
    assert len(folders) == 2
    assert len({(folder / "journal.jsonl").read_bytes() for folder in folders}) == 2


def samples_in(run: Command, seconds: float) -> int:
    """Samples that ranks report as trained within that time."""

    def trained() -> int:
        _, entries = read_journal(run.folder / "run" / "journal.jsonl")
        return sum(event.samples for event, _ in entries if isinstance(event, WindowDone))

    before = trained()
    time.sleep(seconds)
    return trained() - before


def strange_clients(lab: Lab, context: zmq.Context[zmq.Socket[bytes]]) -> list[zmq.Socket[bytes]]:
    """ZeroMQ peers without a key, and with one that nobody gave out."""
    sockets = []
    for number in range(20):
        client = context.socket(zmq.DEALER)
        client.linger = 0
        if number % 2:
            client.curve_publickey, client.curve_secretkey = zmq.curve_keypair()
            client.curve_serverkey = zmq.curve_keypair()[0]
        client.connect(f"tcp://{lab.controller}:{PORT + number % 4 // 2}")
        client.send(b"hello")
        sockets.append(client)
    return sockets


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.row(17)
def test_strangers_at_the_ports_change_neither_the_run_nor_its_pace(lab: Lab, desk: Path) -> None:
    fixed(lab, desk)
    write_own(lab, desk, "paced.py", PACED)
    job = (*ENDLESS, "step._target_=paced.Paced", "elche.anchor=4", "elche.max_anchor=4", "trainer.batch_size=8")
    with flodl(desk, *job) as run:
        run.trains()
        memory, alone = resident_bytes(run.process.pid), samples_in(run, 6)
        clients: list[zmq.Socket[bytes]] = []
        context = zmq.Context[zmq.Socket[bytes]]()
        crowd = lab["node-c"].popen([PYTHON, "-S", "-c", CROWD, lab.controller, str(PORT)])
        try:
            clients = strange_clients(lab, context)
            assert crowd.stdout is not None
            assert crowd.stdout.readline() == "1000\n"
            crowded = samples_in(run, 6)
        finally:
            crowd.communicate("")
            for client in clients:
                client.close()
            context.term()
        assert crowded > 0.95 * alone
        assert resident_bytes(run.process.pid) - memory < 64 << 20
        assert run.process.poll() is None
        run.signal(signal.SIGINT)
        assert run.end(120) == 75
        assert len(re.findall(r"warning: \d{3,} connections to the controller's ports", run.output)) == 1
        _, entries = read_journal(desk / "run" / "journal.jsonl")
        assert sorted(event.rank for event, _ in entries if isinstance(event, RankReady)) == [0, 1, 2, 3, 4, 5]
