"""What is due: called every few seconds for each trigger that is on, with a cursor that the host keeps."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import JsonValue

from tavern_host import InvalidInput, PluginContext
from tavern_host.clock import now
from tavern_triggers.api.kinds import TriggerSignal, TriggerSignals

from .calendars import Calendars

LATE = timedelta(minutes=15)
"""How long after its time an event still counts that came into the calendar too late."""
LONGEST = timedelta(days=1)
"""How far back is looked when no host served."""
MOST = 100


async def poll(config: dict[str, JsonValue], cursor: str, context: PluginContext) -> TriggerSignals:
    """Return the events that have become due since the cursor. An event has a key of its UID and its beginning, and
    fires once for it however often it is given; one that is moved fires at its new time. Raises `InvalidInput` for a
    time zone that is none, and as `Calendars.query`."""
    at = now()
    kept = json.loads(cursor) if cursor else {"since": at.isoformat(), "until": at.isoformat()}
    since, until = (datetime.fromisoformat(kept[key]) for key in ("since", "until"))
    try:
        zone = ZoneInfo(str(config.get("timeZone") or "UTC"))
    except (ZoneInfoNotFoundError, ValueError):
        raise InvalidInput(f"there is no time zone {config['timeZone']!r}") from None
    before = timedelta(minutes=float(str(config.get("minutesBefore") or 0)))
    lowest = max(since, until - LATE, at - LONGEST)
    name = str(config["calendar"])
    calendars = context.own(Calendars)
    async with calendars.reading:
        query = await calendars.query(name)
        found = await asyncio.to_thread(_starting, query, lowest + before, at + before, zone)
    text = str(config.get("contains") or "").lower()
    due = [(begin, event) for begin, event in found if text in str(event.get("SUMMARY", "")).lower()]
    signals = [_signal(name, begin, event, zone) for begin, event in due[:MOST]]
    if len(due) > MOST:
        at = due[MOST - 1][0] - before
    return TriggerSignals(signals=signals, cursor=json.dumps({"since": kept["since"], "until": at.isoformat()}))


def _starting(query: Any, after: datetime, until: datetime, zone: ZoneInfo) -> list[tuple[datetime, Any]]:
    """Return the events that begin after one moment and until another, in their order. Blocking."""
    near = query.between(after - LONGEST, until + LONGEST)  # where whole days begin, the zone says
    events = [(_moment(event["DTSTART"].dt, zone), event) for event in near if event.get("STATUS") != "CANCELLED"]
    return sorted([one for one in events if after < one[0] <= until], key=lambda one: one[0])


def _moment(value: date, zone: ZoneInfo) -> datetime:
    """Return when something begins that may be a day, or have no zone."""
    if not isinstance(value, datetime):
        return datetime.combine(value, time(), zone)
    return value if value.tzinfo is not None else value.replace(tzinfo=zone)


def _signal(name: str, begin: datetime, event: Any, zone: ZoneInfo) -> TriggerSignal:
    """Return an event's payload for a trigger; its keys become inputs of the workflow."""
    uid = str(event.get("UID", ""))
    payload: dict[str, JsonValue] = {
        "calendar": name,
        "uid": uid[:1000],
        "summary": str(event.get("SUMMARY", ""))[:1000],
        "location": str(event.get("LOCATION", ""))[:1000],
        "description": str(event.get("DESCRIPTION", ""))[:5000],
        "start": begin.isoformat(),
        "end": _moment(event["DTEND"].dt, zone).isoformat() if "DTEND" in event else begin.isoformat(),
        "allDay": not isinstance(event["DTSTART"].dt, datetime),
    }
    named = hashlib.sha256(f"{name}\n{uid}".encode()).hexdigest()[:32]
    return TriggerSignal(key=f"{begin.timestamp():.0f} {named}", payload=payload)
