"""The weights for people, made of a bundle: what lies in its members, under the user's own names.

Nothing is computed: a head is written, and elements are copied from one file to the other. The head says which bundle
is shown, so whoever finds that this is not the newest one (a kill came between the two) makes the file again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from flodl.errors import FlodlError
from flodl.record.bundle_folder import Bundle
from flodl.record.bundle_names import BUFFER, COUNT, EMA, EMA_WEIGHTS_FILE, NARROW, PARAMETER, WEIGHTS_FILE
from flodl.record.files import AtomicFile, refusal
from flodl.record.tensor_header import Head, Row, encode_head, read_head

__all__ = ["COMPLEX", "SHOWN", "Shown", "WeightsSink", "mend_weights", "write_weights"]

COMPLEX = "complex"  # in a head's metadata: which tensors are pairs of real numbers
SHOWN = "weights"  # in that of a model member: what of it are weights for people
BUNDLE = "bundle"  # in that of such weights: of which bundle they are
CHUNK = 1 << 20


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle's parameters and buffers do not tell of the user's own state_dict. tied: a name that the bundle has
    not, to the one under which it holds that tensor. empty: tensors without elements, of which it holds nothing. aside:
    buffers that are not in the state_dict."""

    tied: dict[str, str] = {}
    empty: dict[str, Row] = {}
    aside: tuple[str, ...] = ()


class WeightsSink(AtomicFile):
    """Where weights go that belong to no bundle: the older ones stay until these are whole. Raises FlodlError."""

    def __init__(self, path: Path) -> None:
        with _told(path):
            path.parent.mkdir(exist_ok=True)
            super().__init__(path)

    def write(self, data: bytes | memoryview) -> None:
        """More bytes."""
        with _told(self.path):
            super().write(data)

    def commit(self, sha256: str = "") -> None:
        """All are there."""
        with _told(self.path):
            super().commit()

    def abandon(self) -> None:
        """Leave nothing behind (what the file system keeps is swept at the next save). Harmless after a commit."""
        with contextlib.suppress(OSError):
            super().abandon()


class _Source(NamedTuple):
    """Where a tensor's bytes lie: in which file, from which byte."""

    path: Path
    start: int
    row: Row


def write_weights(bundle: Bundle, names: Sequence[str] = (WEIGHTS_FILE, EMA_WEIGHTS_FILE)) -> tuple[str, ...]:
    """Have the weights beside a bundle be its own. names: of which files. Remarks about what could not be written."""
    remarks: list[str] = []
    try:
        files = _files(bundle)
    except OSError as error:
        return (str(refusal(error, bundle.meta_path, "its weights were not stored")),)
    except (FlodlError, msgspec.MsgspecError) as error:
        return (f"{error}: its weights were not stored",)
    for name in names:
        try:
            if name in files:
                _write(bundle.folder / name, *files[name])
        except FlodlError as error:
            remarks.append(str(error))
    return tuple(remarks)


def mend_weights(bundle: Bundle) -> None:
    """The same where they are another bundle's, or missing. A file that no save has written is left as it is."""
    write_weights(bundle, [name for name in (WEIGHTS_FILE, EMA_WEIGHTS_FILE) if _is_behind(bundle, name)])


def _is_behind(bundle: Bundle, name: str) -> bool:
    path, mark = bundle.folder / name, _mark(bundle)
    try:
        return read_head(path).metadata.get(BUNDLE, mark) != mark
    except FileNotFoundError:
        return True
    except (FlodlError, OSError):
        return False


