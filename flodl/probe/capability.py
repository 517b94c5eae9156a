"""Does this torch build run on that GPU? CUDA's own rule, and the command that brings a build which does.

A build holds machine code (sm_XY: for the same major number and this minor number or a higher one) and sometimes PTX
(compute_XY: for everything from there on). That a number is in the list is not asked: builds that list sm_60 do run on
a GTX 1060 (6.1). Suffixes: sm_90a is for 9.0 alone, sm_100f for its family.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

__all__ = ["BF16", "TRITON", "is_supported", "known_archs", "remedy", "wheel_index"]

BF16 = (8, 0)  # native bfloat16
TRITON = (7, 0)  # torch.compile's kernels

_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")
_OFFICIAL = re.compile(r"\d+\.\d+\.\d+\+cu\d+")
_OLD = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
_NEW = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
# The oldest capability that needs this build, newest first: (capability, CUDA of the wheel, versions of torch).
_WHEELS = (
    ((11, 0), "cu130", "torch"),
    ((10, 0), "cu128", "torch"),
    ((7, 5), "cu128", "torch"),
    ((5, 0), "cu126", "torch>=2.10,<2.15"),
)


def is_supported(archs: Sequence[str], capability: tuple[int, int]) -> bool:
    """Whether a build that is compiled for these architectures runs on that GPU."""
    return any(_runs(_ARCH.fullmatch(arch), capability) for arch in archs)


def known_archs(torch: str, cuda: str) -> tuple[str, ...]:
    """What an official wheel is compiled for, before its warm process has told it; () for a build of one's own."""
    major, _, minor = cuda.partition(".")
    if not _OFFICIAL.fullmatch(torch) or not (major.isdigit() and minor.isdigit()):
        return ()
    return _NEW if (int(major), int(minor)) >= (12, 8) else _OLD


def wheel_index(capability: tuple[int, int]) -> tuple[str, str] | None:
    """(what to install, CUDA of its wheel) for a GPU; None for one that no torch of ours supports any more."""
    return next(((asked, wheel) for oldest, wheel, asked in _WHEELS if capability >= oldest), None)


def remedy(python: str, capability: tuple[int, int]) -> str:
    """The command to paste on the GPU's host."""
    found = wheel_index(capability)
    if found is None:
        return "this GPU is too old for torch 2.10: leave it out of local_devices, or use cpu:N"
    asked, wheel = found
    index = f"https://download.pytorch.org/whl/{wheel}"
    return f"on that host: {shlex.quote(python)} -m pip install --upgrade {shlex.quote(asked)} --index-url {index}"


def _runs(arch: re.Match[str] | None, capability: tuple[int, int]) -> bool:
    if arch is None:
        return False
    kind, built, suffix = arch[1], (int(arch[2]), int(arch[3])), arch[4]
    if suffix == "a":
        return built == capability
    if kind == "compute" and not suffix:
        return built <= capability
    return built[0] == capability[0] and built[1] <= capability[1]
