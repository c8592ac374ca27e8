"""From the name of a time zone, as people and language models write it, to the zone.

`UTC` and offsets need no data. Other names are those of the IANA database: the machine's, or the package `tzdata`.
"""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.names import did_you_mean
from tavern_tools.catalog.names import quoted

_OFFSET = re.compile(r"(?:UTC|GMT)?\s*([+-])\s*([0-9]{1,2})(?::?([0-5][0-9]))?", re.IGNORECASE)
_UTC = ("utc", "z", "gmt")


def timezone_of(name: str) -> tuple[tzinfo, str] | None:
    """Return the time zone of a name and how the name is written, None where none is spelt so: see `timezone_like`.
    Raises `InvalidInput` for an offset that no place has."""
    if name.casefold() in _UTC:
        return UTC, "UTC"
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        return _fixed(offset, name)
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name), name
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):  # a folder of the database, a path out of it
        return None


def timezone_like(name: str) -> tuple[tzinfo, str]:
    """Return the time zone that is called so in another spelling, and its name. Looks through all that there are.
    Raises `InvalidInput` with near names."""
    import zoneinfo

    known = zoneinfo.available_timezones()
    if not known:
        hint = "; this machine has no data about time zones: install the Python package tzdata, or write +08:00"
        raise InvalidInput(f"{quoted(name)} is not known as a time zone{hint}")
    spelt = {each.casefold(): each for each in known}
    found = spelt.get("_".join(name.split()).casefold())
    if found is None:
        near = did_you_mean(name, known)
        raise InvalidInput(f"{quoted(name)} is no time zone; write one such as Asia/Shanghai, UTC or +08:00{near}")
    return zoneinfo.ZoneInfo(found), found


def _fixed(offset: re.Match[str], name: str) -> tuple[tzinfo, str]:
    sign, hours, minutes = offset.groups()
    distance = timedelta(hours=int(hours), minutes=int(minutes or 0))
    if distance > timedelta(hours=14):
        raise InvalidInput(f"{quoted(name)} is no time zone: the offset from UTC is at most 14 hours")
    zone = timezone(-distance if sign == "-" else distance)
    return zone, f"{sign}{int(hours):02}:{int(minutes or 0):02}"
