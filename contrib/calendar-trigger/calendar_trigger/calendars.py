"""The calendars of the settings: read from their address or file, parsed, and kept until they are to be read again."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from tavern_host import InvalidInput, PluginContext
from tavern_host.clock import monotonic
from tavern_host.contracts.errors import Misconfigured, ServiceUnavailable
from tavern_tools.api.projectfiles import PROJECT_FILES

SECONDS = aiohttp.ClientTimeout(total=20)
MOST_BYTES = 10_000_000


class Calendars:
    """What was read, by name; `reading` is held by who uses it."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._kept: dict[str, tuple[float, str, Any]] = {}
        self.reading = asyncio.Lock()

    async def query(self, name: str) -> Any:
        """Return the query for the events of a calendar. Raises `Misconfigured`, `ServiceUnavailable`,
        `InvalidInput`; none says the address, which may be a secret."""
        settings = self._context.settings
        place = (settings.get("calendars") or {}).get(name)
        if not isinstance(place, str):
            raise Misconfigured(f"calendar-trigger.calendars names no calendar {name!r}")
        at, kept_place, query = self._kept.get(name, (0.0, "", None))
        if query is None or place != kept_place or monotonic() - at >= settings.get("refresh"):
            remote = place.startswith(("http://", "https://"))
            text = await (self._fetched(name, place) if remote else self._file(place))
            query = await asyncio.to_thread(_query, name, text)
            self._kept[name] = (monotonic(), place, query)
        return query

    async def _fetched(self, name: str, address: str) -> bytes:
        body = bytearray()
        try:
            async with self._context.http.session().get(address, timeout=SECONDS, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise ServiceUnavailable(f"the server of the calendar {name!r} answered with {answer.status}")
                async for part in answer.content.iter_any():
                    body += part
                    if len(body) > MOST_BYTES:
                        raise ServiceUnavailable(f"the calendar {name!r} has more than {MOST_BYTES:,} bytes")
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ServiceUnavailable(f"the calendar {name!r} cannot be reached ({type(error).__name__})") from None
        return bytes(body)

    async def _file(self, path: str) -> bytes:
        files, text, line = self._context.services.get(PROJECT_FILES), "", 1
        while True:
            part = await files.read_file(path, offset=line)
            text += part.content
            if part.next_offset is None or len(text) > MOST_BYTES:
                return text.encode()
            line, text = part.next_offset, text.removesuffix("\n") + "\n"


def _query(name: str, text: bytes) -> Any:
    """Return a parsed calendar. Blocking. Events that recur each second or minute are left out: to expand them takes
    for ever. Raises `InvalidInput` for what is no calendar."""
    import icalendar
    import recurring_ical_events

    try:
        calendar = icalendar.Calendar.from_ical(text)
    except (ValueError, IndexError):
        raise InvalidInput(f"what is at the calendar {name!r} is no iCalendar file") from None
    calendar.subcomponents = [part for part in calendar.subcomponents if not _is_too_often(part.get("RRULE") or [])]
    return recurring_ical_events.of(calendar, skip_bad_series=True)


def _is_too_often(rules: Any) -> bool:
    listed = rules if isinstance(rules, list) else [rules]
    return any(str(one).upper() in ("SECONDLY", "MINUTELY") for rule in listed for one in rule.get("FREQ", []))
