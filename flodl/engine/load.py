"""A model as a run left it, for those who want to use it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch.nn import Module

from flodl.engine.build import made_model
from flodl.engine.pretrained import load_weights
from flodl.engine.trust import Trust
from flodl.errors import ConfigError, Problem
from flodl.record.fate import tidy
from flodl.record.folder import RunFolder, newest_run
from flodl.spec.codec import load_spec

__all__ = ["Module", "load_model"]


def load_model(run: str | Path, *, trusted_targets: Sequence[str] = ()) -> Module:
    """The model of a run with the weights that it saved last, on the CPU, in evaluation mode.

    run: a run folder, its folder of checkpoints, or `last`: the newest run under outputs/ of the working folder.
    The model's class is looked up as in a config: in the usual packages, in the working folder, and in
    trusted_targets. Raises ConfigError.
    """
    folder = newest_run(Path.cwd() / "outputs") if run == "last" else _folder(Path(run))
    tidy(folder)  # of a run that was killed between a bundle and its weights
    job = load_spec(folder.spec_path)
    model = made_model(job.model, Trust(trusted_targets))
    try:
        load_weights(model, folder.weights_path, "run")
    except FileNotFoundError as error:
        raise ConfigError([Problem(key="run", value=str(folder.path), constraint="has saved no weights",
                                   remedy="a run saves them at its end; see its result.json")]) from error  # fmt: skip
    return model.eval()


def _folder(path: Path) -> RunFolder:
    """A run's folder, also where that of its checkpoints was named."""
    parent = RunFolder(path.absolute().parent)
    return parent if parent.checkpoints_path == path.absolute() else RunFolder(path)
