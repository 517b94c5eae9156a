"""The rig in one line: what will train, how it is averaged, and on how much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from flodl.decide.roster import Place
from flodl.spec.counting import counted
from flodl.spec.job import JobSpec
from flodl.spec.outer import outer_name

__all__ = ["hosts_of", "rig_line"]

SEPARATOR = " · "


def rig_line(job: JobSpec, roster: Sequence[Place], threads: Mapping[str, int] | None = None) -> str:
    """One line for people. job: with its mode resolved. threads: host -> torch threads of each of its ranks."""
    count = len(roster)
    hosts = hosts_of(roster)
    parts = [f"{counted(count, 'rank')} on {', '.join(_host(host, roster) for host in hosts)}"]
    if count > 1:
        parts += [job.elche.mode, _averages(job)] if job.loop is None else [job.elche.backend]
    else:
        ignored = f" (outer={outer_name(job.outer)} does nothing here)" if outer_name(job.outer) else ""
        parts.append(f"solo, nothing to average{ignored}")
    parts.append(f"batch {_batches(roster)}")
    limit = job.trainer.limit_batches
    short = f" of {counted(limit, 'batch', 'batches')}" if limit else ""
    if job.loop is None:
        parts.append(counted(job.trainer.num_epochs, "epoch") + short)
        parts += [_precision(job, roster), *_compiled(job, roster)]
    else:
        parts.append(f"the loop {job.loop.name}")
    if threads:
        few, many = min(threads.values()), max(threads.values())
        parts.append(f"{f'{few} to ' if few < many else ''}{counted(many, 'thread')} a rank")
    return SEPARATOR.join(parts)


def _averages(job: JobSpec) -> str:
    outer = outer_name(job.outer)
    return f"averages {job.elche.averages}" + (f", then {outer}" if outer else "")


def hosts_of(roster: Sequence[Place]) -> tuple[str, ...]:
    """Labels of the hosts in rank order, each once."""
    return tuple(dict.fromkeys(place.host for place in roster))


def _host(host: str, roster: Sequence[Place]) -> str:
    """One host and its devices: ``node-a (cuda:0, cuda:1)``, ``localhost (cpu, cpu at 0.4)``, ``big (4 x cpu)``."""
    devices = [
        place.device + (f" at {place.speed:g}" if place.speed != 1.0 else "") for place in roster if place.host == host
    ]
    runs = [(name, len(list(same))) for name, same in groupby(devices)]
    return f"{host} ({', '.join(f'{n} x {name}' if n > 2 else ', '.join([name] * n) for name, n in runs)})"


def _batches(roster: Sequence[Place]) -> str:
    """The batch size, or one per rank where they differ."""
    sizes = [place.batch_size for place in roster]
    return str(sizes[0]) if len(set(sizes)) == 1 else "/".join(str(size) for size in sizes)


def _precision(job: JobSpec, roster: Sequence[Place]) -> str:
    """In what the ranks compute; what `auto` comes to on a GPU, its rank says when it is ready."""
    asked = ["float32" if name == "auto" and place.device == "cpu" else name
             for place, name in zip(roster, _asked(job, roster, "precision"), strict=True)]  # fmt: skip
    return "/".join("precision by card" if name == "auto" else str(name) for name in dict.fromkeys(asked))


def _compiled(job: JobSpec, roster: Sequence[Place]) -> Iterator[str]:
    asked = _asked(job, roster, "compile")
    if True in asked:
        yield "compiled" if all(value is True for value in asked) else "partly compiled"


def _asked(job: JobSpec, roster: Sequence[Place], name: str) -> list[object]:
    """The value of one of the trainer's keys for each rank."""
    hosts = {host.host: job.trainer_with(host.overrides) for host in job.cluster.workers}
    return [getattr(hosts.get(place.host, job.trainer), name) for place in roster]
