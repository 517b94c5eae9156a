"""The wires of a lab: a bridge in a namespace of its own, one cable to this machine and one to each host.

This machine sees a single interface, `flab<n>`, with the controller's address 198.18.x.1/24 (a range that RFC 2544
keeps for test set-ups). Bridging happens where no firewall of this machine reaches, and all of it ends with one
process.
"""

from __future__ import annotations

import ipaddress
import json
import random
import subprocess
from pathlib import Path

from tests.lab.shell import CLEAN, LabError, Process, run
from tests.lab.state import Ledger

__all__ = ["INTERFACE", "Network"]

INTERFACE = "lab0"  # of every host
SUBNETS = 512  # /24 networks in 198.18.0.0/15
FIRST_HOST = 11


def _subnet(number: int) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network((int(ipaddress.IPv4Address("198.18.0.0")) + 256 * number, 24))


def _routed() -> list[ipaddress.IPv4Network]:
    """Networks that this machine has a route to already, the default route excepted."""
    routes = json.loads(run("ip", "-j", "-4", "route", "show", "table", "all") or "[]")
    named = [route["dst"] for route in routes if route["dst"] != "default"]
    return [ipaddress.IPv4Network(name, strict=False) for name in named]


class Network:
    """One lab's bridge and cables. `take` makes it, `close` ends it."""

    def __init__(self, ledger: Ledger, subnet: ipaddress.IPv4Network, switch: subprocess.Popen[bytes]) -> None:
        self.ledger = ledger
        self.subnet = subnet
        self._switch = switch

    @classmethod
    def take(cls, *, kept: bool) -> Network:
        """A network that nobody on this machine uses: the interface's name is the lock."""
        routed = _routed()
        for number in random.sample(range(SUBNETS), SUBNETS):
            subnet, ledger = _subnet(number), Ledger(f"flab{number}")
            if any(subnet.overlaps(other) for other in routed) or not ledger.claim(kept=kept):
                continue
            try:
                run("ip", "link", "add", ledger.name, "type", "veth", "peer", "name", f"{ledger.name}s")
            except LabError as error:
                ledger.erase()
                if "File exists" in str(error):
                    continue
                raise
            run("ip", "link", "set", "dev", ledger.name, "alias", ledger.folder)
            return cls(ledger, subnet, _start_switch(kept=kept))._connected()
        raise LabError("every network of 198.18.0.0/15 is taken on this machine")

    def _connected(self) -> Network:
        name, plug = self.ledger.name, f"{self.ledger.name}s"
        self.ledger.note([self.process], {})
        self._inside("ip", "link", "add", "bridge", "type", "bridge")
        self._inside("ip", "link", "set", "bridge", "up")
        run("ip", "link", "set", "dev", plug, "netns", str(self._switch.pid))
        self._inside("ip", "link", "set", plug, "name", "controller", "master", "bridge", "up")
        run("ip", "addr", "add", f"{self.controller}/24", "dev", name)
        run("ip", "link", "set", name, "up")
        return self

    @property
    def process(self) -> Process:
        process = Process.of(self._switch.pid)
        if process is None:
            raise LabError("the lab's switch has ended")
        return process

    @property
    def controller(self) -> str:
        """This machine's address in the lab."""
        return str(self.subnet[1])

    def address(self, index: int) -> str:
        return str(self.subnet[FIRST_HOST + index])

    def _inside(self, *command: str, check: bool = True) -> str:
        return run("nsenter", "--target", str(self._switch.pid), "--net", *command, check=check)

    def plug_in(self, index: int, pid: int) -> None:
        """A cable from the bridge to the namespace of that process."""
        port, plug = f"port{index}", f"plug{index}"
        self._inside("ip", "link", "del", port, check=False)  # of a host that died: the kernel takes its time
        # The same hardware address after a power cut, as of a real card: neighbours need not find out for seconds.
        card = f"02:f1:0d:00:00:{FIRST_HOST + index:02x}"
        self._inside("ip", "link", "add", port, "type", "veth", "peer", "name", plug, "address", card)
        self._inside("ip", "link", "set", "dev", plug, "netns", str(pid))
        self._inside("ip", "link", "set", port, "master", "bridge", "up")
        inside = ("nsenter", "--target", str(pid), "--net", "ip")
        run(*inside, "link", "set", plug, "name", INTERFACE)
        run(*inside, "addr", "add", f"{self.address(index)}/24", "dev", INTERFACE)
        run(*inside, "link", "set", INTERFACE, "up")

    def pull(self, index: int) -> None:
        """The cable is out: no carrier on either end, nothing gets through, and nobody is told."""
        self._inside("ip", "link", "set", f"port{index}", "down")

    def push(self, index: int) -> None:
        self._inside("ip", "link", "set", f"port{index}", "up")

    def throttle(self, index: int, rate: str) -> None:
        """What travels to the host passes at that rate (tc's words: 100mbit)."""
        self._inside("tc", "qdisc", "replace", "dev", f"port{index}", "root", *tbf(rate))

    def release(self, index: int) -> None:
        self._inside("tc", "qdisc", "del", "dev", f"port{index}", "root", check=False)

    def close(self) -> None:
        """End the switch; its interfaces, and ours with them, go with it."""
        self._switch.kill()
        self._switch.wait()
        if self._switch.stdin:
            self._switch.stdin.close()
        self.ledger.erase()


def tbf(rate: str) -> tuple[str, ...]:
    """A token bucket: bursts of 32 KiB, at most 50 ms in the queue."""
    return ("tbf", "rate", rate, "burst", "32kb", "latency", "50ms")


def _start_switch(*, kept: bool) -> subprocess.Popen[bytes]:
    """A process that does nothing but hold the bridge's namespace; ends with this one unless the lab is kept."""
    waiting = ("sleep", "infinity") if kept else ("cat",)
    switch = subprocess.Popen(
        ["unshare", "--net", *waiting],
        stdin=subprocess.DEVNULL if kept else subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # who waits for the end of its command's streams must not wait for the lab's
        env=CLEAN,
        cwd="/",
        start_new_session=True,
    )
    own = Path("/proc/self/ns/net").stat().st_ino
    while Path(f"/proc/{switch.pid}/ns/net").stat().st_ino == own:
        if switch.poll() is not None:
            raise LabError(f"unshare --net ended with {switch.returncode}")
    return switch
