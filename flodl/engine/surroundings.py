"""What differs between ranks of one job: the device, and where the host keeps code and data.

``@data`` in a data set's arguments stands for the host's data folder, so that one config fits every host.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from flodl.spec.cluster import HostOverrides
from flodl.spec.component import Component
from flodl.spec.tree import mapped, strings

__all__ = ["Surroundings"]

DATA_MARK = "@data"


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """host: its name, for messages. path: the project folder ("": the working folder). data_path None: <path>/data.
    num_ranks: of the whole job."""

    device: torch.device
    host: str = ""
    path: str = ""
    data_path: str | None = None
    num_ranks: int = 1
    overrides: HostOverrides = field(default_factory=HostOverrides)

    @property
    def on_host(self) -> str:
        """ " on host <name>", or nothing where there is no name."""
        return f" on host {self.host}" if self.host else ""

    @property
    def data_folder(self) -> Path:
        """The folder that ``@data`` stands for, absolute."""
        return (Path(self.data_path) if self.data_path else Path(self.path or ".") / "data").absolute()

    def placed(self, component: Component) -> Component:
        """The component with ``@data`` in its arguments replaced by the folder."""
        return component.replace(args=mapped(component.args, "", lambda _, text: self._at(text)))

    def file(self, text: str) -> Path:
        """The file that a config names: under ``@data``, or in the project folder where its path is relative."""
        return (Path(self.path or ".") / self._at(text)).absolute()

    def missing(self, component: Component, key: str, error: FileNotFoundError) -> str:
        """A missing file in words: which path was looked for, which key names it, where that path comes from."""
        looked_for = str(error.filename or error)
        absent = f"no such file{self.on_host}: looked for {looked_for}"
        source = getattr(error, "source", "")  # a shipped data set says where it can be had
        hint = f"\n  {source}" if source else ""
        for at, text in strings(component.args, key):
            if self._at(text) == looked_for:
                return f"{at}={text}: {absent}{self._source(text)}{hint}"
        return f"{key}={component.name}: {absent}{hint}"

    def _at(self, text: str) -> str:
        is_marked = text == DATA_MARK or text.startswith(DATA_MARK + "/")
        return str(self.data_folder / text[len(DATA_MARK) + 1 :]) if is_marked else text

    def _source(self, text: str) -> str:
        if not text.startswith(DATA_MARK):
            return ""
        origin = (
            "data_path of this host in the cluster file" if self.data_path else "<path>/data, as data_path is not set"
        )
        return f"; {DATA_MARK} is {self.data_folder} ({origin})"