@contextlib.contextmanager
def _told(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise refusal(error, path, "the weights were not stored") from error


def _mark(bundle: Bundle) -> str:
    model = next(member for member in bundle.meta.members if member.kind == "model")
    return f"{model.name} {model.sha256}"


def _files(bundle: Bundle) -> dict[str, tuple[dict[str, _Source], dict[str, str]]]:
    """By the names of the files that a bundle gives: their tensors, and what their heads say beside them."""
    model, outer = bundle.path("model"), bundle.path("outer")
    assert model is not None  # what has none is no bundle
    head = read_head(model)
    if SHOWN not in head.metadata:
        raise FlodlError(f"{model}: it does not say which of its tensors are weights")
    shown, own = msgspec.json.decode(head.metadata[SHOWN], type=Shown), _own(model, head)
    averaged = {} if outer is None else _averaged(outer)
    metadata = _metadata(shown, head) | {BUNDLE: _mark(bundle)}
    files = {WEIGHTS_FILE: (_named(shown, own), metadata)}
    return files | ({EMA_WEIGHTS_FILE: (_named(shown, own | averaged), metadata)} if averaged else {})


def _own(path: Path, head: Head) -> dict[str, _Source]:
    """A model member's parameters and buffers by the model's own names."""
    return {
        name.partition("/")[2]: _source(path, head, name) for name in head.rows if name.startswith((PARAMETER, BUFFER))
    }


def _averaged(path: Path) -> dict[str, _Source]:
    """The moving averages in an outer member: in the model's own dtype, where that is another one."""
    head = read_head(path)
    found = {name[len(prefix) :]: name for prefix in (EMA, NARROW) for name in head.rows if name.startswith(prefix)}
    return {name: _source(path, head, held) for name, held in found.items() if name != COUNT}


def _source(path: Path, head: Head, name: str) -> _Source:
    return _Source(path, head.size + head.rows[name].data_offsets[0], head.rows[name])


def _named(shown: Shown, own: dict[str, _Source]) -> dict[str, _Source]:
    """What the user's own state_dict has, the largest elements first: so all are aligned."""
    names = {name: name for name in own if name not in shown.aside} | shown.tied
    if lacking := sorted(name for name, first in names.items() if first not in own):
        raise FlodlError(f"the bundle lacks {lacking[0]}")
    found = {name: own[first] for name, first in names.items()}
    found |= {name: _Source(Path(), 0, row) for name, row in shown.empty.items()}
    return dict(sorted(found.items(), key=lambda item: -item[1].row.element_bytes))


def _metadata(shown: Shown, head: Head) -> dict[str, str]:
    """What the head of the weights says beside them."""
    stored = msgspec.json.decode(head.metadata.get(COMPLEX, "[]"), type=list[str])
    pairs = {name.partition("/")[2] for name in stored if name.startswith((PARAMETER, BUFFER))} - set(shown.aside)
    pairs = sorted(pairs | {name for name, first in shown.tied.items() if first in pairs})
    told = {"tied": shown.tied, COMPLEX: pairs}
    return {"format": "pt", **{key: msgspec.json.encode(value).decode() for key, value in told.items() if value}}


def _write(path: Path, sources: dict[str, _Source], metadata: dict[str, str]) -> None:
    rows: dict[str, Row] = {}
    at = 0
    for name, source in sources.items():
        end = at + source.row.num_bytes
        rows[name] = Row(source.row.dtype, source.row.shape, (at, end))
        at = end
    with _told(path), AtomicFile(path) as file:
        file.write(encode_head(rows, metadata))
        for part in _bytes(sources.values()):
            file.write(part)


def _bytes(sources: Iterable[_Source]) -> Iterator[bytes]:
    """All elements, those that lie end to end in one go."""
    runs: list[tuple[Path, int, int]] = []
    for path, start, row in sources:
        if not row.num_bytes:
            continue
        if runs and runs[-1][0] == path and runs[-1][2] == start:
            runs[-1] = (path, runs[-1][1], start + row.num_bytes)
        else:
            runs.append((path, start, start + row.num_bytes))
    for path, start, end in runs:
        with path.open("rb", buffering=0) as file:
            file.seek(start)
            left = end - start
            while left:
                part = file.read(min(CHUNK, left))
                if not part:
                    raise FlodlError(f"{path}: it ends before its last tensor")
                left -= len(part)
                yield part
