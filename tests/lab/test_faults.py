"""Each fault does what its name says, to the host that is named, and healing takes it back."""

from __future__ import annotations

import socket
import time

import pytest

from tests.lab.faults import Faults
from tests.lab.host import PYTHON, Host
from tests.lab.lab import Lab
from tests.lab.talk import ANSWER_SECONDS, dial, listening, reaches, ssh

PORT = 7000


def answers(connection: socket.socket, within_seconds: float) -> bool:
    """Whether the echo of a word comes back in time."""
    connection.sendall(b"word")
    connection.settimeout(within_seconds)
    try:
        return connection.recv(100) == b"word"
    except TimeoutError:
        return False


@pytest.mark.parametrize("cut", [Faults.link_down, Faults.drop])
def test_a_cut_tells_nobody_and_a_healed_connection_goes_on(lab: Lab, cut: object) -> None:
    host = lab["node-b"]
    with listening(host, PORT), dial(host, PORT) as connection:
        assert answers(connection, ANSWER_SECONDS)
        cut(lab, "node-b")  # type: ignore[operator]
        assert not answers(connection, 0.5)
        lab.heal()
        connection.settimeout(5)
        assert connection.recv(100) == b"word"  # sent while it was cut


def test_a_pulled_cable_takes_the_carrier_and_comes_back_with_link_up(lab: Lab) -> None:
    state = "/sys/class/net/lab0/carrier"
    lab.link_down("node-a")
    assert lab["node-a"].exec(["cat", state]).stdout == "0\n"
    assert lab["node-c"].exec(["cat", state]).stdout == "1\n"
    lab.link_up("node-a")
    assert lab["node-a"].exec(["cat", state]).stdout == "1\n"


def test_one_way_loss_leaves_the_other_way_open(lab: Lab) -> None:
    host = lab["node-b"]
    with host.popen([PYTHON, "-S", "-c", RECEIVE, host.address, str(PORT)]) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "listening\n"
        lab.drop("node-b", "OUTPUT")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"one way", (host.address, PORT))
        assert receiver.stdout.readline() == "one way\n"
    assert reaches(lab["node-a"], host.address, 22) == "TimeoutError"


RECEIVE = """\
import socket, sys
door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
door.bind((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
print(door.recv(100).decode())
"""


@pytest.mark.parametrize(("verdict", "error"), [("DROP", "TimeoutError"), ("REJECT", "ConnectionRefusedError")])
def test_blocked_ports_are_blocked_for_newcomers_to_that_host_alone(lab: Lab, verdict: str, error: str) -> None:
    a, b, c = lab.hosts
    lab.block_ports("node-b", "1024:65535", verdict)
    with listening(b, PORT), listening(c, PORT):
        assert reaches(a, b.address, PORT) == error
        assert reaches(a, c.address, PORT) == "reached"
        assert reaches(b, c.address, 22) == "reached"  # answers to its own connections come in
        assert reaches(a, b.address, 22) == "reached"  # below the range


def test_a_closed_port_is_out_of_reach_for_that_host_alone(lab: Lab) -> None:
    lab.close_port("node-b", PORT)
    with socket.create_server((lab.controller, PORT)):
        assert reaches(lab["node-a"], lab.controller, PORT) == "reached"
        assert reaches(lab["node-b"], lab.controller, PORT) == "TimeoutError"
        lab.open_firewall("node-b")
        assert reaches(lab["node-b"], lab.controller, PORT) == "reached"


def test_a_slow_cable_carries_its_rate_each_way(lab: Lab) -> None:
    lab.slow("node-b", "16mbit")
    megabyte = "head -c 1000000 /dev/zero"
    for command in (megabyte, f"ssh -o StrictHostKeyChecking=no root@{lab['node-c'].address} true; {megabyte}"):
        began = time.monotonic()
        assert len(ssh(lab, "node-b", command).stdout) == 1_000_000
        assert 0.35 < time.monotonic() - began < 3.0  # 0.5 s on the wire


