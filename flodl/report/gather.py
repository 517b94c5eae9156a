"""From folders to arms: what a comparison is made of. A run whose files cannot be read is an arm without figures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from flodl.errors import FlodlError
from flodl.record.choices import read_choices
from flodl.record.fate import fate
from flodl.record.folder import RunFolder
from flodl.record.result import Result, read_result
from flodl.record.sweep import SweepFolder
from flodl.report.arm import SEED, Arm
from flodl.report.differences import job_in, overrides_of
from flodl.report.history import EpochPoint, epoch_points

__all__ = ["arms_of_runs", "arms_of_sweep", "is_sweep", "with_history"]


MOST_RESUMED = 50  # runs that went on from each other
NO_RESULT = {
    "ended": "its controller ended without a result; task=resume (in a program resume_from) goes on from what it saved",
    "elsewhere": "it has left no result (yet); its controller is of another machine, or of another boot of this one",
    "silent": "it has left no result, and nobody has said which process runs it",
}


class _Document(msgspec.Struct):
    arms: tuple[Arm, ...] = ()


class _Trainer(msgspec.Struct, frozen=True):
    seed: int | None = None


class _Loader(msgspec.Struct, frozen=True):
    num_workers: int | None = None


class _Checkpoint(msgspec.Struct, frozen=True):
    resume_from: str | None = None


class _Job(msgspec.Struct, frozen=True):
    trainer: _Trainer = _Trainer()
    loader: _Loader = _Loader()
    checkpoint: _Checkpoint = _Checkpoint()
    dataset: msgspec.Raw = msgspec.Raw()
    step: msgspec.Raw = msgspec.Raw()

    @property
    def data(self) -> str:
        """A hash of both, whatever is in them."""
        whole = bytes(self.dataset) + bytes(self.step)
        return hashlib.sha256(whole).hexdigest()[:8] if whole else ""


class _Spec(msgspec.Struct, frozen=True):
    """The fields that are looked at, whichever version wrote the file."""

    job: _Job = _Job()


def with_history(arm: Arm, root: Path) -> Arm:
    """The arm with its seed and its epochs. root: the sweep's folder."""
    if not arm.folder:
        return msgspec.structs.replace(arm, seed=_typed_seed(arm.overrides))
    folder = RunFolder(root / arm.folder)
    job = _job(folder)
    seed = _typed_seed(arm.overrides) if job.trainer.seed is None else job.trainer.seed
    epochs = _epochs(folder, arm.result, job.checkpoint.resume_from)
    return msgspec.structs.replace(arm, seed=seed, num_workers=job.loader.num_workers, data=job.data, epochs=epochs)


def _epochs(folder: RunFolder, result: Result | None, origin: str | None, depth: int = 0) -> tuple[EpochPoint, ...]:
    """The epochs of a run, and before them those of the run that it went on from, where that lies there still."""
    if origin is None or depth == MOST_RESUMED:
        return epoch_points(folder, result)
    path = Path(origin).expanduser()
    earlier = RunFolder(path if RunFolder(path).spec_path.is_file() else path.parent)
    before = _epochs(earlier, _standing(earlier).result, _job(earlier).checkpoint.resume_from, depth + 1)
    points = epoch_points(folder, result, before=before)
    return (*(point for point in before if not points or point.epoch < points[0].epoch), *points)


def arms_of_sweep(sweep: SweepFolder) -> list[Arm]:
    """The arms that a sweep's comparison tells of, read anew; and those that it does not: its controller was ended
    before they were over, or trains them now. Raises FlodlError where it cannot be understood."""
    told = _told(sweep)
    known = {arm.name.partition(".")[0] for arm in told}
    others = [path for path in sorted(sweep.path.glob("*")) if RunFolder(path).spec_path.is_file()]
    untold = [
        _arm(RunFolder(path), path.name, read_choices(RunFolder(path).choices_path).typed)
        for path in others
        if path.name.partition(".")[0] not in known
    ]
    return [*(with_history(arm, sweep.path) for arm in told), *untold]


def is_sweep(sweep: SweepFolder) -> bool:
    """Whether the comparison in this folder is of runs in it; else it is one of runs that lie elsewhere."""
    try:
        return any(arm.folder and not Path(arm.folder).is_absolute() for arm in _told(sweep))
    except FlodlError:
        return True  # who reads it is told what is wrong


def _told(sweep: SweepFolder) -> tuple[Arm, ...]:
    try:
        return msgspec.json.decode(sweep.comparison_json_path.read_bytes(), type=_Document).arms
    except (OSError, msgspec.MsgspecError) as error:
        raise FlodlError(f"{sweep.comparison_json_path}: {error}") from error


def arms_of_runs(folders: Sequence[RunFolder]) -> list[Arm]:
    """Runs as arms, named by their folders. overrides: what sets their jobs apart."""
    names = _names([folder.path for folder in folders])
    told = overrides_of([job_in(folder) for folder in folders])
    return [_arm(folder, name, texts) for folder, name, texts in zip(folders, names, told, strict=True)]


def _arm(folder: RunFolder, name: str, overrides: tuple[str, ...]) -> Arm:
    arm = msgspec.structs.replace(_standing(folder), name=name, overrides=overrides, folder=str(folder.path))
    return with_history(arm, folder.path)


def _standing(folder: RunFolder) -> Arm:
    """What became of a run, or what it does: an arm without a name."""
    try:
        if folder.result_path.is_file():
            result = read_result(folder.result_path)
            return Arm(name="", status=result.status, reason=result.reason, result=result)
        found = fate(folder)
    except (FlodlError, OSError) as error:
        return Arm(name="", status="interrupted", reason=f"what became of it cannot be read: {error}")
    if found.kind == "running":
        return Arm(name="", status="running", reason="it goes on still")
    return Arm(name="", status="interrupted", reason=NO_RESULT.get(found.kind, ""))


def _names(paths: Sequence[Path]) -> list[str]:
    """As short as tells them apart: their last parts, or the whole paths."""
    for length in (1, 2, 3):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(names) and (length > 1 or not any(name.isdigit() for name in names)):
            return names
    return [str(path) for path in paths]


def _job(folder: RunFolder) -> _Job:
    try:
        return msgspec.json.decode(folder.spec_path.read_bytes(), type=_Spec).job
    except (OSError, msgspec.MsgspecError):
        return _Job()


def _typed_seed(overrides: Iterable[str]) -> int | None:
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        if key == SEED and value.isdecimal():
            return int(value)
    return None
