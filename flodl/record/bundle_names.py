"""How the files of a bundle are called, and how names are read back. Nothing else spells or parses them.

::

    <stem>.r<round>.fdl         parameters, buffers, optimizer
    <stem>.r<round>.outer.fdl   center and outer state, where there is any
    <stem>.r<round>.meta.json   names the two above: this file makes a bundle
    <stem>.fdl  <stem>.meta.json   hard links to the newest, for people
    weights.safetensors         of the newest, beside whatever stem: a file of its own, no member

What is in the members tells its name's beginning: model.param/ model.buffer/ optim/ in the one, center/ velocity/ ema/
and so on in the other.

Where a round is saved again (a run that went back to an older bundle comes by it once more) its new members get a
take: <stem>.r<round>-2.fdl. So the old ones are whole until the new meta has taken the place of theirs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "BUFFER",
    "COUNT",
    "EMA",
    "EMA_WEIGHTS_FILE",
    "KINDS",
    "NARROW",
    "PARAMETER",
    "PLAIN",
    "WEIGHTS_FILE",
    "BundleNames",
    "Kind",
    "MemberName",
    "Upload",
    "as_upload",
    "is_meta",
    "upload_name",
]

Kind = Literal["model", "outer"]
KINDS: tuple[Kind, ...] = ("model", "outer")

WEIGHTS_FILE = "weights.safetensors"
EMA_WEIGHTS_FILE = "weights.ema.safetensors"  # likewise: their moving average
PARAMETER, BUFFER = "model.param/", "model.buffer/"
EMA, COUNT = "ema/", "."  # no tensor of a model has such a name
NARROW = "ema.narrow/"  # the same in the model's own dtype, where that is a narrower one: for people
PLAIN = "plain"  # what is no tensor travels beside the members, and lies in the meta
_ANY_META = re.compile(r".+\.r\d+\.meta\.json")
_UPLOAD = re.compile(r"r(\d+)\.(model|outer|plain)")

_ENDINGS: dict[Kind, str] = {"model": ".fdl", "outer": ".outer.fdl"}
_META = ".meta.json"


@dataclass(frozen=True)
class MemberName:
    """What the name of a member says."""

    round: int
    kind: Kind
    take: int


@dataclass(frozen=True)
class Upload:
    """A part of a bundle on its way from a rank, or to one."""

    round: int
    kind: Literal["model", "outer", "plain"]


def upload_name(round_: int, kind: Kind | Literal["plain"]) -> str:
    """How a part is called on its way."""
    return f"r{round_}.{kind}"


def is_meta(name: str) -> bool:
    """True for the name of a file that makes a bundle, whatever its stem."""
    return _ANY_META.fullmatch(name) is not None


def as_upload(name: str) -> Upload | None:
    """The part that a name on the way means; None for every other name."""
    found = _UPLOAD.fullmatch(name)
    if found is None:
        return None
    return Upload(int(found[1]), "model" if found[2] == "model" else "outer" if found[2] == "outer" else "plain")


class BundleNames:
    """The names of one stem's bundles."""

    def __init__(self, stem: str) -> None:
        head = re.escape(stem)
        self.stem = stem
        self._member = re.compile(rf"{head}\.r(\d+)(?:-(\d+))?(\.outer)?\.fdl")
        self._meta = re.compile(rf"{head}\.r(\d+){re.escape(_META)}")
        weights = "|".join(map(re.escape, (WEIGHTS_FILE, EMA_WEIGHTS_FILE)))
        self._temporary = re.compile(rf"\.({head}\..+|{weights})\.[0-9a-f]{{8}}\.tmp")

    @property
    def links(self) -> dict[Kind | Literal["meta"], str]:
        """What people load: names that always mean the newest bundle."""
        return {"model": f"{self.stem}.fdl", "meta": f"{self.stem}{_META}"}

    def member(self, round_: int, kind: Kind, take: int = 1) -> str:
        """The name of one part of a bundle."""
        return f"{self.stem}.r{round_}" + (f"-{take}" if take > 1 else "") + _ENDINGS[kind]

    def meta(self, round_: int) -> str:
        """The name of the file that makes the round's bundle."""
        return f"{self.stem}.r{round_}{_META}"

    def as_member(self, name: str) -> MemberName | None:
        """The name of a member, taken apart; None for every other name."""
        found = self._member.fullmatch(name)
        if found is None:
            return None
        return MemberName(int(found[1]), "outer" if found[3] else "model", int(found[2] or 1))

    def as_meta(self, name: str) -> int | None:
        """The round whose meta file is called so; None for every other name."""
        found = self._meta.fullmatch(name)
        return None if found is None else int(found[1])

    def is_temporary(self, name: str) -> bool:
        """True for what an interrupted save (of this stem, or of the weights) left under a name that nobody reads."""
        found = self._temporary.fullmatch(name)
        if found is None:
            return False
        return (
            found[1] in (*self.links.values(), WEIGHTS_FILE, EMA_WEIGHTS_FILE)
            or self.as_member(found[1]) is not None
            or self.as_meta(found[1]) is not None
        )
