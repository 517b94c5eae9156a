"""The run folder: the one place that spells the names of a run's files. Everybody else asks it for a path.

::

    outputs/<YYYY-MM-DD>/<HH-MM-SS>-<xxxx>/
        spec.json  journal.jsonl  metrics.jsonl  status.json  result.json  report.html  controller.log
        ranks/<host>.<rank>.log
        checkpoints/weights.safetensors  and the bundles (`bundle_names`);  weights.ema.safetensors, with trainer.ema
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Self

import msgspec

from flodl.decide.messages import Command, Event
from flodl.decide.roster import Place
from flodl.errors import ConfigError, FlodlError
from flodl.record.bundle import BundleStore
from flodl.record.bundle_names import WEIGHTS_FILE, is_meta
from flodl.record.files import target_of, write_atomically
from flodl.record.journal import Journal, JournalHeader
from flodl.record.log import ControllerLog, RankLog
from flodl.record.metrics import MetricsFile
from flodl.record.result import Result, read_result, write_result
from flodl.record.status import StatusFile
from flodl.record.text import plain_name
from flodl.record.weights import WeightsSink
from flodl.spec.checkpoint import CheckpointConfig
from flodl.spec.codec import SCHEMA

__all__ = ["RunFolder", "newest_run", "was_refused"]

_SPEC = "spec.json"
TRIES = 100


class RunFolder:
    """One run's folder: its paths, and the writers of its files, opened when they are first asked for.

    The constructor only names things; `create` and `adopt` touch the disk. run_id is new for every object and names
    the run in the journal and the status.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self.run_id = secrets.token_hex(8)
        self.sweep: Path | None = None  # the folder of the sweep whose arm this run is
        self.spec_path = self.path / _SPEC
        self.journal_path = self.path / "journal.jsonl"
        self.metrics_path = self.path / "metrics.jsonl"
        self.result_path = self.path / "result.json"
        self.report_path = self.path / "report.html"
        self.status_path = self.path / "status.json"
        self.controller_log_path = self.path / "controller.log"
        self.ranks_path = self.path / "ranks"
        self.checkpoints_path = self.path / "checkpoints"
        self.choices_path = self.path / ".hydra" / "hydra.yaml"
        self.weights_path = self.checkpoints_path / WEIGHTS_FILE
        self._journal: Journal | None = None
        self._metrics: MetricsFile | None = None
        self._log: ControllerLog | None = None
        self._status: StatusFile | None = None
        self._rank_logs: dict[int, RankLog] = {}

    @classmethod
    def create(cls, root: Path | str, *, now: datetime | None = None) -> Self:
        """A new folder under `root`, named by local time and a random suffix, exclusively: nobody shares it."""
        moment = now or datetime.now().astimezone()
        day = Path(root) / f"{moment:%Y-%m-%d}"
        day.mkdir(parents=True, exist_ok=True)
        for _ in range(TRIES):
            path = day / f"{moment:%H-%M-%S}-{secrets.token_hex(2)}"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return cls._furnished(path)
        raise FlodlError(f"{day}: {TRIES} names for a run folder were taken already")

    @classmethod
    def adopt(cls, path: Path | str) -> Self:
        """A folder that exists (Hydra makes its own), for a new run. FlodlError where it holds a run already."""
        folder = Path(path)
        if (folder / _SPEC).exists():
            raise FlodlError(f"{folder}: holds a run already ({_SPEC}); every run has a folder of its own")
        folder.mkdir(parents=True, exist_ok=True)
        found = cls._furnished(folder)
        with contextlib.suppress(OSError):
            found.tidy()
        return found

    @classmethod
    def _furnished(cls, path: Path) -> Self:
        folder = cls(path)
        folder.ranks_path.mkdir(exist_ok=True)
        folder.checkpoints_path.mkdir(exist_ok=True)
        return folder

    # ---------------------------------------------------------------------------------------------- writing

    def write_spec(self, job_json: bytes, sha256: str) -> None:
        """What was asked: {schema, sha256, job}. job_json: the codec's canonical JSON, whose digest sha256 is."""
        spec = {"schema": SCHEMA, "sha256": sha256, "job": msgspec.Raw(job_json)}
        write_atomically(self.spec_path, msgspec.json.format(msgspec.json.encode(spec), indent=2) + b"\n")

    def start_journal(self, job_sha256: str, roster: Sequence[Place]) -> Journal:
        """Write the journal's header; `journal` is there from now on."""
        started = datetime.now().astimezone().isoformat(timespec="milliseconds")
        header = JournalHeader(run_id=self.run_id, job_sha256=job_sha256, roster=tuple(roster), started=started)
        self._journal = Journal(self.journal_path, header)
        return self._journal

    @property
    def journal(self) -> Journal:
        """The journal, once it was started."""
        if self._journal is None:
            raise FlodlError(f"{self.path}: the journal begins with start_journal")
        return self._journal

    @property
    def metrics(self) -> MetricsFile:
        """The writer of epochs and evaluations."""
        if self._metrics is None:
            self._metrics = MetricsFile(self.metrics_path)
        return self._metrics

    @property
    def log(self) -> ControllerLog:
        """The controller's log."""
        if self._log is None:
            self._log = ControllerLog(self.controller_log_path)
        return self._log

    @property
    def status(self) -> StatusFile:
        """The status file's keeper: `due`, `write`."""
        if self._status is None:
            self._status = StatusFile(self.status_path, self.run_id)
        return self._status

    def rank_log(self, host: str, rank: int, device: str = "") -> RankLog:
        """The log of one rank's output; the same object for the same rank."""
        if rank not in self._rank_logs:
            place = f"{host}:{device}" if device else host
            path = self.ranks_path / f"{plain_name(host)}.{rank}.log"
            self._rank_logs[rank] = RankLog(path, f"[{place} r{rank}]")
        return self._rank_logs[rank]

    def weights(self) -> WeightsSink:
        """The writer of weights that belong to no bundle: write chunks, then commit; nothing appears before that."""
        return WeightsSink(self.weights_path)

    def bundles(self, config: CheckpointConfig) -> BundleStore:
        """The keeper of the run's bundles."""
        return BundleStore(self.checkpoints_path, config.stem, config.keep, config.best)

    def open_upload(self, rank: int, name: str) -> WeightsSink:
        """Where a rank's upload of that name goes. FlodlError for a name that no file of a run has."""
        if name != WEIGHTS_FILE:
            raise FlodlError(f"rank {rank} offers {name!r}; a run takes {WEIGHTS_FILE}")
        return self.weights()

    def write_report(self, page: str) -> None:
        """The run as a page for people."""
        write_atomically(self.report_path, page.encode())

    def write_result(self, result: Result) -> None:
        """What became of the run. Only its page comes after it."""
        write_result(self.result_path, result)

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """One listener for drive.run: journal first (the truth), then metrics and the log."""
        self.journal.append(event, commands)
        self.metrics.observe(event, commands)
        self.log.observe(event, commands)

    def close(self) -> None:
        """Close every file that was opened. Idempotent."""
        for file in (self._journal, self._metrics, self._log, *self._rank_logs.values()):
            if file is not None:
                file.close()

    def tidy(self) -> None:
        """Remove what a killed run left half written. Only where nobody writes any more, or yet."""
        written = (self.spec_path, self.status_path, self.result_path, self.report_path)
        for path in (*self.path.glob(".*.tmp"), *self.checkpoints_path.glob(".*.tmp")):
            target = target_of(path.name)
            if target and (path.with_name(target) in written or path.parent == self.checkpoints_path):
                path.unlink(missing_ok=True)

    # ---------------------------------------------------------------------------------------------- reading

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Names, relative to the folder, of what the run left to load; temporary files are none."""
        found = sorted(p for p in self.checkpoints_path.glob("*") if p.is_file() and not p.name.startswith("."))
        return tuple(str(p.relative_to(self.path)) for p in found)

    @property
    def has_bundles(self) -> bool:
        """Whether the run has saved what can be gone on from, under whatever stem."""
        return any(is_meta(path.name) for path in self.checkpoints_path.glob("*"))


def newest_run(root: Path | str) -> RunFolder:
    """The newest folder under `root` that holds a spec (a sweep's arms included). FlodlError where there is none.

    One that was refused is no run that anybody means, unless there are no others.
    """
    found = {spec: spec.stat().st_mtime_ns for spec in Path(root).rglob(_SPEC)}
    specs = sorted(found, key=lambda spec: (found[spec], spec), reverse=True)
    if not specs:
        raise FlodlError(f"{root}: no run folder (one with a {_SPEC}) lies here")
    return next((run for spec in specs if not was_refused(run := RunFolder(spec.parent))), RunFolder(specs[0].parent))


def was_refused(run: RunFolder) -> bool:
    """Whether its configuration was wrong, so that nothing was trained: what was typed was never done."""
    try:
        found = read_result(run.result_path)
    except (FlodlError, OSError):
        return False
    return found.exit_code == ConfigError.exit_code and not found.samples_done
