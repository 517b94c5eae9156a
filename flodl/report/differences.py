"""What sets runs apart, in few words that can be typed: `model=mlp optim.lr=0.05` and not a job's every key.

Two runs get the same words exactly where their jobs are the same in all that is compared. A group of which runs have
different choices is told by the choice; a key of it only where it was typed, or where runs of one choice differ in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import cast

import msgspec

from flodl.record.choices import read_choices
from flodl.record.folder import RunFolder
from flodl.record.text import hydra_text
from flodl.report.arm import SEED

__all__ = ["Job", "job_in", "key_of", "overrides_of"]

# how a run was started, called and watched, not what it was
NOT_COMPARED = ("launch", "trusted_targets", "cluster.controller", "name", "objective", "logger", "sim",
                "checkpoint.resume_from", "checkpoint.resume")  # fmt: skip
FIRST = ("model", "dataset", "elche", "outer", "guard", "cluster", "optim")  # what people mean when they compare
MANY = 6  # differences that still make a name
LONGEST = 60  # letters of a value
ABSENT = object()


class Job(msgspec.Struct, frozen=True):
    """A job's keys that are compared. schema: of its file; None where that cannot be read. chosen: group -> choice,
    of a job that came from elsewhere (task=resume, task=rerun, a program) what was typed there.
    typed: overrides."""

    keys: dict[str, object] = {}
    schema: int | None = None
    chosen: dict[str, str] = {}
    typed: tuple[str, ...] = ()

    def has_part_of(self, key: str) -> bool:
        """Whether the key, what it lies in or what lies in it has a value here."""
        return any(f"{own}.".startswith(f"{key}.") or f"{key}.".startswith(f"{own}.") for own in self.keys)

    def deletes(self, key: str) -> bool:
        """Whether it was typed that the key, or what it lies in, goes."""
        return _lies_in(key, [key_of(text) for text in self.typed if text.startswith("~")])


class _Plain(msgspec.Struct, frozen=True):
    """All of a job, as plain as it is, whichever version wrote it."""

    job: dict[str, object]
    schema: int = 0


def job_in(folder: RunFolder) -> Job:
    """The job of a run."""
    try:
        plain = msgspec.json.decode(folder.spec_path.read_bytes(), type=_Plain)
    except (OSError, msgspec.MsgspecError):
        return Job()
    keys = {key: value for key, value in _flat(plain.job) if not _lies_in(key, NOT_COMPARED)}
    found = read_choices(folder.choices_path)
    if found.chosen.get("task") == "train":
        return Job(keys, plain.schema, found.chosen, found.typed)
    typed = {key_of(text) for text in found.typed}  # task=resume: all else is that of the run that it went on from
    return Job(keys, plain.schema, {group: name for group, name in found.chosen.items() if group in typed})


def overrides_of(jobs: Sequence[Job]) -> list[tuple[str, ...]]:
    """For each job the texts that tell it from the others, and before them what was typed for all of them.

    ~key: others of its version have it, and not because they added it. A seed stays a text of its own;
    of very many others the first are named.
    """
    differing = [key for key in dict.fromkeys(key for job in jobs for key in job.keys) if _has_several(key, jobs)]
    groups = sorted(dict.fromkeys(key.partition(".")[0] for key in differing), key=_place)
    told: list[list[str]] = [[] for _ in jobs]
    explained: set[str] = set()
    chosen: set[str] = set()  # groups that are told by their choice
    for group in groups:
        keys = [key for key in differing if key.partition(".")[0] == group]
        names = _names(group, keys, jobs)
        if len(set(names)) < 2:
            continue
        chosen.add(group)
        explained.update(key for key in keys if not _is_typed(key, jobs) and not _varies(key, jobs, names))
        says_more = len(set(names) - {""}) > 1
        for texts, name, job in zip(told, names, jobs, strict=True):
            texts.extend(([f"{group}={name}"] if says_more else []) if name else _texts(job, keys, jobs))
    rest = [key for key in differing if key not in explained and not _is_echo(key, explained, jobs)]
    rest.sort(key=lambda key: (not _is_typed(key, jobs), _place(key)))
    shared = _typed_by_all(jobs, {*differing, *chosen})
    return [(*shared, *_named([*texts, *(text for text in _texts(job, rest, jobs) if text not in texts)]))
            for texts, job in zip(told, jobs, strict=True)]  # fmt: skip


def _place(key: str) -> int:
    group = key.partition(".")[0]
    return FIRST.index(group) if group in FIRST else len(FIRST)


def _names(group: str, keys: Sequence[str], jobs: Sequence[Job]) -> list[str]:
    """Each job's choice in a group: one name for those that are alike there; "" where nobody knows it."""
    alike = [repr([job.keys.get(key, ABSENT) for key in keys]) for job in jobs]
    known: dict[str, str] = {}
    for values, job in zip(alike, jobs, strict=True):
        if group in job.chosen:
            known.setdefault(values, job.chosen[group])
    return [known.get(values, "") for values in alike]


