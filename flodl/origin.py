"""What a run goes on from (checkpoint.resume_from): found, and found whole, before anything is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flodl.decide.messages import Resumed
from flodl.decide.resuming import job_problems
from flodl.errors import ConfigError, Problem
from flodl.record.bundle import BundleStore
from flodl.record.bundle_folder import Bundle
from flodl.record.bundle_reading import BundleReader
from flodl.record.fate import tidy
from flodl.record.folder import RunFolder
from flodl.spec.codec import load_spec
from flodl.spec.job import JobSpec

__all__ = ["Origin", "origin_of"]


class Origin:
    """The bundle that a run goes on from; no bundle: the run begins anew."""

    def __init__(self, bundle: Bundle | None = None) -> None:
        self._bundle = bundle
        self.read = None if bundle is None else BundleReader(bundle).read

    def events(self) -> tuple[Resumed, ...]:
        """What the coordinator has to hear first."""
        bundle = self._bundle
        if bundle is None:
            return ()
        return (Resumed(at=0.0, round=bundle.round, origin=str(bundle.meta_path), snapshot=bundle.meta.coordinator),)


def origin_of(job: JobSpec, say: Callable[[str], None]) -> Origin:
    """Find it. say: takes words about bundles that were passed over. Raises ConfigError."""
    config = job.checkpoint
    if config.resume_from is None:
        return Origin()
    folder = _with_bundles(Path(config.resume_from).expanduser().absolute(), config.stem)
    loaded = BundleStore(folder, config.stem).load(resume=config.resume)
    for problem in loaded.passed_over:
        say(f"passed over: {problem}")
    refused = tuple(job_problems(job, loaded.bundle.meta.coordinator))
    if refused:
        raise ConfigError(refused)
    _tidy(folder)
    return Origin(loaded.bundle)


def _tidy(checkpoints: Path) -> None:
    """That run is gone on from: what a kill left half written of its saves may be as large as its bundles."""
    run = RunFolder(checkpoints.parent)
    if run.checkpoints_path == checkpoints:
        tidy(run)


def _with_bundles(path: Path, stem: str) -> Path:
    """The folder of checkpoints that is meant. A run that went on and saved nothing means the one that it went on from.

    Raises ConfigError where there is nothing.
    """
    if not path.is_dir():
        raise ConfigError([Problem(key="checkpoint.resume_from", value=str(path), constraint="there is no such folder",
                                   remedy="name a run's folder")])  # fmt: skip
    run = RunFolder(path)
    folder = run.checkpoints_path if run.checkpoints_path.is_dir() else path
    if run.spec_path.exists() and not BundleStore(folder, stem).has_any():
        earlier = load_spec(run.spec_path).checkpoint.resume_from
        if earlier is not None:
            return _with_bundles(Path(earlier), stem)
    return folder
