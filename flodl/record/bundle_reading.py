"""A bundle as it is handed to the rank that asks for it: piece by piece, from wherever it asks."""

from __future__ import annotations

import os

import msgspec

from flodl.errors import FlodlError
from flodl.record.bundle_folder import Bundle
from flodl.record.bundle_names import PLAIN, as_upload

__all__ = ["BundleReader"]

PIECE_BYTES = 1 << 20


class BundleReader:
    """Reads one bundle, which was found whole. Stateless: whoever asks says from where."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._plain = msgspec.json.encode(bundle.meta.plain)

    def read(self, name: str, offset: int) -> tuple[bytes, int]:
        """(bytes from `offset` on, size of the whole part); no bytes and size 0 for a part that the bundle has not.

        Raises FlodlError for a name that is none of its parts, OSError.
        """
        part = as_upload(name)
        if part is None or part.round != self._bundle.round:
            raise FlodlError(f"{name}: the run goes on from round {self._bundle.round}, and has no other part to give")
        if part.kind == PLAIN:
            return self._plain[offset : offset + PIECE_BYTES], len(self._plain)
        path = self._bundle.path(part.kind)
        if path is None:
            return b"", 0
        with path.open("rb") as file:
            return os.pread(file.fileno(), PIECE_BYTES, offset), path.stat().st_size
