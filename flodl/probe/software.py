"""Which software a rank of this interpreter would load, read from what is installed: torch itself is never imported.

NCCL is the exception: it is loaded and asked, since a preloaded one of another version is the whole point. That happens
in a forked child, for a library that crashes must not take the report along.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import re
import resource
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

from flodl.probe.report import Library

__all__ = ["distribution_version", "has_module", "missing_preloads", "nccl_library", "nccl_version", "torch_build"]

LOAD_SECONDS = 10
_NCCL = "libnccl.so"
_QUOTED = re.compile(r"['\"]([^'\"]+)['\"]")


def distribution_version(name: str) -> str:
    """The version of an installed distribution, from the name of its folder; "" where it is not installed."""
    for entry in sys.path:
        with contextlib.suppress(OSError):
            for found in sorted(Path(entry or ".").glob(f"{name.replace('-', '_')}-*.dist-info")):
                return found.name.removesuffix(".dist-info").partition("-")[2]
    return ""


def has_module(name: str) -> bool:
    """Whether a top-level module can be imported; it is not."""
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def torch_build() -> tuple[str, str]:
    """(version, CUDA version) of the installed torch; "" for what it has not."""
    folder = _torch_folder()
    if folder is None:
        return "", ""
    try:
        lines = (folder / "version.py").read_text().splitlines()
    except OSError:
        return distribution_version("torch"), ""
    return _assigned(lines, "__version__") or distribution_version("torch"), _assigned(lines, "cuda")


def missing_preloads(preload: str) -> tuple[str, ...]:
    """Files of an LD_PRELOAD that are not there: the loader only murmurs about them and goes on without."""
    return tuple(entry for entry in _entries(preload) if "/" in entry and not Path(entry).is_file())


def nccl_library(preload: str, library_path: str, *, has_cuda: bool) -> Library:
    """The NCCL that a rank would use: a preloaded one, torch's own, or the system's; none for a build without CUDA."""
    preloaded = next((entry for entry in _entries(preload) if _NCCL in Path(entry).name), "")
    if preloaded:
        return _asked(preloaded, is_preloaded=True)
    if not has_cuda:
        return Library()
    found = next((path for path in _nccl_places(library_path) if path.is_file()), None)
    return _asked(str(found) if found else f"{_NCCL}.2", is_preloaded=False)


def nccl_version(number: int) -> str:
    """NCCL's number as people write it: 22705 is 2.27.5, and 2804 was 2.8.4."""
    base = 10000 if number >= 10000 else 1000
    return f"{number // base}.{number % base // 100}.{number % 100}"


def _asked(path: str, *, is_preloaded: bool) -> Library:
    answer = _in_a_child(path)
    if answer.isdigit():
        return Library(path=path, version=nccl_version(int(answer)), is_preloaded=is_preloaded)
    return Library(path=path, trouble=answer or "it crashes or hangs when it is loaded", is_preloaded=is_preloaded)


def _in_a_child(path: str) -> str:
    """NCCL's number, or why it cannot be asked. This process has one thread, so it may fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(LOAD_SECONDS)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(writing, _ask(path).encode("utf-8", "backslashreplace")[:1000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    return text


def _ask(path: str) -> str:
    number = ctypes.c_int()
    try:
        if ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number)) != 0:
            return "ncclGetVersion fails"
    except (OSError, AttributeError) as error:
        return str(error)
    return str(number.value)


def _nccl_places(library_path: str) -> list[Path]:
    """Where torch's loader looks: its companions' folders and its own (rpath), then LD_LIBRARY_PATH."""
    name, folder = f"{_NCCL}.2", _torch_folder()
    packages = [folder.parent] if folder else []
    own = [folder / "lib" / name] if folder else []
    companions = [place / "nvidia" / "nccl" / "lib" / name for place in packages]
    return [*companions, *own, *(Path(entry) / name for entry in library_path.split(":") if entry)]


def _torch_folder() -> Path | None:
    try:
        found = find_spec("torch")
    except (ImportError, ValueError):
        return None
    return Path(found.origin).parent if found is not None and found.origin else None


def _assigned(lines: list[str], name: str) -> str:
    """The string that is assigned to a name at the start of a line."""
    for line in lines:
        left, equals, right = line.partition("=")
        if equals and left.partition(":")[0].strip() == name:
            found = _QUOTED.search(right)
            return found.group(1) if found else ""
    return ""


def _entries(preload: str) -> list[str]:
    return [entry for entry in re.split(r"[:\s]+", preload) if entry]
