"""Sent to hosts: what a cluster file has to know of this one. The standard library alone; asks the driver, no CUDA.

Its one argument: {"address": "an address of this host, or empty: the one that the login came to"}.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import socket
import struct
import subprocess
import sys
from pathlib import Path

__all__ = ["gpus", "interface_of", "main"]

SIOCGIFADDR = 0x8915
QUERY = "name,compute_cap,memory.total,driver_version"


def gpus() -> tuple[list[dict[str, object]], str]:
    """What nvidia-smi lists, and what is wrong with its answer; ([], "") on a host that has none."""
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        return [], ""
    except (OSError, subprocess.SubprocessError) as error:
        return [], f"nvidia-smi: {error}"
    found: list[dict[str, object]] = []
    for line in done.stdout.splitlines():
        name, capability, memory, driver = ([""] * 4 + [part.strip() for part in line.rsplit(",", 3)])[-4:]
        major, _, minor = capability.partition(".")
        if not (name and major.isdigit() and minor.isdigit()):
            return [], f"nvidia-smi says: {line.strip()}"
        found.append({"name": name, "capability": [int(major), int(minor)], "memory_mib": memory, "driver": driver})
    if done.returncode != 0 or not found:
        said = (done.stdout + done.stderr).strip().splitlines() or [f"nothing, and ended with {done.returncode}"]
        return [], f"nvidia-smi says: {said[-1]}"
    return found, ""


def interface_of(address: str) -> str:
    """Name of the interface that has this address; "" where none has."""
    for _, name in socket.if_nameindex():
        if address in (_ipv4(name), *_ipv6(name)):
            return name
    return ""


def main() -> None:
    """Print the answer."""
    given = json.loads(sys.argv[1])
    login = os.environ.get("SSH_CONNECTION", "").split()  # client's address and port, this host's address and port
    address = given["address"] or (login[2] if len(login) == 4 else "")
    cards, trouble = gpus()
    answer = {
        "hostname": socket.gethostname(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count() or 0,
        "home": str(Path.home()),
        "address": address,
        "interface": interface_of(address) if address else "",
        "client": login[0] if len(login) == 4 else "",
        "gpus": cards,
        "trouble": trouble,
    }
    sys.stdout.write("flodl-answer: " + json.dumps(answer) + "\n")


def _ipv4(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            answer = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def _ipv6(name: str) -> list[str]:
    try:
        rows = [line.split() for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()]
    except OSError:
        return []
    return [socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0])) for row in rows if row[5] == name]


if __name__ == "__main__":
    main()
