"""The lab itself: hosts are hosts, each fault does what it says, and all of it can be taken back."""

from __future__ import annotations

import subprocess

from tests.lab.lab import Lab


def ssh(lab: Lab, name: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The system's own ssh, as a person would use it."""
    words = ["ssh", "-F", str(lab.folder / "ssh_config"), "-o", "ConnectTimeout=5", "-o", "BatchMode=yes", *options]
    return subprocess.run([*words, name, command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)


def test_every_host_answers_over_ssh_by_its_own_name_and_address(lab: Lab) -> None:
    for host in lab.hosts:
        done = ssh(lab, host.name, "hostname; getent hosts $(hostname)")
        assert (done.returncode, done.stdout.split()) == (0, [host.name, host.address, host.name]), done.stderr