def _is_typed(key: str, jobs: Sequence[Job]) -> bool:
    """Whether it was typed, or a map that it lies in; a group's choice is no map."""
    typed = {key_of(text) for job in jobs for text in job.typed}
    return _lies_in(key, [own for own in typed if "." in own or own == key])


def _varies(key: str, jobs: Sequence[Job], names: Sequence[str]) -> bool:
    """Whether jobs of one choice differ in it."""
    found: dict[str, object] = {}
    pairs = zip(names, jobs, strict=True)
    return any(found.setdefault(name, job.keys.get(key, ABSENT)) != job.keys.get(key, ABSENT)
               for name, job in pairs if name)  # fmt: skip


def _is_echo(key: str, explained: Iterable[str], jobs: Sequence[Job]) -> bool:
    """Whether it is everywhere what another key is that needs no words: a model's in_shape is its data's."""
    values = [job.keys.get(key, ABSENT) for job in jobs]
    return any(values == [job.keys.get(other, ABSENT) for job in jobs] for other in explained)


def _typed_by_all(jobs: Sequence[Job], differing: set[str]) -> tuple[str, ...]:
    """What everybody typed, of what is compared."""
    if len(jobs) < 2:
        return ()
    common = [text for text in jobs[0].typed if all(text in job.typed for job in jobs[1:])]
    return tuple(text for text in common if key_of(text) not in {*differing, "task", SEED}
                 and not _lies_in(key_of(text), NOT_COMPARED))  # fmt: skip


def key_of(text: str) -> str:
    """The key, or group, that an override is about."""
    return text.lstrip("+~").partition("=")[0].partition("@")[0]


def _has_several(key: str, jobs: Sequence[Job]) -> bool:
    """Several values, or none in some jobs. One that a job of another version lacks says nothing."""
    having = [job for job in jobs if key in job.keys]
    if any(job.keys[key] != having[0].keys[key] for job in having):
        return True
    schemas = {job.schema for job in having}
    return any(key not in job.keys and job.schema in schemas for job in jobs)


def _texts(job: Job, keys: Iterable[str], jobs: Sequence[Job]) -> list[str]:
    added = _added(jobs)
    texts: list[str] = []
    for key in keys:
        is_added = _lies_in(key, added)
        if key in job.keys:
            texts.append(f"{'++' if is_added else ''}{key}={_text(job.keys[key])}")
        elif not job.has_part_of(key) and (not is_added or job.deletes(key)) and _is_known(key, job.schema, jobs):
            texts.append(f"~{key}")
    return texts


def _added(jobs: Sequence[Job]) -> set[str]:
    """The keys, and maps of them, that were added by hand: no choice has them."""
    keys = {key_of(text) for job in jobs for text in job.typed if text.startswith("+")}
    return keys.difference(*(job.chosen for job in jobs))  # +model=mlp adds a choice


def _is_known(key: str, schema: int | None, jobs: Sequence[Job]) -> bool:
    return any(key in job.keys and job.schema == schema for job in jobs)


def _named(texts: Sequence[str]) -> tuple[str, ...]:
    seeds = [text for text in texts if key_of(text) == SEED]
    others = [text for text in texts if text not in seeds]
    if len(others) > MANY:
        others = [*others[:MANY], f"({len(others) - MANY} more: {_hash_of(others[MANY:])})"]
    return (*others, *seeds)


def _lies_in(key: str, parents: Collection[str]) -> bool:
    return any(f"{key}.".startswith(f"{parent}.") for parent in parents)


def _flat(node: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Every leaf; a list that holds maps anywhere, as that of the hosts, part by part."""
    if isinstance(node, list) and _holds_maps(cast("list[object]", node)):
        node = {f"{number}": part for number, part in enumerate(cast("list[object]", node))}
    if isinstance(node, Mapping) and node:
        for name, value in cast("Mapping[str, object]", node).items():
            yield from _flat(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, node


def _holds_maps(node: object) -> bool:
    if isinstance(node, list):
        return any(_holds_maps(part) for part in cast("list[object]", node))
    return isinstance(node, Mapping)


def _hash_of(texts: Sequence[str]) -> str:
    """A short name for a list of texts: equal for equal ones."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:6]


def _text(value: object) -> str:
    """A value as it is typed; of a long one the beginning, and a hash for the rest."""
    text = hydra_text(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({_hash_of([text])})"
