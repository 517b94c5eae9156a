"""The form of everything that is said: what the wire carries and the journal holds."""

from __future__ import annotations

import msgspec

__all__ = ["Plain"]


class Plain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Frozen and strict; defaults are left out on the wire."""
