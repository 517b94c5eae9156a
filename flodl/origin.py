"""What a run goes on from (checkpoint.resume_from): found, and found whole, before anything is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flodl.decide.messages import Resumed
from flodl.decide.resuming import job_problems
from flodl.errors import ConfigError, Problem
from flodl.record.bundle_folder import Bundle
from flodl.record.bundle_reading import BundleReader
from flodl.record.fate import fate, tidy
from flodl.record.folder import RunFolder
from flodl.record.origin import origin_store
from flodl.record.text import typed
from flodl.report.onward import how_it_begins_again
from flodl.spec.job import JobSpec

__all__ = ["Origin", "origin_bundle", "origin_of"]


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
    """Find it, and tidy up where it lies. say: takes words about bundles that were passed over. Raises ConfigError."""
    bundle = origin_bundle(job, say)
    if bundle is not None:
        _tidy(bundle.folder)
    return Origin(bundle)


def origin_bundle(job: JobSpec, say: Callable[[str], None]) -> Bundle | None:
    """The same, and touch nothing; None: the run begins anew."""
    config = job.checkpoint
    if config.resume_from is None:
        return None
    store = origin_store(Path(config.resume_from).expanduser().absolute(), config.stem)
    _refuse_unsaved(store.folder)
    loaded = store.load(resume=config.resume)
    for problem in loaded.passed_over:
        say(f"passed over: {problem}")
    refused = tuple(job_problems(job, loaded.bundle.meta.coordinator))
    if refused:
        raise ConfigError(refused)
    return loaded.bundle


def _refuse_unsaved(folder: Path) -> None:
    """A run that has saved nothing is asked for in vain under any stem. folder: its own, or that of its checkpoints."""
    run = RunFolder(folder if RunFolder(folder).spec_path.exists() else folder.parent)
    if not run.spec_path.exists() or run.has_bundles:
        return
    is_over = fate(run).kind in ("finished", "ended")
    raise ConfigError([Problem(
        key=str(run.path), constraint="ended before anything was saved" if is_over else "has saved nothing yet",
        remedy=how_it_begins_again(run) if is_over else "it saves as checkpoint.every_epochs says, and when it is "
        f"stopped: python -m flodl task=stop {typed('run', str(run.path))}",
    )])  # fmt: skip


def _tidy(checkpoints: Path) -> None:
    """That run is gone on from: what a kill left half written of its saves may be as large as its bundles."""
    run = RunFolder(checkpoints.parent)
    if run.checkpoints_path == checkpoints:
        tidy(run)
