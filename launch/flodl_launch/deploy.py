"""The port `Deploy`: the working tree and the data set onto the hosts, before a run.

What an earlier push has brought and the project no longer has is taken away again; nothing else on a host is deleted:
a list of what was pushed lies beside the files.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from flodl.errors import ConfigError, HostUnready, Problem
from flodl.ports import HostCall, PushProgress
from flodl.spec.cluster import ClusterSpec
from flodl_launch.execute import execute
from flodl_launch.files import project_files
from flodl_launch.rsync import Listener, end_all, send

__all__ = ["deploy"]

LIST = ".flodl-deployed"
AT_ONCE = 4  # they share this machine's line
REMOTE_SECONDS = 60.0


def deploy(
    cluster: ClusterSpec, calls: Sequence[HostCall], project: Path, on_progress: Callable[[PushProgress], None]
) -> tuple[HostUnready, ...]:
    """Push what cluster.deploy names to every host, in parallel; the troubles of all hosts. See flodl.ports.Deploy."""
    data = _data_source(cluster)
    names = project_files(project) if cluster.deploy.code == "rsync" else None
    troubles: dict[str, HostUnready] = {}
    stop = threading.Event()
    bound = threading.Semaphore(AT_ONCE)

    def work(call: HostCall) -> None:
        try:
            with bound:
                if stop.is_set():
                    return
                if names is not None and not _is_same(call, project, call.path):
                    _push_code(call, project, names, on_progress)
                if data is not None and not _is_same(call, data, _data_target(call)):
                    _push_data(call, data, on_progress)
        except HostUnready as trouble:
            troubles[call.label] = trouble

    threads = [threading.Thread(target=work, args=(call,), name="flodl-deploy", daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # a signal to us ends the pushes too
        stop.set()
        end_all()
        raise
    return tuple(troubles[call.label] for call in calls if call.label in troubles)


def _data_source(cluster: ClusterSpec) -> Path | None:
    if cluster.deploy.data != "rsync":
        return None
    named = cluster.controller.data_path
    if named is None or not Path(named).is_dir():
        constraint = "must be the folder of this machine that deploy.data=rsync pushes"
        raise ConfigError([Problem(key="cluster.controller.data_path", value=str(named), constraint=constraint)])
    return Path(named)


def _data_target(call: HostCall) -> str:
    return call.spec.data_path or f"{call.path}/data"


def _is_same(call: HostCall, source: Path, target: str) -> bool:
    return call.here and Path(target or ".").resolve() == source.resolve()


def _push_code(call: HostCall, project: Path, names: Sequence[str], on_progress: Listener) -> None:
    """Rewritten files first, then the list, then what is gone: an interrupted push is mended by the next."""
    before = _prepare(call, call.path)
    send(call, "code", project, call.path, names, on_progress)
    gone = sorted(before - set(names))
    if gone:
        given = b"\0".join(name.encode() for name in gone)
        _remote(call, call.path, ["xargs", "-0", "rm", "-f", "--"], given)
    with tempfile.TemporaryDirectory(prefix="flodl-") as folder:
        (Path(folder) / LIST).write_text("".join(json.dumps(name) + "\n" for name in names))
        send(call, "code", Path(folder), call.path, [LIST], lambda _: None)


def _push_data(call: HostCall, source: Path, on_progress: Listener) -> None:
    target = _data_target(call)
    _prepare(call, target)
    send(call, "data", source, target, None, on_progress)


def _prepare(call: HostCall, folder: str) -> set[str]:
    """Make the folder; the names of what an earlier push has brought there."""
    lines: list[str] = []
    script = f'mkdir -p -- "$1" && cd -- "$1" && {{ cat {LIST} 2> /dev/null || true; }}'
    _remote(call, "", ["/bin/sh", "-c", script, "sh", folder], b"", lines)
    return {name for line in lines if (name := _inside(line))}


def _inside(line: str) -> str:
    """A name of the list, "" for what does not lie in the folder: the list may have been tampered with."""
    try:
        name = msgspec.json.decode(line, type=str)
    except msgspec.MsgspecError:
        return ""
    parts = name.split("/")
    return "" if ".." in parts or not parts[0] else name


def _remote(call: HostCall, folder: str, argv: Sequence[str], given: bytes, lines: list[str] | None = None) -> None:
    heard: list[str] = [] if lines is None else lines
    outside = msgspec.structs.replace(call, path=folder, spec=msgspec.structs.replace(call.spec, docker=None))
    code = execute(outside, argv, given=given, on_line=heard.append, timeout_seconds=REMOTE_SECONDS)
    if code:
        place = folder or argv[-1]
        is_full = any("No space left" in line for line in heard)
        remedy = f"make room at {place} on that host" if is_full else "let its user write there"
        raise HostUnready(call.label, "no_path", f"{place} cannot be written to (exit code {code})",
                          f"{remedy}, or choose another path: for this host", heard[-5:])  # fmt: skip
