"""TensorBoard's event files, written by its own writer: no TensorFlow and no torch is loaded.

Figures are scalars over samples, parameters an HParams session, a sweep's comparison is a text beside its figures.
"""

# The package is an extra, which the type checker may not have.
# pyright: reportMissingImports=false

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flodl.ports import LoggedRun, LoggedSweep

__all__ = ["TensorBoard"]

FLUSH_SECONDS = 5
HOW_IT_ENDED = {"done": 1, "degraded": 1, "stopped": 1}  # api.Status: 1 success, 2 failure


class TensorBoard:
    """folder: within the run's or the sweep's; in an absolute one each has a folder of its own, named as it is."""

    requires = ("tensorboard",)
    extra = "tensorboard"

    def __init__(self, *, folder: str = "tensorboard") -> None:
        self._folder = folder
        self._writer: Any = None

    def begin(self, run: LoggedRun) -> None:
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

        self._open(Path(run.folder), run.run_id)
        start = SessionStartInfo(group_name=run.folder, start_time_secs=time.time())
        for name, value in run.parameters.items():
            held = start.hparams[name]
            if isinstance(value, bool):
                held.bool_value = value
            elif isinstance(value, int | float):
                held.number_value = value
            else:
                held.string_value = "null" if value is None else value
        self._hparams("_hparams_/session_start_info", HParamsPluginData(session_start_info=start))

    def log(self, figures: Mapping[str, float], step: int, at: float) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._write(Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]),
                    step, at)  # fmt: skip

    def end(self, status: str, figures: Mapping[str, float]) -> None:
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

        self.log({f"result/{name}": value for name, value in figures.items()}, int(figures.get("samples_done", 0)),
                 time.time())  # fmt: skip
        told = SessionEndInfo(status=HOW_IT_ENDED.get(status, 2), end_time_secs=time.time())
        self._hparams("_hparams_/session_end_info", HParamsPluginData(session_end_info=told))
        self._writer.close()

    def compare(self, sweep: LoggedSweep) -> None:
        self._open(Path(sweep.folder))
        self._text("comparison", sweep.text)
        for step, arm in enumerate(sweep.arms):
            self.log({f"comparison/{name}": value for name, value in arm.figures.items()}, step, time.time())
        self._writer.close()

    def _open(self, run: Path, run_id: str = "") -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = Path(self._folder)
        place = folder / "-".join(filter(None, (*run.parts[-3:], run_id))) if folder.is_absolute() else run / folder
        self._writer = EventFileWriter(str(place), flush_secs=FLUSH_SECONDS)

    def _hparams(self, tag: str, content: Any) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams.metadata import NULL_TENSOR, create_summary_metadata

        value = Summary.Value(tag=tag, metadata=create_summary_metadata(content), tensor=NULL_TENSOR)
        self._write(Summary(value=[value]), 0, time.time())

    def _text(self, tag: str, text: str) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        held = TensorProto(dtype=DT_STRING, string_val=[text.encode()])
        self._write(Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=held)]), 0, time.time())

    def _write(self, summary: Any, step: int, at: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=at, step=step, summary=summary))
