"""The clock on the wall: how long it is until a time of day here."""

from __future__ import annotations

from datetime import datetime, time, timedelta

__all__ = ["seconds_until"]


def seconds_until(at: str, now: datetime | None = None) -> float:
    """Seconds from `now` (this moment) to the next "07:00" (or "07:00:30"), by this machine's time zone.

    A change to or from summer time on the way is counted in. now: with a time zone of its own.
    """
    moment = datetime.now().astimezone() if now is None else now
    wanted = time.fromisoformat(at.rjust(8 if at.count(":") == 2 else 5, "0"))
    zone = None if now is None else now.tzinfo  # of this machine: None lets astimezone find what holds on that day
    there = datetime.combine(moment.date(), wanted)
    if there <= moment.replace(tzinfo=None):
        there += timedelta(days=1)
    aware = there.astimezone() if zone is None else there.replace(tzinfo=zone)
    return aware.timestamp() - moment.timestamp()
