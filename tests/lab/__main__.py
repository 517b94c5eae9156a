"""A lab for people: `python -m tests.lab up 3`, `status`, `down`. Needs root and the tools of .ci/run."""

from __future__ import annotations

import argparse
import sys

from tests.lab.lab import Lab
from tests.lab.shell import reason_for_no_lab
from tests.lab.state import ledgers, sweep


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def up(count: int) -> int:
    """Make a lab that stays until `down`, and say how to use it."""
    lab = Lab(count, kept=True).up()
    say(f"{len(lab.hosts)} hosts are up; this machine is {lab.controller}")
    for host in lab.hosts:
        say(f"  {host.name}  {host.address}")
    say(f"log in:   ssh -F {lab.folder}/ssh_config {lab.hosts[0].name}")
    say(f"train:    cd {lab.folder} && {sys.executable} -m flodl elche=cpu_cadence cluster=lab")
    say(f"remove:   {sys.executable} -m tests.lab down")
    return 0


def status() -> int:
    """Every lab of this user, and who of it lives."""
    for ledger in ledgers():
        living = sum(process.lives for process in ledger.processes())
        kind = "up" if ledger.kept else "of a test run"
        say(f"{ledger.name}  {kind}  {living} processes  {ledger.folder}")
        for name, address in ledger.hosts().items():
            say(f"  {name}  {address}")
    return 0


def down() -> int:
    """End labs that `up` made and what crashed test runs left; a test run that lives keeps its own."""
    gone = sweep()
    for ledger in ledgers():
        if ledger.kept:
            ledger.erase()
            gone.append(ledger.name)
    say(f"removed: {', '.join(gone) or 'nothing was there'}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description="Real hosts on this machine.")
    parser.add_argument("do", choices=("up", "down", "status"))
    parser.add_argument("count", type=int, nargs="?", default=3, help="hosts to make (up)")
    arguments = parser.parse_args()
    if reason := reason_for_no_lab():
        sys.stderr.write(f"{reason}\n")
        return 1
    if arguments.do == "up":
        return up(arguments.count)
    return status() if arguments.do == "status" else down()


if __name__ == "__main__":
    sys.exit(main())
