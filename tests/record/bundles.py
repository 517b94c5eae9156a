"""Saves for the tests of bundles. As a program: a writer that forks one child per save, so that a tracer can attach."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from flodl.errors import FlodlError
from flodl.record.bundle import BundleStore, Saved
from flodl.record.bundle_meta import BundleMeta
from flodl.spec.checkpoint import BestConfig

STEM = "my model"
ANY_TRACER = (0x59616D61, -1)  # prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY): where Yama lets only ancestors trace


def store(folder: Path, keep: int | None = 2, best: BestConfig | None = None) -> BundleStore:
    return BundleStore(folder, STEM, keep=keep, best=best)


def meta(round_: int, **fields: object) -> BundleMeta:
    known = {"run_id": "r", "spec_sha256": "s", "reason": "checkpoint", "generation": 1, "epoch": 0,
             "global_step": 10 * round_, "world_size": 2} | fields  # fmt: skip
    return BundleMeta(round=round_, **known)  # pyright: ignore[reportArgumentType]


def content(round_: int, kind: str, mark: str = "") -> bytes:
    return f"{kind} of round {round_}{mark};".encode() * 400


def save(into: BundleStore, round_: int, mark: str = "", **fields: object) -> Saved:
    """One whole save of both members."""
    saving = into.begin(round_)
    for kind in ("model", "outer"):
        sink = saving.open(kind)
        for part in (content(round_, kind, mark)[:1000], content(round_, kind, mark)[1000:]):
            sink.write(memoryview(part))
        sink.commit()
    return into.commit(saving, meta(round_, **fields))


def main() -> None:
    """Lines `round<TAB>folder` come in; for each a child is born, its pid told, and it saves once `go` comes in."""
    for line in sys.stdin:
        round_, folder = line.rstrip("\n").split("\t")
        child = os.fork()
        if not child:
            _one_save(int(round_), Path(folder))
        _, status = os.waitpid(child, 0)
        _tell(os.waitstatus_to_exitcode(status))


def _tell(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def _one_save(round_: int, folder: Path) -> None:
    ctypes.CDLL(None).prctl(*ANY_TRACER, 0, 0, 0)
    _tell(os.getpid())  # from here on it only waits: a tracer that attaches now sees the save and nothing before it
    told = b""
    while told != b"go\n":  # unbuffered: the parent reads the lines after this one
        told += os.read(0, 1)
    try:
        for remark in save(store(folder), round_, mark=" again").remarks:
            os.write(2, remark.encode() + b"\n")
    except FlodlError as error:
        os.write(2, str(error).encode() + b"\n")
        os._exit(4)
    os._exit(0)


if __name__ == "__main__":
    main()
