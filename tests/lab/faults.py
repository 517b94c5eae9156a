"""What may go wrong in a lab, as methods. Each notes how it is undone, and `heal` undoes all, newest first."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from tests.lab.first_process import DISK, DISK_SIZE
from tests.lab.host import DEFAULT_MAX_STARTUPS, PYTHON, Host
from tests.lab.network import INTERFACE, Network, tbf
from tests.lab.shell import LabError

__all__ = ["Faults"]

CLOCK = """\
import datetime, time
OFFSET = {offset!r}
_time, _time_ns, _gmtime, _localtime = time.time, time.time_ns, time.gmtime, time.localtime
_clock_gettime, _real = time.clock_gettime, datetime.datetime
time.time = lambda: _time() + OFFSET
time.time_ns = lambda: _time_ns() + int(OFFSET * 1e9)
time.gmtime = lambda seconds=None: _gmtime(time.time() if seconds is None else seconds)
time.localtime = lambda seconds=None: _localtime(time.time() if seconds is None else seconds)
time.clock_gettime = lambda clock: _clock_gettime(clock) + OFFSET * (clock == time.CLOCK_REALTIME)
class datetime_of_the_host(_real):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
    @classmethod
    def utcnow(cls):
        return cls.utcfromtimestamp(time.time())
datetime.datetime = datetime_of_the_host
"""


class Faults:
    """Faults by the name of the host. What is left in place is undone by `heal`, at the end of each test."""

    network: Network
    hosts: list[Host]

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()

    def __getitem__(self, name: str) -> Host:
        for host in self.hosts:
            if host.name == name:
                return host
        raise LabError(f"no host {name}; there are {', '.join(host.name for host in self.hosts)}")

    def heal(self) -> None:
        """Undo every fault."""
        self._undo.close()

    def _afterwards(self, host: Host, undo: Callable[[], object]) -> None:
        """Undo that needs a host with power; a host that was killed is furnished anew anyway."""
        self._undo.callback(lambda: host.powered and undo())

    # --------------------------------------------------------------------------------------------- the wire

    def link_down(self, name: str) -> None:
        """The cable is pulled: nothing gets through either way, and no connection is told."""
        host = self[name]
        self.network.pull(host.index)
        self._afterwards(host, lambda: self.network.push(host.index))

    def link_up(self, name: str) -> None:
        self.network.push(self[name].index)

    def drop(self, name: str, chain: str = "INPUT") -> None:
        """The host's firewall swallows all that comes in (INPUT) or goes out (OUTPUT); the cable stays."""
        self._firewall(name, chain, "-i" if chain == "INPUT" else "-o", "-j", "DROP")

    def block_ports(self, name: str, ports: str = "1024:65535", verdict: str = "DROP") -> None:
        """The host's firewall lets no new TCP connection in on these ports ("first:last"). REJECT says so."""
        self._firewall(name, "INPUT", "-i", "-p", "tcp", "--syn", "--dport", ports, "-j", verdict)

    def close_port(self, name: str, port: int, verdict: str = "DROP") -> None:
        """This one TCP port of anybody, the controller's for example, is out of reach for the host."""
        self._firewall(name, "OUTPUT", "-o", "-p", "tcp", "--dport", str(port), "-j", verdict)

    def _firewall(self, name: str, chain: str, side: str, *rule: str) -> None:
        host = self[name]
        host.exec(["iptables", "-A", chain, side, INTERFACE, *rule])
        self._afterwards(host, lambda: host.exec(["iptables", "-D", chain, side, INTERFACE, *rule], check=False))

    def open_firewall(self, name: str) -> None:
        """Drop every rule of the host's firewall again."""
        self[name].exec(["iptables", "-F"])

    def slow(self, name: str, rate: str) -> None:
        """The host's cable carries this much and no more, each way (tc's words: 100mbit)."""
        host = self[name]
        self.network.throttle(host.index, rate)
        host.exec(["tc", "qdisc", "replace", "dev", INTERFACE, "root", *tbf(rate)])
        self._undo.callback(self.network.release, host.index)
        self._afterwards(host, lambda: host.exec(["tc", "qdisc", "del", "dev", INTERFACE, "root"], check=False))

    # -------------------------------------------------------------------------------------------- the login

    def noisy_shell(self, name: str, text: str = "Welcome to the machine") -> None:
        """Its ~/.bashrc prints, on both outputs, before any command of a login."""
        self._bashrc(name, f"cat <<'NOISE'\n{text}\nNOISE\ncat >&2 <<'NOISE'\n{text}\nNOISE\n")

    def shell_exit(self, name: str, code: int = 3) -> None:
        """Its ~/.bashrc ends the shell: no command of a login is ever run."""
        self._bashrc(name, f"exit {code}\n")

    def _bashrc(self, name: str, text: str) -> None:
        host = self[name]
        host.write("/root/.bashrc", text)
        self._afterwards(host, lambda: host.write("/root/.bashrc", ""))

    def change_host_key(self, name: str) -> None:
        """The host has another key from now on; known_hosts still holds the old one."""
        host = self[name]
        before = {file: (host.folder / file).read_text() for file in ("host_key", "host_key.pub")}

        def present() -> None:
            host.write("/run/sshd/host_key", (host.folder / "host_key").read_text(), mode=0o600)
            host.listen()

        def restore() -> None:
            for file, text in before.items():
                (host.folder / file).write_text(text)
            if host.powered:
                present()

        host.make_key()
        present()
        self._undo.callback(restore)

    def max_startups(self, name: str, limit: str = DEFAULT_MAX_STARTUPS) -> None:
        """Its sshd drops logins at random: begin:percent:full, counting those not yet authenticated."""
        host = self[name]
        host.listen(limit)
        self._afterwards(host, host.listen)

    def refuse_keys(self, name: str) -> None:
        """Nobody's key is known to the host."""
        host = self[name]
        before = host.read("/root/.ssh/authorized_keys")
        host.write("/root/.ssh/authorized_keys", "", mode=0o600)
        self._afterwards(host, lambda: host.write("/root/.ssh/authorized_keys", before, mode=0o600))

    def stop_sshd(self, name: str) -> None:
        """Nobody listens on port 22: connections are refused."""
        host = self[name]
        host.end_sshd()
        self._afterwards(host, host.listen)

    # --------------------------------------------------------------------------------------------- the host

    def wrong_clock(self, name: str, offset_seconds: float) -> None:
        """The host's interpreter (/srv/env) reads a wall clock that is off by so much; monotonic clocks are right."""
        host = self[name]
        place = f"{PYTHON.removesuffix('/bin/python')}/lib/{_library()}/site-packages"
        host.write(f"{place}/wrong_clock.py", CLOCK.format(offset=float(offset_seconds)))
        host.write(f"{place}/wrong_clock.pth", "import wrong_clock\n")
        self._afterwards(host, lambda: host.path(f"{place}/wrong_clock.pth").unlink(missing_ok=True))

    def fill_disk(self, name: str, left_bytes: int = 0) -> None:
        """The disk at /srv holds what it holds, and has room for so many bytes more."""
        host = self[name]
        used = int(host.exec(["df", "--block-size=1", "--output=used", DISK]).stdout.split()[-1])
        host.exec(["mount", "-o", f"remount,size={used + left_bytes}", DISK])
        self._afterwards(host, lambda: host.exec(["mount", "-o", f"remount,size={DISK_SIZE}", DISK]))

    def kill(self, name: str) -> None:
        """A power cut: every process is gone, and no connection is told. `heal` or `power_on` brings it back, empty."""
        host = self[name]
        self.network.pull(host.index)
        host.kill()
        self._undo.callback(lambda: host.powered or self.power_on(name))

    def power_on(self, name: str) -> None:
        raise NotImplementedError


def _library() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"
