"""Where the bundles lie that a run goes on from: its own, or those of the run that it went on from itself."""

from __future__ import annotations

from pathlib import Path

from flodl.errors import ConfigError, Problem
from flodl.record.bundle import BundleStore
from flodl.record.folder import RunFolder
from flodl.spec.codec import load_spec

__all__ = ["origin_store"]


def origin_store(path: Path, stem: str) -> BundleStore:
    """The bundles that `path` means: a folder of checkpoints, or a run's. A run that went on and saved nothing means
    the one that it went on from.

    Raises ConfigError where there is nothing.
    """
    if not path.is_dir():
        raise ConfigError([Problem(key="checkpoint.resume_from", value=str(path), constraint="there is no such folder",
                                   remedy="name a run's folder")])  # fmt: skip
    run = RunFolder(path)
    store = BundleStore(run.checkpoints_path if run.checkpoints_path.is_dir() else path, stem)
    if run.spec_path.exists() and not store.has_any():
        earlier = load_spec(run.spec_path).checkpoint.resume_from
        if earlier is not None:
            return origin_store(Path(earlier), stem)
    return store
