"""The guards' knobs. A guard may veto what ElChe proposes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from flodl.spec.value import NonNegative, Positive, PositiveInt, Value

__all__ = ["GuardConfig", "MsfGuardConfig", "NoGuardConfig", "TrendGuardConfig"]


class NoGuardConfig(Value, frozen=True, kw_only=True, tag_field="name", tag="none"):
    """Never objects."""


class TrendGuardConfig(Value, frozen=True, kw_only=True, tag_field="name", tag="trend"):
    """Objects to growth when divergence rose twice in a row and lies above the threshold.

    threshold null: 0.05, or 0.3 where easgd_alpha is set.
    """

    threshold: Positive | None = None


class MsfGuardConfig(Value, frozen=True, kw_only=True, tag_field="name", tag="msf"):
    """Follows the divergence's growth rate per step; may nudge the anchor down."""

    nudge_threshold: NonNegative = 1e-2
    nudge_sustain: PositiveInt = 3
    nudge_factor: Annotated[float, Meta(gt=0, le=1)] = 0.5
    suppress_threshold: NonNegative = 1e-3
    suppress_sustain: PositiveInt = 3
    ema_alpha: Annotated[float, Meta(ge=0, lt=1)] = 0.9


GuardConfig = NoGuardConfig | TrendGuardConfig | MsfGuardConfig
