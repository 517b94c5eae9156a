"""Bundles on disk: what a run can go on from, whole at every instant.

A bundle is a meta file and the members that it names. The rename of the meta file is the one commit, and its removal
comes first where a bundle goes: whatever kills the writer, what has a meta has its members, and what has none does
not exist (the next save sweeps it away).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from flodl.errors import ConfigError, FlodlError, Problem
from flodl.record.bundle_folder import Bundle, BundleFolder, Unreadable
from flodl.record.bundle_meta import BundleMeta, SaveReason, encode_meta
from flodl.record.bundle_names import BundleNames
from flodl.record.files import sync_folder, write_atomically
from flodl.record.saving import Saving, save_error
from flodl.record.weights import mend_weights, write_weights
from flodl.spec.checkpoint import BestConfig

__all__ = ["BundleStore", "Loaded", "Resume", "Saved"]

NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EXDEV}

Resume = Literal["exact", "latest_valid"]


@dataclass(frozen=True)
class Saved:
    """A bundle that is in place. removed: rounds whose bundles went. remarks: what went wrong after that and does it no
    harm, in words."""

    bundle: Bundle
    removed: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Loaded:
    """A bundle whose members were found whole. passed_over: newer ones that were not, in words."""

    bundle: Bundle
    passed_over: tuple[str, ...] = ()


class BundleStore:
    """All bundles of one stem in one folder. One writer at a time; the constructor touches nothing.

    keep: how many of the newest stay; None: all. best: which others stay for their figures.
    """

    def __init__(
        self, folder: Path | str, stem: str = "model", keep: int | None = None, best: BestConfig | None = None
    ) -> None:
        self.folder = Path(folder)
        self.keep = keep
        self.best = best or BestConfig()
        self._names = BundleNames(stem)
        self._files = BundleFolder(self.folder, self._names)
        self._saving: Saving | None = None
        self._serial = 1

    # ----------------------------------------------------------------------------------------------- saving

    def begin(self, round_: int) -> Saving:
        """A new save. One that is still under way is abandoned. Raises FlodlError where the folder cannot be used."""
        if self._saving is not None:
            self._saving.abandon()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            members = [member for name in self._files.listed() if (member := self._names.as_member(name))]
            self._serial = 1 + max((bundle.meta.serial for bundle in self.bundles()), default=0)
        except OSError as error:
            raise save_error(error, self.folder, round_) from error
        take = 1 + max((member.take for member in members if member.round == round_), default=0)
        self._saving = Saving(self.folder, self._names, (round_, take), sweep=self._sweep_quietly)
        return self._saving

    def commit(self, saving: Saving, meta: BundleMeta) -> Saved:
        """Make a bundle of what has arrived, then clean up. Raises FlodlError, and then all bundles are as before."""
        if saving is not self._saving:
            raise FlodlError(f"the save of round {saving.round} is over; a later one has begun")
        self._saving = None
        bundle = self._files.bundle(saving.place(msgspec.structs.replace(meta, serial=self._serial)))
        unwritten = write_weights(bundle)
        removed, remarks = self._prune(bundle)
        return Saved(bundle, removed, (*unwritten, *remarks, *self._link(bundle)))

    def mend(self) -> None:
        """Let what is there for people be the newest bundle's: a kill may have come between the two. Only where nobody
        saves. Raises OSError where the folder cannot be read."""
        newest = self.newest()
        if newest is not None:
            mend_weights(newest)
            self._link(newest)

    def amend(
        self, bundle: Bundle, *, reason: SaveReason | None = None, figures: dict[str, float] | None = None
    ) -> Bundle:
        """Say more of a bundle that is there: why it turned out to be the last, how good it was found to be."""
        known = bundle.meta
        told = {"reason": reason or known.reason, "figures": {**known.figures, **(figures or {})}}
        meta = msgspec.structs.replace(known, **told)
        data = encode_meta(meta)
        try:
            write_atomically(bundle.meta_path, data)
        except OSError as error:
            raise save_error(error, bundle.meta_path, bundle.round) from error
        amended = self._files.bundle(meta)
        with contextlib.suppress(OSError):  # of reading the folder: the link is for people
            if self.newest() == amended:
                self._link(amended)
        return amended

    # ---------------------------------------------------------------------------------------------- reading

    def bundles(self) -> tuple[Bundle, ...]:
        """All whose meta can be read, the newest (the last saved) first."""
        return tuple(entry for entry in self._files.entries() if isinstance(entry, Bundle))

    def has_any(self) -> bool:
        """True where there is one, be it damaged."""
        return bool(self._files.entries())

    def newest(self) -> Bundle | None:
        """The last one that was saved."""
        return next(iter(self.bundles()), None)

    def fault(self, bundle: Bundle) -> Problem | None:
        """What is wrong with it, after looking at every byte; None: nothing."""
        return self._files.fault(bundle)

    def load(self, round_: int | None = None, *, resume: Resume = "exact") -> Loaded:
        """The newest bundle, or that of a round, found whole. Raises ConfigError.

        exact: it and no other. latest_valid: the newest that is whole, and words about those that were passed over.
        """
        try:
            entries = [entry for entry in self._files.entries() if round_ is None or entry.round == round_]
        except OSError as error:
            raise ConfigError([Problem(key=str(self.folder), constraint=error.strerror or str(error))]) from error
        if not entries:
            raise ConfigError([self._absent(round_)])
        passed: list[Problem] = []
        for entry in entries if resume == "latest_valid" else entries[:1]:
            problem = self.fault(entry) if isinstance(entry, Bundle) else entry.problem
            if problem is not None:
                passed.append(problem)
            elif isinstance(entry, Bundle):
                return Loaded(entry, tuple(str(problem) for problem in passed))
        raise ConfigError(_with_a_way_out(passed) if len(entries) > len(passed) else passed)

    def _absent(self, round_: int | None) -> Problem:
        there = ", ".join(str(bundle.round) for bundle in self.bundles())
        what = f"no bundle called {self._names.stem}" if round_ is None else f"no bundle of round {round_}"
        remedy = f"there are rounds {there}" if there else "name the folder and the stem (checkpoint.stem) of a run"
        return Problem(key=str(self.folder), constraint=f"holds {what}", remedy=remedy)

    # --------------------------------------------------------------------------------------------- cleaning up

    def _prune(self, newest: Bundle) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Remove what is superfluous: metas first, so that no meta ever lacks its members. Rounds, and remarks."""
        gone: list[int] = []
        try:
            for entry in self._superfluous(newest):
                entry.meta_path.unlink(missing_ok=True)
                gone.append(entry.round)
            if gone:
                sync_folder(self.folder)
            self._sweep()
        except OSError as error:
            return tuple(gone), (f"{error.filename or self.folder}: {error.strerror or error}: old files stay there",)
        return tuple(gone), ()

    def _superfluous(self, newest: Bundle) -> list[Bundle | Unreadable]:
        """What is beyond `keep` and not among the best. What a newer flodl wrote is not ours to judge."""
        entries = self._files.entries()
        bundles = [entry for entry in entries if isinstance(entry, Bundle)]
        if self.keep is None or not bundles:
            return []
        kept = bundles[: self.keep]
        beyond = entries[entries.index(kept[-1]) + 1 :]
        spared = [newest, *kept, *self._best(bundles)]
        return [
            entry
            for entry in beyond
            if entry not in spared and not (isinstance(entry, Unreadable) and entry.is_foreign)
        ]

    def _best(self, bundles: Sequence[Bundle]) -> list[Bundle]:
        judged = [(good, bundle) for bundle in bundles if (good := self.best.goodness(bundle.meta.figures)) is not None]
        return [bundle for _, bundle in sorted(judged, key=lambda pair: pair[0], reverse=True)[: self.best.keep]]

    def _link(self, bundle: Bundle) -> list[str]:
        """Let the names for people mean this bundle; remarks. A file system without hard links has none."""
        remarks: list[str] = []
        for kind, name in self._names.links.items():
            source = bundle.meta_path if kind == "meta" else bundle.path(kind)
            beside = self.folder / f".{name}.{secrets.token_hex(4)}.tmp"
            try:
                if source is not None:
                    os.link(source, beside)
                    beside.replace(self.folder / name)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    remarks.append(f"{self.folder / name}: {error.strerror or error}: it still means an older bundle")
            finally:  # a rename between two names of one file does nothing and leaves both
                with contextlib.suppress(OSError):
                    beside.unlink(missing_ok=True)
        return remarks

    def _sweep(self) -> None:
        """Remove what interrupted saves left: temporary files, and members that no meta file names."""
        entries = self._files.entries()
        named = {member.name for entry in entries if isinstance(entry, Bundle) for member in entry.meta.members}
        unknown = {entry.round for entry in entries if isinstance(entry, Unreadable)}
        for name in self._files.listed():
            member = self._names.as_member(name)
            is_orphan = member is not None and name not in named and member.round not in unknown
            if is_orphan or self._names.is_temporary(name):
                (self.folder / name).unlink(missing_ok=True)

    def _sweep_quietly(self) -> None:
        with contextlib.suppress(OSError):
            self._sweep()


def _with_a_way_out(problems: Sequence[Problem]) -> Iterator[Problem]:
    for problem in problems:
        remedy = problem.remedy or "checkpoint.resume=latest_valid takes the newest one that is whole"
        yield Problem(key=problem.key, constraint=problem.constraint, remedy=remedy)
