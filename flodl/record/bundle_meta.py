"""The meta file of a bundle: where the run stood, and which members with which digests belong to it.

Plain JSON without NaN (a reader would get null). Its own digest is in it: a flipped digit in the coordinator's state
would otherwise be as good as any other.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from flodl.errors import ConfigError, FlodlError, Problem
from flodl.record.bundle_names import Kind
from flodl.spec.checkpoint import SaveReason

__all__ = ["BUNDLE_SCHEMA", "BundleMeta", "Member", "SaveReason", "decode_meta", "encode_meta"]

BUNDLE_SCHEMA = 1  # raised when an old bundle can no longer be read as it is
DIGEST = "sha256"

Count = Annotated[int, Meta(ge=0)]


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a bundle. size in bytes; sha256 as hex."""

    kind: Kind
    name: str
    size: Count
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class BundleMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Where the run stood when its weights were these.

    global_step: batches of all ranks so far. figures: what an evaluation of these weights gave. coordinator: its
    snapshot, with what of the epoch is done as ranges. plain: what of optimizer and averaging is no tensor.
    serial, members: written by the store; a bundle with a higher serial was saved later (rounds may come twice).
    """

    schema: int = BUNDLE_SCHEMA
    run_id: str
    spec_sha256: str
    reason: SaveReason
    round: Count
    generation: Count
    epoch: Count
    global_step: Count
    world_size: Count
    figures: dict[str, float] = {}
    coordinator: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    serial: Count = 0
    members: tuple[Member, ...] = ()


def encode_meta(meta: BundleMeta) -> bytes:
    """The file's bytes. Raises FlodlError for a number that JSON does not have, with its place."""
    tree = cast("dict[str, Any]", msgspec.to_builtins(meta, str_keys=True))
    try:
        json.dumps(tree, allow_nan=False)  # quicker than to look for it, and msgspec would write null
    except ValueError:
        place, value = next(_nonfinite(tree, "meta"))
        raise FlodlError(f"the bundle of round {meta.round}: {place} is {value}, which JSON cannot hold") from None
    return msgspec.json.format(msgspec.json.encode(tree | {DIGEST: _digest(tree)}), indent=2) + b"\n"


def decode_meta(data: bytes, origin: str) -> BundleMeta:
    """The meta in a file's bytes. origin: the file's name, for messages. Raises ConfigError for what is damaged, no
    bundle of flodl, or of another schema."""
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _refused(origin, f"is damaged: no JSON: {error}") from error
    if not isinstance(tree, dict) or not {"schema", "round", "members", DIGEST} <= cast("dict[str, Any]", tree).keys():
        raise _refused(origin, "is not the meta file of a bundle of flodl", "name another folder or stem")
    found = cast("dict[str, Any]", tree)
    if found["schema"] != BUNDLE_SCHEMA:
        known = f"has schema {found['schema']}, and this flodl reads {BUNDLE_SCHEMA}"
        raise _refused(origin, known, "use the flodl that wrote it")
    told = found.pop(DIGEST)
    if told != _digest(found):
        raise _refused(origin, f"is damaged: its content is not the one that its {DIGEST} names ({str(told)[:12]}...)")
    try:
        return msgspec.convert(found, BundleMeta)
    except msgspec.ValidationError as error:
        raise _refused(origin, f"cannot be read: {error}") from error


def _refused(origin: str, constraint: str, remedy: str = "") -> ConfigError:
    return ConfigError([Problem(key=origin, constraint=constraint, remedy=remedy)])


def _digest(tree: dict[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(tree, order="sorted")).hexdigest()


def _nonfinite(tree: object, place: str) -> Iterator[tuple[str, float]]:
    if isinstance(tree, Mapping):
        for name, item in cast("Mapping[object, object]", tree).items():
            yield from _nonfinite(item, f"{place}.{name}")
    elif isinstance(tree, list | tuple):
        for i, item in enumerate(cast("list[object]", tree)):
            yield from _nonfinite(item, f"{place}[{i}]")
    elif isinstance(tree, float) and not math.isfinite(tree):
        yield place, tree
