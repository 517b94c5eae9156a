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

__all__ = ["arms_of_runs", "arms_of_sweep", "with_history"]

NOT_COMPARED = ("launch.", "trusted_targets", "cluster.controller.")  # how a run was started, not what it was
MANY = 4  # differences that still make a name


class _Document(msgspec.Struct):
    arms: tuple[Arm, ...] = ()


class _Trainer(msgspec.Struct, frozen=True):
    seed: int | None = None


class _Job(msgspec.Struct, frozen=True):
    trainer: _Trainer = _Trainer()


class _Spec(msgspec.Struct, frozen=True):
    """The one field that is looked at, whichever version wrote the file."""

    job: _Job = _Job()


class _Plain(msgspec.Struct, frozen=True):
    """All of a job, as plain as it is."""

    job: dict[str, object]


def with_history(arm: Arm, root: Path) -> Arm:
    """The arm with its seed and its epochs. root: the sweep's folder."""
    if not arm.folder:
        return msgspec.structs.replace(arm, seed=_typed_seed(arm.overrides))
    folder = RunFolder(root / arm.folder)
    seed = _seed(folder)
    seed = _typed_seed(arm.overrides) if seed is None else seed
    return msgspec.structs.replace(arm, seed=seed, epochs=epoch_points(folder, arm.result))


def arms_of_sweep(sweep: SweepFolder) -> list[Arm]:
    """The arms that a sweep's comparison tells of, read anew. Raises FlodlError where it cannot be understood."""
    try:
        arms = msgspec.json.decode(sweep.comparison_json_path.read_bytes(), type=_Document).arms
    except (OSError, msgspec.MsgspecError) as error:
        raise FlodlError(f"{sweep.comparison_json_path}: {error}") from error
    return [with_history(arm, sweep.path) for arm in arms]


def arms_of_runs(folders: Sequence[RunFolder]) -> list[Arm]:
    """Runs as arms, named by their folders. overrides: the keys of their jobs that are not the same everywhere."""
    jobs = [_flat_job(folder) for folder in folders]
    differing = _differing(jobs)
    names = _names([folder.path for folder in folders])
    return [
        _arm(folder, name, _overrides(job, differing)) for folder, name, job in zip(folders, names, jobs, strict=True)
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


def _flat_job(folder: RunFolder) -> dict[str, object]:
    """The job's keys as they are in the file, whichever version wrote it."""
    try:
        return dict(_flat(msgspec.json.decode(folder.spec_path.read_bytes(), type=_Plain).job))
    except (OSError, msgspec.MsgspecError):
        return {}


def _flat(node: object, key: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(node, Mapping) and node:
        for name, value in cast("Mapping[str, object]", node).items():
            yield from _flat(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, node


def _differing(jobs: Sequence[Mapping[str, object]]) -> list[str]:
    """Keys with several values. One that a job lacks says nothing: another version may have written it."""
    values: dict[str, list[object]] = {}
    for job in jobs:
        for key, value in job.items():
            if not key.startswith(NOT_COMPARED):
                values.setdefault(key, []).append(value)
    return [key for key, found in values.items() if any(value != found[0] for value in found)]


def _overrides(job: Mapping[str, object], differing: Iterable[str]) -> tuple[str, ...]:
    """key=value of each difference. A seed stays a text of its own; of very many others the first are named."""
    texts = [f"{key}={_text(job.get(key))}" for key in differing if key in job]
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


def _seed(folder: RunFolder) -> int | None:
    try:
        return msgspec.json.decode(folder.spec_path.read_bytes(), type=_Spec).job.trainer.seed
    except (OSError, msgspec.MsgspecError):
        return None


def _typed_seed(overrides: Iterable[str]) -> int | None:
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        if key == SEED and value.isdecimal():
            return int(value)
    return None
