"""What a run goes on from (checkpoint.resume_from): found, and found whole, before anything is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flodl.decide.messages import Resumed
from flodl.decide.resuming import job_problems
from flodl.errors import ConfigError
from flodl.record.bundle_folder import Bundle
from flodl.record.bundle_reading import BundleReader
from flodl.record.fate import tidy
from flodl.record.folder import RunFolder
from flodl.record.origin import origin_store
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
    store = origin_store(Path(config.resume_from).expanduser().absolute(), config.stem)
    loaded = store.load(resume=config.resume)
    for problem in loaded.passed_over:
        say(f"passed over: {problem}")
    refused = tuple(job_problems(job, loaded.bundle.meta.coordinator))
    if refused:
        raise ConfigError(refused)
    _tidy(store.folder)
    return Origin(loaded.bundle)


def _tidy(checkpoints: Path) -> None:
    """That run is gone on from: what a kill left half written of its saves may be as large as its bundles."""
    run = RunFolder(checkpoints.parent)
    if run.checkpoints_path == checkpoints:
        tidy(run)
