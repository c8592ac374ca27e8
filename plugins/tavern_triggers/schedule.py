"""When a schedule is due. Cron is read by `cronsim`, as Debian's cron reads it.

Where clocks go forward, a time that is skipped is due at the first moment after it; where they go back, a time that
comes twice is due the first time. Both hold for expressions that name minutes and hours; others (`*/20 * * * *`) are
due by the time that passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from tavern_host.contracts.errors import InvalidInput
from tavern_triggers.api.triggers import Schedule

MOST = 100
"""How many due times are made up for."""

_SPANS = (timedelta(hours=1), timedelta(days=1), timedelta(days=32), timedelta(days=800))
"""How far it is looked back, one after the other, for the last due times: never through all minutes of years."""


def checked(schedule: Schedule) -> Schedule:
    """Return a schedule that can be used. Raises `InvalidInput`."""
    if sum(one is not None for one in (schedule.cron, schedule.every_seconds, schedule.at)) != 1:
        raise InvalidInput("a schedule has one of cron, everySeconds and at")
    if schedule.at is not None and schedule.at.tzinfo is None:
        raise InvalidInput("$.at: give the moment with its offset, such as 2027-01-31T07:00:00+01:00")
    zone = _zone(schedule.time_zone)
    if schedule.cron is not None:
        try:
            if len(schedule.cron.split()) != 5:
                raise ValueError("five fields: minute, hour, day of the month, month, day of the week")
            next(_times(schedule.cron, datetime(2024, 1, 1, tzinfo=zone)))
        except StopIteration:
            raise InvalidInput(f"$.cron: {schedule.cron!r} never comes") from None
        except Exception as error:  # CronSimError, which is no ValueError, and what odd texts lead to
            raise InvalidInput(f"$.cron: {schedule.cron!r} cannot be read: {error}") from None
    return schedule


def times(schedule: Schedule, begun: datetime, after: datetime) -> Iterator[datetime]:
    """Yield the due times of a checked schedule after a moment, in UTC, the earliest first, each once; `begun` is when
    it was enabled."""
    if schedule.at is not None:
        if (at := schedule.at.astimezone(UTC)) > after:
            yield at
    elif schedule.every_seconds is not None:
        every = timedelta(seconds=schedule.every_seconds)
        due = begun + every * max(1, (after - begun) // every + 1)
        while True:
            yield due
            due += every
    elif schedule.cron is not None:
        last = after
        for time in _times(schedule.cron, after.astimezone(_zone(schedule.time_zone))):
            if (due := time.astimezone(UTC)) > last:  # within the second of two equal hours it begins with the first
                last = due
                yield due


def due_times(schedule: Schedule, begun: datetime, first: datetime, now: datetime) -> list[datetime]:
    """Return the last due times from `first` to `now`, `MOST` and one more at most, in order."""
    if schedule.at is not None:
        return [first]
    found: list[datetime] = []
    for span in (*_SPANS, None):
        start = first if span is None else max(first, now - span)
        after = start - timedelta(microseconds=1)
        found = []
        for due in times(schedule, begun, after):
            if due > now:
                break
            found.append(due)
            if span is None and len(found) > MOST:
                break
        if start == first or len(found) > MOST:
            break
    return found[-MOST - 1 :]


def coming(schedule: Schedule, begun: datetime, after: datetime, count: int) -> list[datetime]:
    """Return the next due times after a moment."""
    return [*islice(times(schedule, begun, after), count)]


def _times(cron: str, after: datetime) -> Iterator[datetime]:
    from cronsim import CronSim

    yield from CronSim(cron, after)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):  # ZoneInfoNotFoundError is a KeyError
        raise InvalidInput(f"$.timeZone: no time zone {name!r} is known here; give one such as Europe/Berlin") from None
