"""What a machine for GPUs has and this one may lack: nvidia-smi, nvcc, make, a CUDA torch, NCCL libraries and wheels.

They are put on PATH, in front of an interpreter, or into a folder that pip looks into: nothing of ours is replaced.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from flodl.tasks.wheel import write_wheel

__all__ = ["fatbin", "library", "nccl_wheel", "nvidia_smi", "program", "stub_wheel", "torch_python"]


def program(folder: Path, name: str, script: str) -> Path:
    """An executable shell script."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def nvidia_smi(folder: Path, cards: Sequence[tuple[str, str]]) -> Path:
    """Lists these cards: (name, capability), to whatever of the questions that flodl asks."""
    full = "".join(f"{name}, {capability}, 8192, 580.1\n" for name, capability in cards)
    short = "".join(f"{capability}\n" for _, capability in cards)
    return program(
        folder, "nvidia-smi", f"case \"$*\" in *name,*) printf '%s' '{full}';; *) printf '%s' '{short}';; esac"
    )


def torch_python(folder: Path, nccl: str, cuda: str) -> Path:
    """An interpreter whose torch says that it is built with this CUDA and holds this NCCL."""
    site = folder / "site"
    (site / "torch").mkdir(parents=True)
    parts = ", ".join(nccl.split("."))
    (site / "torch" / "__init__.py").write_text(
        "class version:\n"
        f"    cuda = {cuda!r}\n"
        "class cuda:\n    class nccl:\n        @staticmethod\n"
        f"        def version():\n            return ({parts})\n"
    )
    return program(folder, "python", f'PYTHONPATH="{site}" exec {sys.executable} "$@"')


def library(version: str, archs: Sequence[int] = ()) -> bytes:
    """An x86-64 library whose ncclGetVersion tells this version, with (empty) GPU code for sm_<arch>."""
    major, minor, patch = (int(part) for part in version.split("."))
    code = b"\xc7\x07" + struct.pack("<I", major * 10000 + minor * 100 + patch) + b"\x31\xc0\xc3"  # *rdi = n; return 0
    strings = b"\0ncclGetVersion\0"
    heads = 64 + 3 * 56
    at_code, at_symbols = heads, heads + 16
    at_strings, at_hash = at_symbols + 48, at_symbols + 64
    at_dynamic = at_hash + 24
    size = at_dynamic + 6 * 16
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 1, at_code, len(code))
    table = struct.pack("<6I", 1, 2, 1, 0, 0, 0)  # one bucket, two symbols, and the chain ends with the first
    dynamic = struct.pack("<12Q", 4, at_hash, 5, at_strings, 6, at_symbols, 10, len(strings), 11, 24, 0, 0)
    segments = b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, start, start, start, length, length, align)
        for kind, flags, start, length, align in (
            (1, 7, 0, size, 4096),
            (2, 6, at_dynamic, 96, 8),
            (0x6474E551, 6, 0, 0, 16),
        )
    )
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 3, 0, 0, 0)
    body = head + segments + code.ljust(16, b"\0") + symbols + strings.ljust(16, b"\0") + table + dynamic
    assert len(body) == size
    return body + (fatbin(archs) if archs else b"")


def fatbin(archs: Sequence[int]) -> bytes:
    """A container of GPU code as CUDA's linker writes it: one piece of machine code per arch, without its code."""
    pieces = b"".join(
        struct.pack("<HHIQ", 2, 0x101, 64, 0) + bytes(12) + struct.pack("<I", arch) + bytes(32) for arch in archs
    )
    return bytes(8) + struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(pieces)) + pieces


def nccl_wheel(folder: Path, cuda: str, version: str, content: bytes) -> Path:
    """NVIDIA's wheel of NCCL, in its form and with this library in it."""
    name = f"nvidia_nccl_cu{cuda}"
    info = f"{name}-{version}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    files = {"nvidia/nccl/lib/libnccl.so.2": content,
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()}  # fmt: skip
    return write_wheel(folder, name, version, files)


def stub_wheel(folder: Path, name: str, version: str, module: str = "") -> Path:
    """A package of one module."""
    plain = name.replace("-", "_")
    files = {
        f"{plain}.py": module.encode(),
        f"{plain}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return write_wheel(folder, plain, version, files)
