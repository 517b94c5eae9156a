"""The one strict door: plain data in, JobSpec out, and back. For config, spec.json and checkpoints alike.

The plain form of a job is the config tree itself (components in their Hydra form), so what spec.json holds is what
a person would write. Reading gathers *all* problems; what a job says without effect comes as warnings beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from flodl.errors import ConfigError, Problem
from flodl.spec.checks import contradictions
from flodl.spec.component import Component, component_tree
from flodl.spec.job import JobSpec
from flodl.spec.reader import Reader
from flodl.spec.value import Value

__all__ = [
    "SCHEMA",
    "canonical_json",
    "decode_document",
    "decode_job",
    "job_to_plain",
    "load_spec",
    "sha256",
    "spec_document",
    "value_to_plain",
]

SCHEMA = 1  # of spec.json; raised when an old file can no longer be read as it is


def decode_job(tree: Mapping[str, object]) -> JobSpec:
    """A resolved config tree as a JobSpec.

    Raises ConfigError with every problem: unknown and missing keys, wrong types, values out of range, contradictions
    within a value and between values. `flodl.spec.checks.ineffective` tells what is legal but does nothing.
    """
    reader = Reader()
    job = reader.value(JobSpec, tree, "")
    if isinstance(job, JobSpec):
        reader.extend(contradictions(job))
    if reader.problems:
        raise ConfigError(reader.problems)
    return job


def job_to_plain(job: JobSpec) -> dict[str, Any]:
    """The job as plain data: `decode_job` reads it back to an equal job."""
    return cast("dict[str, Any]", _plain(job))


def value_to_plain(value: Value) -> dict[str, Any]:
    """One value of a job as plain data, as it stands in the tree."""
    return cast("dict[str, Any]", _plain(value))


def canonical_json(job: JobSpec) -> bytes:
    """The job as JSON with sorted keys and no blanks: equal jobs give equal bytes, on every host."""
    return msgspec.json.encode(job_to_plain(job), order="sorted")


def sha256(job: JobSpec) -> str:
    """Hex digest of the canonical JSON: the name of *what was asked*."""
    return _digest(job_to_plain(job))


def _digest(plain: dict[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


def spec_document(job: JobSpec) -> dict[str, Any]:
    """What spec.json holds: {schema, sha256, job}."""
    return {"schema": SCHEMA, "sha256": sha256(job), "job": job_to_plain(job)}


def decode_document(data: bytes, origin: str) -> JobSpec:
    """The job in a spec.json. origin: the file's name, for messages. Raises ConfigError, also for a changed file.

    The file's digest is that of what it holds: keys that came to flodl after it was written have their defaults.
    """
    try:
        document = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ConfigError([Problem(key=origin, constraint=f"is not JSON: {error}")]) from error
    if not isinstance(document, dict) or not {"schema", "sha256", "job"} <= cast("dict[str, Any]", document).keys():
        raise ConfigError([Problem(key=origin, constraint="is not a spec.json of flodl",
                                   remedy="it holds schema, sha256 and job")])  # fmt: skip
    found = cast("dict[str, Any]", document)
    if found["schema"] != SCHEMA:
        raise ConfigError([Problem(key=f"{origin}: schema", value=str(found["schema"]),
                                   constraint=f"this flodl reads schema {SCHEMA}",
                                   remedy="use the flodl that wrote it")])  # fmt: skip
    job = decode_job(found["job"])
    if _digest(found["job"]) != found["sha256"]:
        raise ConfigError([Problem(key=origin, constraint="the job is not the one that its sha256 names",
                                   remedy="the file was changed: compose that job from conf/ instead")])  # fmt: skip
    return job


def load_spec(path: Path) -> JobSpec:
    """The job that a spec.json holds. Raises ConfigError where the file cannot be read or is not one."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError([Problem(key="spec", value=str(path), constraint=error.strerror or str(error),
                                   remedy="name the spec.json of a run folder")]) from error  # fmt: skip
    return decode_document(data, str(path))


def _plain(value: object) -> object:
    if isinstance(value, Component):
        return component_tree(value)
    if isinstance(value, Value):
        tag = value.__struct_config__.tag_field
        head = {tag: value.__struct_config__.tag} if tag else {}
        return head | {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[object, ...]", value)]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in cast("dict[str, object]", value).items()}
    return value
