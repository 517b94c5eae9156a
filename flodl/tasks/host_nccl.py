"""Sent to hosts: bring one libnccl.so.2 of a wanted version, from a wheel or from source. The standard library alone.

Its one argument, a JSON document: {"do": "ask"} tells what is there (it imports torch and touches no GPU);
{"do": "wheel", "folder", "version", "cuda", "capabilities", "wheel"} and
{"do": "source", "folder", "version", "tag", "source", "capabilities", "jobs"} make <folder>/lib/libnccl.so.2.

A library that is there already is never changed, and nothing appears before it was loaded and asked its version.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["archs_of", "covers", "main", "version_of"]

LIBRARY = "libnccl.so.2"
FATBIN = struct.pack("<IHH", 0xBA55ED50, 1, 16)  # the head of a container of GPU code: magic, version, its own size
PTX, MACHINE_CODE = 1, 2
LOAD = (
    "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); found = ctypes.c_int(); "
    "code = lib.ncclGetVersion(ctypes.byref(found)); print(found.value); sys.exit(code)"
)


def version_of(library: Path) -> str:
    """The version that a library itself tells: 2.27.5. Loading it needs no GPU. Raises RuntimeError where it fails."""
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run([sys.executable, "-c", LOAD, str(library)], capture_output=True, text=True, timeout=120,
                          check=False, env=env)  # fmt: skip
    if done.returncode != 0 or not done.stdout.strip().isdigit():
        said = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise RuntimeError(f"{library} cannot be loaded and asked its version: {said}")
    code = int(done.stdout)
    return f"{code // 10000}.{code % 10000 // 100}.{code % 100}"  # since 2.9; nothing older is of use


def archs_of(library: Path) -> list[str]:
    """What GPU code a library holds: sm_61 (machine code), compute_120 (PTX). [] where none is found."""
    found: set[str] = set()
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
        at = held.find(FATBIN)
        while at >= 0 and at + 16 <= len(held):
            entry, end = at + 16, at + 16 + struct.unpack_from("<Q", held, at + 8)[0]
            while entry + 32 <= min(end, len(held)):
                kind, _, head, size = struct.unpack_from("<HHIQ", held, entry)
                if kind not in (PTX, MACHINE_CODE) or head < 32:
                    break
                number = struct.unpack_from("<I", held, entry + 28)[0]
                found.add(f"sm_{number}" if kind == MACHINE_CODE else f"compute_{number}")
                entry += head + size
            at = held.find(FATBIN, max(entry, at + 16))
    return sorted(found)


def covers(archs: list[str], capability: tuple[int, int]) -> bool:
    """CUDA's rule: machine code of the same major and no higher minor number, or PTX of no higher number."""
    for arch in archs:
        kind, _, number = arch.partition("_")
        built = divmod(int(number), 10)
        if built <= capability and (kind == "compute" or built[0] == capability[0]):
            return True
    return False


def main() -> None:
    """Do what the argument says and print the answer; what goes wrong ends with its words and exit code 1."""
    given = json.loads(sys.argv[1])
    try:
        answer = {"ask": _ask, "wheel": _wheel, "source": _source}[given["do"]](given)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        sys.exit(str(error))
    sys.stdout.write("flodl-answer: " + json.dumps(answer) + "\n")


def _ask(given: dict[str, Any]) -> dict[str, Any]:
    version, cuda = None, None
    try:
        torch: Any = import_module("torch")
        cuda = torch.version.cuda
        if cuda is not None:
            version = ".".join(str(part) for part in torch.cuda.nccl.version()[:3])
    except ImportError as error:
        sys.stdout.write(f"torch cannot be imported: {error}\n")
    return {"nccl": version, "cuda": cuda, "capabilities": _capabilities()}


def _capabilities() -> list[list[int]]:
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [[int(a), int(b)] for a, b in sorted(set(re.findall(r"^\s*(\d+)\.(\d+)\s*$", done.stdout, re.MULTILINE)))]


