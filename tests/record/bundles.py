"""Saves for the tests of bundles. As a program: a writer that forks one child per save, so that a tracer can attach."""

from __future__ import annotations

import ctypes
import hashlib
import os
import queue
import sys
from collections.abc import Callable
from pathlib import Path

from flodl.decide.messages import BundleKept, Event, SaveBegun
from flodl.errors import FlodlError
from flodl.record.bundle import BundleStore, Saved
from flodl.record.bundle_meta import BundleMeta
from flodl.record.keeper import Keeper, Owner
from flodl.record.tensor_header import Row, encode_head, read_head
from flodl.record.weights import SHOWN
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
    """A member: a file of tensors, of which weights are made."""
    text = f"{kind} of round {round_}{mark};".encode() * 400
    name = "model.param/text" if kind == "model" else "center/text"
    return encode_head({name: Row("U8", (len(text),), (0, len(text)))}, {SHOWN: "{}"}) + text


def weights_in(folder: Path) -> bytes:
    """What the weights beside bundles of such content say; nothing where there are none."""
    path = folder / "weights.safetensors"
    if not path.exists():
        return b""
    head = read_head(path)
    assert list(head.rows) == ["text"]
    return path.read_bytes()[head.size :]


def weights_of(round_: int, mark: str = "") -> bytes:
    """What they say where they are that round's."""
    return f"model of round {round_}{mark};".encode() * 400


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def save(into: BundleStore, round_: int, mark: str = "", **fields: object) -> Saved:
    """One whole save of both members."""
    saving = into.begin(round_)
    for kind in ("model", "outer"):
        sink = saving.open(kind)
        for part in (content(round_, kind, mark)[:1000], content(round_, kind, mark)[1000:]):
            sink.write(memoryview(part))
        sink.commit(digest(content(round_, kind, mark)))
    return into.commit(saving, meta(round_, **fields))


def keep(folder: Path) -> Callable[[int], None]:
    """A keeper that is there already; told a round, it takes a rank's whole save of it. Raises FlodlError."""
    told: queue.SimpleQueue[Event] = queue.SimpleQueue()
    owner = Owner(run_id="r", spec_sha256="s", world_size=2)
    keeper = Keeper(store(folder), owner, fixed=lambda: {"state": {}}, tell=told.put)

    def save_all(round_: int) -> None:
        begun = SaveBegun(
            rank=0, round=round_, generation=1, epoch=0, global_step=10 * round_, why="checkpoint", reason="test"
        )
        keeper.observe(BundleKept(at=0.0, rank=9, round=0), (begun,))
        for name in (f"r{round_}.plain", f"r{round_}.outer", f"r{round_}.model"):
            sink = keeper.open_upload(0, name)
            assert sink is not None
            data = b"{}" if name.endswith("plain") else content(round_, name.rpartition(".")[2], " again")
            sink.write(memoryview(data))
            sink.commit(digest(data))
        kept = told.get()
        keeper.close()
        assert isinstance(kept, BundleKept)
        if kept.error:
            raise FlodlError(kept.error)

    return save_all


def main() -> None:
    """Lines `round<TAB>folder<TAB>how` come in (how: store or keeper); for each a child is born, its pid told, and it
    saves once `go` comes in."""
    for line in sys.stdin:
        round_, folder, how = line.rstrip("\n").split("\t")
        child = os.fork()
        if not child:
            _one_save(int(round_), Path(folder), how)
        _, status = os.waitpid(child, 0)
        _tell(os.waitstatus_to_exitcode(status))


def _tell(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def _one_save(round_: int, folder: Path, how: str) -> None:
    keeper = keep(folder) if how == "keeper" else None
    ctypes.CDLL(None).prctl(*ANY_TRACER, 0, 0, 0)
    _tell(os.getpid())  # from here on it only waits: a tracer that attaches now sees the save and nothing before it
    told = b""
    while told != b"go\n":  # unbuffered: the parent reads the lines after this one
        told += os.read(0, 1)
    try:
        if keeper is not None:
            keeper(round_)
        else:
            for remark in save(store(folder), round_, mark=" again").remarks:
                os.write(2, remark.encode() + b"\n")
    except FlodlError as error:
        os.write(2, str(error).encode() + b"\n")
        os._exit(4)
    os._exit(0)


if __name__ == "__main__":
    main()
