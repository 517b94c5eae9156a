"""From folders to arms: what a comparison is made of. A run whose files cannot be read is an arm without figures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from flodl.errors import FlodlError
from flodl.record.folder import RunFolder
from flodl.record.sweep import SweepFolder
from flodl.report.arm import SEED, Arm
from flodl.report.history import epoch_points

__all__ = ["arms_of_runs", "arms_of_sweep", "is_sweep", "with_history"]

# how a run was started, called and watched, not what it was
NOT_COMPARED = ("launch", "trusted_targets", "cluster.controller", "name", "objective", "logger", "sim")
MANY = 4  # differences that still make a name


class _Document(msgspec.Struct):
    arms: tuple[Arm, ...] = ()


class _Trainer(msgspec.Struct, frozen=True):
    seed: int | None = None


class _Loader(msgspec.Struct, frozen=True):
    num_workers: int | None = None


class _Job(msgspec.Struct, frozen=True):
    trainer: _Trainer = _Trainer()
    loader: _Loader = _Loader()


class _Spec(msgspec.Struct, frozen=True):
    """The fields that are looked at, whichever version wrote the file."""

    job: _Job = _Job()


class _Plain(msgspec.Struct, frozen=True):
    """All of a job, as plain as it is."""

    job: dict[str, object]
    schema: int = 0


class _Flat(msgspec.Struct, frozen=True):
    """A job's keys that are compared. schema: of the file; None where it cannot be read."""

    keys: dict[str, object] = {}
    schema: int | None = None

    def has_part_of(self, key: str) -> bool:
        """Whether the key, what it lies in or what lies in it has a value here."""
        return any(f"{own}.".startswith(f"{key}.") or f"{key}.".startswith(f"{own}.") for own in self.keys)


def with_history(arm: Arm, root: Path) -> Arm:
    """The arm with its seed and its epochs. root: the sweep's folder."""
    if not arm.folder:
        return msgspec.structs.replace(arm, seed=_typed_seed(arm.overrides))
    folder = RunFolder(root / arm.folder)
    job = _job(folder)
    seed = _typed_seed(arm.overrides) if job.trainer.seed is None else job.trainer.seed
    return msgspec.structs.replace(
        arm, seed=seed, num_workers=job.loader.num_workers, epochs=epoch_points(folder, arm.result)
    )


def arms_of_sweep(sweep: SweepFolder) -> list[Arm]:
    """The arms that a sweep's comparison tells of, read anew. Raises FlodlError where it cannot be understood."""
    return [with_history(arm, sweep.path) for arm in _told(sweep)]


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
    """Runs as arms, named by their folders. overrides: the keys of their jobs that are not the same everywhere."""
    jobs = [_flat_job(folder) for folder in folders]
    differing = _differing(jobs)
    names = _names([folder.path for folder in folders])
    return [
        _arm(folder, name, _overrides(job, differing, jobs))
        for folder, name, job in zip(folders, names, jobs, strict=True)
    ]


def _arm(folder: RunFolder, name: str, overrides: tuple[str, ...]) -> Arm:
    result = SweepFolder(folder.path.parent).result_of(str(folder.path))
    arm = Arm(
        name=name,
        overrides=overrides,
        status="interrupted" if result is None else result.status,
        reason="it has left no result (yet)" if result is None else result.reason,
        folder=str(folder.path),
        result=result,
    )
    return with_history(arm, folder.path)


def _flat_job(folder: RunFolder) -> _Flat:
    """The job's keys as they are in the file, whichever version wrote it."""
    try:
        plain = msgspec.json.decode(folder.spec_path.read_bytes(), type=_Plain)
    except (OSError, msgspec.MsgspecError):
        return _Flat()
    keys = {key: value for key, value in _flat(plain.job) if not _lies_in(key, NOT_COMPARED)}
    return _Flat(keys, plain.schema)


def _lies_in(key: str, parents: Sequence[str]) -> bool:
    return any(f"{key}.".startswith(f"{parent}.") for parent in parents)


def _flat(node: object, key: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(node, Mapping) and node:
        for name, value in cast("Mapping[str, object]", node).items():
            yield from _flat(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, node


def _differing(jobs: Sequence[_Flat]) -> list[str]:
    """Keys with several values, and those that only some jobs have. One that a job of another version lacks says
    nothing."""
    keys = dict.fromkeys(key for job in jobs for key in job.keys)
    return [key for key in keys if _has_several(key, jobs)]


def _has_several(key: str, jobs: Sequence[_Flat]) -> bool:
    having = [job for job in jobs if key in job.keys]
    if any(job.keys[key] != having[0].keys[key] for job in having):
        return True
    schemas = {job.schema for job in having}
    return any(key not in job.keys and job.schema in schemas for job in jobs)


def _overrides(job: _Flat, differing: Iterable[str], jobs: Sequence[_Flat]) -> tuple[str, ...]:
    """key=value of each difference, ~key of what others of its version have. A seed stays a text of its own; of very
    many others the first are named."""
    texts: list[str] = []
    for key in differing:
        if key in job.keys:
            texts.append(f"{key}={_text(job.keys[key])}")
        elif not job.has_part_of(key) and any(key in other.keys and other.schema == job.schema for other in jobs):
            texts.append(f"~{key}")
    seeds = [text for text in texts if text.partition("=")[0] == SEED]
    others = [text for text in texts if text not in seeds]
    if len(others) > MANY:
        others = [*others[:MANY], f"({len(others) - MANY} more: {_hash_of(others[MANY:])})"]
    return (*others, *seeds)


def _hash_of(texts: Sequence[str]) -> str:
    """A short name for a list of texts: equal for equal ones."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:6]


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list | bool | None) else str(value)


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
