"""A lab: N real hosts on this machine, each reached over SSH at an address of its own, and a cluster file for them.

    with Lab(3) as lab:
        lab.write_cluster(folder / "conf/cluster/lab.yaml")
        lab["node-b"].exec(["hostname"])
        lab.link_down("node-c")

This machine is the controller, outside of every namespace. Hosts share its software (read as it lies here) and nothing
else: /srv, /root, /tmp, /run and /dev/shm are their own and empty.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from tests.lab.faults import Faults
from tests.lab.host import PYTHON, Host
from tests.lab.network import INTERFACE, Network
from tests.lab.shell import Process, run
from tests.lab.state import sweep

__all__ = ["Lab"]

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Lab(Faults):
    """Hosts node-a, node-b, ... on a network of their own. kept: they outlive this process (the command `up`)."""

    def __init__(self, count: int = 3, *, kept: bool = False) -> None:
        super().__init__()
        if not 1 <= count <= len(LETTERS):
            raise ValueError(f"a lab has 1 to {len(LETTERS)} hosts, not {count}")
        self._count = count
        self._kept = kept

    # ----------------------------------------------------------------------------------------- up and down

    def up(self) -> Lab:
        """Erase what crashed labs left, then make this one; whole or not at all."""
        sweep()
        self.network = Network.take(kept=self._kept)
        self.hosts = []
        try:
            self._make_identity()
            for index in range(self._count):
                self.hosts.append(self._place_for(index))
            self._write_files()
            for host in self.hosts:
                host.boot(kept=self._kept)
            for host in self.hosts:
                self._finish(host)
        except BaseException:
            self.down()
            raise
        return self

    def down(self) -> None:
        """End every host and cable, and remove the folder."""
        with contextlib.ExitStack() as last:
            last.callback(self.network.close)
            for host in self.hosts:
                last.callback(host.kill)

    def __enter__(self) -> Lab:
        return self.up()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.down()

    def power_on(self, name: str) -> None:
        """A host that was killed comes back: the same name, address and keys, empty disks."""
        host = self[name]
        host.boot(kept=self._kept)
        self._finish(host)

    def processes(self) -> dict[str, dict[int, str]]:
        """Host -> pid here -> command line, of whatever runs on hosts beside what makes them hosts."""
        return {host.name: found for host in self.hosts if (found := host.processes())}

    def reset(self) -> None:
        """Undo every fault, end every process that a test left, and give every host its disks as they were."""
        self.heal()
        for host in self.hosts:
            host.end_processes()
            host.empty()
            host.furnish(self.identity.with_suffix(".pub").read_text())

    def _place_for(self, index: int) -> Host:
        name = f"node-{LETTERS[index]}"
        folder = self.folder / "hosts" / name
        folder.mkdir(parents=True)
        host = Host(name, index, self.network.address(index), folder)
        host.make_key()
        return host

    def _finish(self, host: Host) -> None:
        host.await_boot()
        self._note()
        self.network.plug_in(host.index, host.first.pid)
        host.furnish(self.identity.with_suffix(".pub").read_text())
        host.listen()

    def _note(self) -> None:
        powered: list[Process] = [host.first for host in self.hosts if host.powered]
        self.network.ledger.note([self.network.process, *powered], {host.name: host.address for host in self.hosts})

    # ------------------------------------------------------------------------------------------------ files

    @property
    def folder(self) -> Path:
        """The lab's own folder, closed to other users."""
        return self.network.ledger.folder

    @property
    def controller(self) -> str:
        """This machine's address in the lab."""
        return self.network.controller

    @property
    def identity(self) -> Path:
        """The private key that every host lets in, as root."""
        return self.folder / "identity"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def _make_identity(self) -> None:
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "flodl lab", "-f", self.identity)

    def _write_files(self) -> None:
        lines = [host.known_hosts_line() for host in self.hosts]
        self.known_hosts.write_text("\n".join(lines) + "\n")
        names = [f"{host.address} {host.name}" for host in self.hosts]
        names = ["127.0.0.1 localhost", "::1 localhost", f"{self.controller} controller", *names]
        for host in self.hosts:
            (host.folder / "hosts").write_text("\n".join(names) + "\n")
            (host.folder / "hostname").write_text(f"{host.name}\n")
            (host.folder / "passwd").write_text(_passwd())
            (host.folder / "shadow").write_text("root:*:19000:0:99999:7:::\n")
        (self.folder / "ssh_config").write_text("".join(self._ssh_section(host) for host in self.hosts))
        self.write_cluster(self.folder / "conf/cluster/lab.yaml")

    def _ssh_section(self, host: Host) -> str:
        return (
            f"Host {host.name}\n  HostName {host.address}\n  User root\n  IdentityFile {self.identity}\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {self.known_hosts}\n  StrictHostKeyChecking yes\n\n"
        )

    def cluster(self) -> dict[str, Any]:
        """The cluster block for this lab: two CPU ranks per host. Change what the test is about, then write it."""
        return {
            "defaults": ["local", "_self_"],
            "controller": {"host": self.controller},
            "workers": [self.worker(host.name) for host in self.hosts],
        }

    def worker(self, name: str) -> dict[str, Any]:
        """One entry of `workers`."""
        host = self[name]
        return {
            "host": host.name,
            "ssh": {
                "target": host.address,
                "user": "root",
                "identity_file": str(self.identity),
                "known_hosts": str(self.known_hosts),
            },
            "local_devices": "cpu:2",
            "nccl_socket_ifname": INTERFACE,
            "path": "/srv/project",
            "python": PYTHON,
            "data_path": "/srv/data",
        }

    def write_cluster(self, file: Path, cluster: dict[str, Any] | None = None) -> Path:
        """A cluster file; `./conf/cluster/<name>.yaml` of a working folder is found by its name."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(cluster or self.cluster(), sort_keys=False, allow_unicode=True))
        return file


def _passwd() -> str:
    """This machine's users, with root at /root and in bash whatever it is here."""
    others = [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("root:")]
    return "\n".join(["root:x:0:0:root:/root:/bin/bash", *others]) + "\n"
