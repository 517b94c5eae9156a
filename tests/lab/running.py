"""flodl on the hosts of a lab: the whole command, started on this machine as a person would."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.command import Command, command
from tests.lab.lab import Lab

__all__ = ["ENDLESS", "JOB", "RANK", "SHORT", "awaited", "flodl", "lone_ranks", "ranks", "write_own"]

JOB = ("cluster=lab", "elche=cpu_cadence", "model=mlp", "eval.every_epochs=null", "hydra.run.dir=run")
SHORT = (*JOB, "trainer.num_epochs=2")
ENDLESS = (*JOB, "trainer.num_epochs=100000")
RANK = "flodl.engine.warm"  # what the command line of warm processes and ranks holds
NOT_READY_SECONDS = 10.0


@contextmanager
def flodl(desk: Path, *arguments: str, **popen: Any) -> Iterator[Command]:
    """`python -m flodl` in the working folder; ended at the latest here."""
    with command(desk, *arguments, **popen) as run:
        yield run


def lone_ranks(lab: Lab, **more: Any) -> dict[str, Any]:
    """The lab's cluster block with one rank per host: it starts sooner, where what is shown needs no more of them."""
    cluster = lab.cluster() | more
    for worker in cluster["workers"]:
        worker["local_devices"] = "cpu:1"
    return cluster


def ranks(lab: Lab, name: str) -> list[int]:
    """Processes (numbered as here) of the warm process and the ranks of a host."""
    return [pid for pid, line in lab[name].processes().items() if RANK in line]


def awaited(reached: Callable[[], bool], seconds: float) -> float:
    """Seconds until it was so; fails where it takes longer."""
    begun = time.monotonic()
    while not reached():
        assert time.monotonic() - begun < seconds, f"not within {seconds} s"
        time.sleep(0.01)
    return time.monotonic() - begun


def write_own(lab: Lab, desk: Path, name: str, text: str) -> None:
    """A file of the user's project, on the controller and on every host."""
    (desk / name).write_text(text)
    for host in lab.hosts:
        host.write(f"/srv/project/{name}", text)
