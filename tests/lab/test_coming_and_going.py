"""Labs do not clash, and whatever way one ends, nothing of it stays on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab.lab import Lab
from tests.lab.shell import Process, run
from tests.lab.state import Ledger, ledgers, sweep

ROOT = Path(__file__).parents[2]
MAKER = """\
import signal, sys
from tests.lab.lab import Lab
lab = Lab(2).up()
print(lab.network.ledger.name, flush=True)
signal.pause()
"""


def interfaces() -> set[str]:
    return {line.split("@")[0].split()[0] for line in run("ip", "-br", "link").splitlines()}


@pytest.fixture
def own_labs(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for this test's labs alone. (It asks for a lab so that it skips where none can be.)"""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def gone(processes: list[Process], name: str) -> bool:
    return not any(process.lives for process in processes) and name not in interfaces()


def awaited(processes: list[Process], name: str) -> bool:
    deadline = time.monotonic() + 5
    while not gone(processes, name) and time.monotonic() < deadline:
        time.sleep(0.02)
    return gone(processes, name)


def test_two_labs_at_once_have_their_own_networks_and_neither_ends_the_other(lab: Lab, own_labs: Path) -> None:
    with Lab(2) as second:
        assert second.network.subnet != lab.network.subnet
        assert second["node-a"].exec(["hostname"]).stdout == "node-a\n"
        name = second.network.ledger.name
    assert name not in interfaces()
    assert list(own_labs.glob("flodl-lab-*/*")) == []
    assert lab["node-a"].exec(["hostname"]).stdout == "node-a\n"


def test_a_lab_whose_maker_is_killed_ends_and_the_next_one_removes_its_folder(own_labs: Path) -> None:
    maker = subprocess.Popen([sys.executable, "-c", MAKER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with maker:
        assert maker.stdout is not None
        ledger = Ledger(maker.stdout.readline().strip())
        processes = ledger.processes()
        assert len(processes) == 3
        assert all(process.lives for process in processes)
        assert not ledger.abandoned
        assert sweep() == []
        maker.kill()
    assert awaited(processes, ledger.name)
    assert ledger.folder.exists()
    with Lab(1):
        assert not ledger.folder.exists()


def test_a_process_that_got_the_number_of_a_dead_one_is_not_ours(own_labs: Path) -> None:
    here = Process.of(os.getpid())
    assert here is not None
    ledger = Ledger("flab9999")
    assert ledger.claim(kept=False)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        ledger.note([Process(stranger.pid, here.started - 1)], {})
        ledger.erase()
        assert stranger.poll() is None
        stranger.send_signal(signal.SIGTERM)
    assert not ledger.folder.exists()


def command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_up_stays_when_its_command_has_ended_status_shows_it_and_down_removes_it(own_labs: Path) -> None:
    try:
        told = command("up", "2")
        (ledger,) = ledgers()
        assert "2 hosts are up" in told
        assert f"{ledger.name}  up  3 processes" in command("status")
        assert sweep() == []
        config = ledger.folder / "ssh_config"
        login = ["ssh", "-F", str(config), "-o", "BatchMode=yes", "node-b", "hostname"]
        assert subprocess.run(login, capture_output=True, text=True, timeout=20).stdout == "node-b\n"
        processes = ledger.processes()
    finally:
        removed = command("down")
    assert removed == f"removed: {ledger.name}\n"
    assert awaited(processes, ledger.name)
    assert list(ledgers()) == []
    assert command("down") == "removed: nothing was there\n"


def test_where_there_is_no_root_a_lab_is_skipped_with_the_reason(lab: Lab) -> None:
    code = "import os; from tests.lab.shell import reason_for_no_lab as r; os.setuid(65534); print(r())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert done.stdout == "the lab needs root (network namespaces, sshd)\n"
