"""What a lab made, on disk: so that a later `up`, `down` or test run ends what a crashed one left, and nothing else.

One private folder per lab, named as its interface in this machine's network. The interface vanishes with the lab's
processes, so this folder is all that a crash can leave.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.lab.shell import LabError, Process, run

__all__ = ["Ledger", "ledgers", "sweep"]

YOUNG_SECONDS = 60.0  # a folder without a record may be one that is being made right now


def _root() -> Path:
    """The folder of all labs of this user: ours, and closed to others."""
    root = Path(tempfile.gettempdir()) / f"flodl-lab-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if root.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise LabError(f"{root} is not a private folder of this user; remove it")
    return root


class Ledger:
    """The folder of one lab and the list of what it started."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = _root() / name

    @property
    def _file(self) -> Path:
        return self.folder / "lab.json"

    def claim(self, *, kept: bool) -> bool:
        """Take this name; False where somebody has it. kept: the lab is to outlive this process."""
        try:
            self.folder.mkdir(mode=0o700)
        except FileExistsError:
            return False
        self._write({"kept": kept, "owner": Process.of(os.getpid()), "processes": [], "hosts": {}})
        return True

    def note(self, processes: Iterable[Process], hosts: dict[str, str]) -> None:
        """Write down what lives now. hosts: name -> address."""
        self._write({**self.read(), "processes": list(processes), "hosts": hosts})

    def _write(self, record: dict[str, object]) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps(record))
        beside.replace(self._file)

    def read(self) -> dict[str, object]:
        try:
            return dict(json.loads(self._file.read_text()))
        except (OSError, ValueError):
            return {}

    def processes(self) -> list[Process]:
        return [Process(*pair) for pair in self.read().get("processes", ())]  # type: ignore[attr-defined]

    def hosts(self) -> dict[str, str]:
        return dict(self.read().get("hosts", {}))  # type: ignore[call-overload]

    @property
    def kept(self) -> bool:
        return bool(self.read().get("kept"))

    @property
    def abandoned(self) -> bool:
        """Made by a process that is gone, and not meant to outlive it."""
        record = self.read()
        if not record:
            with contextlib.suppress(OSError):
                return time.time() - self.folder.stat().st_mtime > YOUNG_SECONDS
            return False
        return not self.kept and not Process(*record["owner"]).lives  # type: ignore[misc]

    def erase(self) -> None:
        """End what is written here (and only that), then the folder. Idempotent; two may do it at once."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if f"alias {self.folder}" in run("ip", "link", "show", "dev", self.name, check=False):
            run("ip", "link", "del", "dev", self.name, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def ledgers() -> Iterator[Ledger]:
    """Every lab of this user that has left a folder."""
    for folder in sorted(_root().iterdir()):
        yield Ledger(folder.name)


def sweep() -> list[str]:
    """Erase labs whose makers crashed; their names."""
    found = [ledger for ledger in ledgers() if ledger.abandoned]
    for ledger in found:
        ledger.erase()
    return [ledger.name for ledger in found]
