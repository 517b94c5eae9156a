"""MLflow: a run per run, parameters and figures in its store; a sweep is a run above those of its arms.

A name there holds letters, digits, blanks and ``_-.:/``, and is no path that leads elsewhere; any other character, and
the colon, is written ``:hex:``, so that no two names become one.
"""

# The package is an extra, which the type checker may not have.
# pyright: reportMissingImports=false

from __future__ import annotations

import logging
import os
import posixpath
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flodl.ports import LoggedRun, LoggedSweep

__all__ = ["Mlflow", "spelt"]

MOST_PARAMETERS, MOST_FIGURES = 100, 1000  # of one call
LONGEST_VALUE = 500
ENDS = {"done": "FINISHED", "degraded": "FINISHED", "stopped": "FINISHED", "interrupted": "KILLED"}
SWEEP = "flodl.sweep"


def spelt(name: str) -> str:
    """A name as MLflow takes it."""
    text = "".join(c if c.isalnum() or c in "_-. /" else f":{ord(c):x}:" for c in name)
    if posixpath.normpath(text) != text or text.startswith(("/", "..")) or text == ".":
        text = text.replace("/", ":2f:")
    return text.replace("..", ":2e::2e:") if text in (".", "..") else text


class Mlflow:
    """uri: a database, a folder or a server, as MLflow writes it; relative paths are of the working folder."""

    requires = ("mlflow", "sqlalchemy", "alembic")
    extra = "mlflow"

    def __init__(self, *, uri: str = "sqlite:///outputs/mlflow.db", experiment: str = "flodl") -> None:
        self._uri = uri
        self._experiment = experiment
        self._client: Any = None
        self._id = ""

    def begin(self, run: LoggedRun) -> None:
        from mlflow.entities import Param

        tags = {"flodl.run_id": run.run_id, "flodl.folder": run.folder, **({SWEEP: run.sweep} if run.sweep else {})}
        self._open(run.name, tags)
        told = [Param(spelt(name), _text(value)) for name, value in run.parameters.items()]
        for some in _parts(told, MOST_PARAMETERS):
            self._client.log_batch(self._id, params=some)

    def log(self, figures: Mapping[str, float], step: int, at: float) -> None:
        from mlflow.entities import Metric

        told = [Metric(spelt(name), value, int(at * 1000), step) for name, value in figures.items()]
        for some in _parts(told, MOST_FIGURES):
            self._client.log_batch(self._id, metrics=some)

    def end(self, status: str, figures: Mapping[str, float]) -> None:
        self.log({f"result/{name}": value for name, value in figures.items()}, int(figures.get("samples_done", 0)),
                 time.time())  # fmt: skip
        self._client.set_tag(self._id, "flodl.status", status)
        self._client.set_terminated(self._id, ENDS.get(status, "FAILED"))

    def compare(self, sweep: LoggedSweep) -> None:
        experiment = self._open(sweep.name, {"flodl.folder": sweep.folder})
        self._client.log_text(self._id, sweep.text, "comparison.md")
        for step, arm in enumerate(sweep.arms):
            self.log(arm.figures, step, time.time())
        quoted = sweep.folder.replace("'", "\\'")
        for arm in self._client.search_runs([experiment], f"tags.`{SWEEP}` = '{quoted}'"):
            self._client.set_tag(arm.info.run_id, "mlflow.parentRunId", self._id)
        self._client.set_terminated(self._id)

    def _open(self, name: str, tags: Mapping[str, str]) -> str:
        """Make the run; returns the id of its experiment."""
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}  # who names a folder means it
        for key, value in quiet.items():
            os.environ.setdefault(key, value)
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        for log in ("mlflow", "alembic"):
            logging.getLogger(log).setLevel(logging.WARNING)
        uri, artifacts = self._places()
        self._client = MlflowClient(tracking_uri=uri)
        found = self._client.get_experiment_by_name(self._experiment)
        try:
            experiment = found.experiment_id if found else self._client.create_experiment(self._experiment, artifacts)
        except MlflowException:  # another run made it meanwhile
            experiment = self._client.get_experiment_by_name(self._experiment).experiment_id
        self._id = self._client.create_run(experiment, run_name=name, tags=dict(tags)).info.run_id
        return str(experiment)

    def _places(self) -> tuple[str, str | None]:
        """The store's address, absolute; where artifacts go, None: as the store says."""
        kind, mark, rest = self._uri.partition("sqlite:///")
        if mark and not kind and not rest.startswith(":memory:"):
            path = Path(rest).absolute()
            path.parent.mkdir(parents=True, exist_ok=True)
            return f"sqlite:///{path}", path.with_name(f"{path.stem}-files").as_uri()
        if "://" not in self._uri:
            return Path(self._uri.removeprefix("file:")).absolute().as_uri(), None
        return self._uri, None


def _text(value: object) -> str:
    text = {None: "null", True: "true", False: "false"}[value] if isinstance(value, bool | None) else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def _parts(items: Sequence[Any], most: int) -> list[Sequence[Any]]:
    return [items[i : i + most] for i in range(0, len(items), most)]