def _wheel(given: dict[str, Any]) -> dict[str, Any]:
    def make(place: Path) -> None:
        wheel = Path(given["wheel"]) if given["wheel"] else _downloaded(place, given["cuda"], given["version"])
        with zipfile.ZipFile(wheel) as archive:
            inside = next((name for name in archive.namelist() if name.endswith("/" + LIBRARY)), None)
            if inside is None:
                raise RuntimeError(f"{wheel.name} holds no {LIBRARY}")
            with archive.open(inside) as packed, (place / "lib" / LIBRARY).open("wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)

    return _made(given, make)


def _downloaded(place: Path, cuda: str, version: str) -> Path:
    asked = f"nvidia-nccl-cu{cuda.partition('.')[0]}=={version}"
    sys.stdout.write(f"downloading {asked}\n")
    sys.stdout.flush()
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps",
               "--only-binary=:all:", "--dest", str(place), asked]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    found = list(place.glob("*.whl"))
    if done.returncode != 0 or not found:
        said = [line for line in done.stdout.splitlines() if line.startswith("ERROR")] or done.stdout.splitlines()
        raise RuntimeError(f"pip cannot download {asked}: {' '.join(said[:2])}")
    return found[0]


def _source(given: dict[str, Any]) -> dict[str, Any]:
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        raise RuntimeError("nvcc is neither on PATH nor in /usr/local/cuda/bin: install the CUDA toolkit there, "
                           "or use method=wheel")  # fmt: skip

    def make(place: Path) -> None:
        tree = Path(given["source"])
        if not tree.is_dir():
            tree = place / "tree"
            _run("git", "clone", "--quiet", "--depth", "1", "--branch", given["tag"], "--", given["source"], str(tree))
        built = place / "build"
        gencode = " ".join(f"-gencode=arch=compute_{a}{b},code=sm_{a}{b}" for a, b in given["capabilities"])
        _run("make", "-C", str(tree), "-j", str(given["jobs"] or os.cpu_count() or 1), "src.build",
             f"BUILDDIR={built}", f"NVCC_GENCODE={gencode}", f"CUDA_HOME={Path(nvcc).resolve().parents[1]}",
             f"NVCC={nvcc}")  # fmt: skip
        shutil.copyfile(built / "lib" / LIBRARY, place / "lib" / LIBRARY)

    return _made(given, make)


def _made(given: dict[str, Any], make: Callable[[Path], None]) -> dict[str, Any]:
    """Make the library beside its place, look at it, and move it there. What is there already stays as it is."""
    folder = Path(given["folder"])
    library = folder / "lib" / LIBRARY
    if library.exists():
        sys.stdout.write(f"{library} is there already\n")
        return _looked_at(library, given)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as name:
        place = Path(name)
        (place / "lib").mkdir()
        make(place)
        _looked_at(place / "lib" / LIBRARY, given)
        folder.mkdir(exist_ok=True)
        (place / "lib").rename(folder / "lib")
    return _looked_at(library, given)


def _looked_at(library: Path, given: dict[str, Any]) -> dict[str, Any]:
    found, archs = version_of(library), archs_of(library)
    if found != given["version"]:
        raise RuntimeError(f"{library} says that it is NCCL {found}, wanted was {given['version']}")
    lacking = [f"{a}.{b}" for a, b in given["capabilities"] if archs and not covers(archs, (a, b))]
    if lacking:
        raise RuntimeError(f"NCCL {found} from {given['do']} holds code for {', '.join(archs)}, and a GPU here is of "
                           f"{', '.join(lacking)}: use method=source")  # fmt: skip
    return {"library": str(library), "version": found, "archs": archs}


def _run(*command: str) -> None:
    sys.stdout.write(" ".join(command) + "\n")
    sys.stdout.flush()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}")


if __name__ == "__main__":
    main()
