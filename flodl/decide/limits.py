"""What is known of the stop rules: plain state, judged in `stopping`."""

from __future__ import annotations

import msgspec

__all__ = ["Stopping"]


class Stopping(msgspec.Struct, kw_only=True):
    """limits: rule -> when the run must be over. begun: when training began. due: when the last window must end, for
    `rule`. best: of the figure that early stopping follows; stale: readings since it got better. missed: alerted.
    windows: accepted so far."""

    limits: dict[str, float] = {}
    begun: float | None = None
    due: float | None = None
    rule: str = ""
    best: float | None = None
    stale: int = 0
    missed: bool = False
    windows: int = 0

    def aim(self, closing_seconds: float) -> None:
        """Set `due` so that `closing_seconds` are left before the nearest limit, at most half of the whole time."""
        if not self.limits:
            return
        limit, self.rule = min((at, rule) for rule, at in self.limits.items())
        left = 0.0 if self.begun is None else max(0.0, limit - self.begun) / 2.0
        self.due = limit - min(closing_seconds, left)