def test_a_noisy_shell_talks_before_the_command_on_both_outputs(lab: Lab) -> None:
    lab.noisy_shell("node-a", "don't `panic` $HOME")
    done = ssh(lab, "node-a", "echo mine")
    assert (done.stdout, done.stderr) == ("don't `panic` $HOME\nmine\n", "don't `panic` $HOME\n")


def test_a_shell_that_ends_runs_no_command(lab: Lab) -> None:
    lab.shell_exit("node-a", 3)
    done = ssh(lab, "node-a", "touch /tmp/ran")
    assert (done.returncode, lab["node-a"].path("/tmp/ran").exists()) == (3, False)
    lab.heal()
    assert ssh(lab, "node-a", "touch /tmp/ran").returncode == 0


def test_a_changed_host_key_is_noticed_by_ssh_and_the_old_one_comes_back(lab: Lab) -> None:
    lab.change_host_key("node-b")
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in ssh(lab, "node-b", "true").stderr
    lab.heal()
    assert ssh(lab, "node-b", "true").returncode == 0


def test_max_startups_drops_a_login_when_so_many_wait(lab: Lab) -> None:
    host = lab["node-b"]
    lab.max_startups("node-b", "2:100:2")
    waiting = [dial(host, 22) for _ in range(2)]
    try:
        assert all(connection.recv(100).startswith(b"SSH-2.0") for connection in waiting)
        assert ssh(lab, "node-b", "true").returncode == 255
    finally:
        for connection in waiting:
            connection.close()
    assert "drop connection" in host.sshd_log()


def test_refused_keys_and_a_stopped_sshd_are_two_different_answers(lab: Lab) -> None:
    lab.refuse_keys("node-a")
    lab.stop_sshd("node-b")
    assert "Permission denied (publickey)" in ssh(lab, "node-a", "true").stderr
    assert "Connection refused" in ssh(lab, "node-b", "true").stderr
    lab.heal()
    assert [ssh(lab, name, "true").returncode for name in ("node-a", "node-b")] == [0, 0]


def wall_clock_offset(host: Host, code: str) -> float:
    return float(host.exec([PYTHON, "-c", code]).stdout) - time.time()


def test_a_wrong_clock_is_the_hosts_wall_clock_and_not_its_monotonic_one(lab: Lab) -> None:
    host = lab["node-c"]
    lab.wrong_clock("node-c", -30)
    for code in ("import time; print(time.time())",
                 "import time; print(time.time_ns() / 1e9)",
                 "import time; print(time.clock_gettime(time.CLOCK_REALTIME))",
                 "import datetime; print(datetime.datetime.now().timestamp())"):  # fmt: skip
        assert wall_clock_offset(host, code) == pytest.approx(-30, abs=3)
    monotonic = float(host.exec([PYTHON, "-c", "import time; print(time.monotonic())"]).stdout)
    assert monotonic == pytest.approx(time.monotonic(), abs=3)


def test_a_full_disk_takes_what_was_left_and_not_a_byte_more(lab: Lab) -> None:
    host = lab["node-a"]
    write = [PYTHON, "-S", "-c", "open('/srv/project/x', 'wb').write(bytes(100_000))"]
    lab.fill_disk("node-a", 40_000)
    assert "No space left on device" in host.exec(write, check=False).stderr
    lab.heal()
    host.exec(write)


def test_a_power_cut_ends_all_processes_and_tells_no_connection(lab: Lab) -> None:
    host = lab["node-b"]
    with listening(host, PORT), dial(host, PORT) as connection:
        assert answers(connection, ANSWER_SECONDS)
        lab.kill("node-b")
        assert not answers(connection, 0.5)
    assert not host.powered
    lab.heal()
    assert ssh(lab, "node-b", "hostname").stdout == "node-b\n"  # the same name, address and key
