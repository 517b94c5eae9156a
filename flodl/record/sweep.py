"""A sweep's folder: one run folder per arm, and the comparison beside them. Also: was this job done before?

::

    outputs/multirun/<YYYY-MM-DD>/<HH-MM-SS>-<xxxx>/
        0/  1/  1.2/ (arm 1 again, after its first try failed)  comparison.json  comparison.md  comparison.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from flodl.errors import FlodlError
from flodl.record.files import sweep_beside, write_atomically
from flodl.record.folder import RunFolder
from flodl.record.result import Result, read_result

__all__ = ["FINISHED", "SweepFolder", "finished_run", "spec_digest"]

FINISHED = ("done", "degraded", "stopped")  # a result of these is what the job was for


class SweepFolder:
    """The paths of a sweep. The constructor only names things."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self.comparison_json_path = self.path / "comparison.json"
        self.comparison_markdown_path = self.path / "comparison.md"
        self.comparison_page_path = self.path / "comparison.html"

    def free_name(self, arm: str) -> str:
        """Where the next try of an arm goes: its own name, or the first of `<name>.2`, `<name>.3` ... without a run."""
        name, number = arm, 1
        while RunFolder(self.path / name).spec_path.exists():
            number += 1
            name = f"{arm}.{number}"
        return name

    def result_of(self, folder: str) -> Result | None:
        """What became of the run in that folder (relative to the sweep's, or absolute); None where nothing says it."""
        path = RunFolder(self.path / folder).result_path
        try:
            return read_result(path) if path.is_file() else None
        except (FlodlError, OSError):
            return None

    def write_comparison(self, document: bytes, markdown: str) -> None:
        """Both forms of it, each whole or not at all. What earlier writers left half written is removed."""
        self.path.mkdir(parents=True, exist_ok=True)
        for path in (self.comparison_json_path, self.comparison_markdown_path, self.comparison_page_path):
            sweep_beside(path)
        write_atomically(self.comparison_json_path, document)
        write_atomically(self.comparison_markdown_path, markdown.encode())

    def write_page(self, page: str) -> None:
        """The comparison as a page."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.comparison_page_path, page.encode())


class _Digest(msgspec.Struct):
    sha256: str = ""


def spec_digest(spec: Path) -> str:
    """The sha256 that a spec.json names; "" where it cannot be read."""
    try:
        return msgspec.json.decode(spec.read_bytes(), type=_Digest).sha256
    except (OSError, msgspec.MsgspecError):
        return ""


def finished_run(roots: Iterable[Path | str], is_same: Callable[[Path], bool]) -> RunFolder | None:
    """The newest run under `roots` that ended well and whose spec.json `is_same` accepts."""
    name = RunFolder("").spec_path.name
    specs = {spec.absolute() for root in roots for spec in Path(root).rglob(name)}
    for spec in sorted(specs, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        folder = RunFolder(spec.parent)
        if not folder.result_path.is_file() or not is_same(spec):
            continue
        try:
            status = read_result(folder.result_path).status
        except FlodlError:
            continue
        if status in FINISHED:
            return folder
    return None
