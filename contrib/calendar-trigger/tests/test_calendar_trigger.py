"""Triggers at events of calendars: of a server of 127.0.0.1 and of a project's file, as a host fires them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tavern_host import EXECUTION_ENGINE, Host, InvalidInput
from tavern_host.clock import now
from tavern_host.testing import MakeHost
from tavern_triggers.api.triggers import TRIGGER_MANAGER, Firing, Trigger

pytest.importorskip("recurring_ical_events")

PREFIX = "extensions.calendar-trigger."
KIND = "calendar-trigger:event"
SAY = {
    "name": "Say what begins",
    "nodes": [{"id": "in", "type": "core:GroupInput"}, {"id": "out", "type": "core:GroupOutput"}],
    "edges": [
        {"id": key, "source": "in", "sourceHandle": key, "target": "out", "targetHandle": key}
        for key in ("summary", "start")
    ],
    "interfaceInputs": {key: {"dataFlowType": "STRING"} for key in ("summary", "start")},
    "interfaceOutputs": {key: {"dataFlowType": "STRING"} for key in ("summary", "start")},
}

pytestmark = pytest.mark.tavern(plugins=["../calendar_trigger"], serving=True, workflows={"say": SAY})


def event(uid: str, start: datetime | str, *lines: str, summary: str = "Stand-up") -> str:
    """Return an event; a moment is written in UTC, a text as it stands."""
    text = start if isinstance(start, str) else f"DTSTART:{start.astimezone(ZoneInfo('UTC')):%Y%m%dT%H%M%SZ}"
    return "\r\n".join(["BEGIN:VEVENT", f"UID:{uid}", text, f"SUMMARY:{summary}", *lines, "END:VEVENT", ""])


def calendar(*events: str) -> str:
    return f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//tests//EN\r\n{''.join(events)}END:VCALENDAR\r\n"


class Site:
    """A server with one calendar, which may be something else at the first request."""

    def __init__(self) -> None:
        self.text, self.first = calendar(), ""
        self.settings: dict[str, Any] = {}

    async def handle(self, request: web.Request) -> web.Response:
        text, self.first = self.first or self.text, ""
        return web.Response(text=text, content_type="text/calendar")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site, app = Site(), web.Application()
    app.router.add_get("/a-secret/team.ics", site.handle)
    async with TestServer(app) as server:
        calendars = {"team": str(server.make_url("/a-secret/team.ics")), "own": "plans/own.ics"}
        site.settings = {f"{PREFIX}calendars": calendars, f"{PREFIX}refresh": 1}
        yield site


async def enable(host: Host, config: dict[str, Any], name: str = "at") -> None:
    triggers = host.services.get(TRIGGER_MANAGER)
    trigger = Trigger(name=name, kind=KIND, config=config, workflow="say", overlap="queue")
    await triggers.save(name, trigger)
    await triggers.enable(name)


async def fired(host: Host, count: int, name: str = "at") -> list[tuple[str, datetime]]:
    """Return the results of the runs, the oldest first, when so many firings are over."""
    triggers, engine = host.services.get(TRIGGER_MANAGER), host.services.get(EXECUTION_ENGINE)
    firings: list[Firing] = []
    changes = aiter(host.events.subscribe("TRIGGER_UPDATE"))
    async with asyncio.timeout(100):
        while len(firings := await triggers.history(name)) < count or not all(one.status.is_final for one in firings):
            await anext(changes)
    runs = [await engine.get(one.run_id or "") for one in reversed(firings)]
    return sorted((str(run.outputs["summary"]), datetime.fromisoformat(str(run.outputs["start"]))) for run in runs)


def soon(seconds: float) -> datetime:
    return (now() + timedelta(seconds=seconds)).replace(microsecond=0)


async def test_events_fire_once_and_a_changed_one_at_its_new_time(make_host: MakeHost, site: Site) -> None:
    begin, moved = soon(4), soon(5000)
    site.text = calendar(event("1", begin), event("2", moved, summary="Review"), event("3", soon(-60), summary="Past"))
    async with make_host(settings=site.settings) as host:
        await enable(host, {"calendar": "team"})
        assert await fired(host, 1) == [("Stand-up", begin)]
        moved = soon(4)
        site.text = calendar(event("1", begin), event("2", moved, summary="Review"))
        assert await fired(host, 2) == [("Review", moved), ("Stand-up", begin)]
    async with make_host(settings=site.settings) as host:  # after a restart nothing fires again
        again = soon(4)
        site.text = calendar(event("1", begin), event("2", moved), event("4", again, summary="Again"))
        assert [name for name, _ in await fired(host, 3)] == ["Again", "Review", "Stand-up"]


async def test_recurring_events_fire_before_each_time_in_their_zone(make_host: MakeHost, site: Site) -> None:
    zone = ZoneInfo("America/New_York")
    first = (soon(3604) - timedelta(days=7)).astimezone(zone)
    late = (soon(3604) - timedelta(days=14)).astimezone(zone)
    site.text = calendar(
        event("1", f"DTSTART;TZID=America/New_York:{first:%Y%m%dT%H%M%S}", "RRULE:FREQ=WEEKLY;COUNT=2"),
        event(
            "2",
            f"DTSTART;TZID=America/New_York:{late:%Y%m%dT%H%M%S}",
            "RRULE:FREQ=WEEKLY;COUNT=3",
            f"EXDATE;TZID=America/New_York:{first + timedelta(days=7):%Y%m%dT%H%M%S}",
            summary="Left out this week",
        ),
        event("3", "DTSTART:20200101T000000Z", "RRULE:FREQ=SECONDLY", summary="Each second"),
        event("4", soon(3604), "STATUS:CANCELLED", summary="Cancelled"),
    )
    async with make_host(settings=site.settings) as host:
        await enable(host, {"calendar": "team", "minutesBefore": 60})
        assert await fired(host, 1) == [("Stand-up", first + timedelta(days=7))]


async def test_a_file_whose_events_have_no_zone_and_a_text_to_look_for(
    make_host: MakeHost, site: Site, tavern_project: Path
) -> None:
    zone = ZoneInfo("Asia/Shanghai")
    begin = soon(6)
    local = f"DTSTART:{begin.astimezone(zone):%Y%m%dT%H%M%S}"
    file = tavern_project / "files" / "plans" / "own.ics"
    file.parent.mkdir(parents=True)
    file.write_text(calendar(event("1", local, summary="Tea with Ada"), event("2", local, summary="Lunch")))
    async with make_host(settings=site.settings) as host:
        await enable(host, {"calendar": "own", "timeZone": "Asia/Shanghai", "contains": "ada"})
        assert await fired(host, 1) == [("Tea with Ada", begin)]


async def test_what_is_wrong_with_a_calendar_is_in_the_log_without_its_address(
    make_host: MakeHost, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    begin = soon(12)
    site.text, site.first = calendar(event("1", begin)), "<html>"
    async with make_host(settings=site.settings) as host:
        await enable(host, {"calendar": "nobody's"}, "other")
        await enable(host, {"calendar": "team", "timeZone": "Mars/Olympus"}, "zone")
        await enable(host, {"calendar": "team"})
        assert await fired(host, 1) == [("Stand-up", begin)]
    said = ("is no iCalendar file", "names no calendar", "there is no time zone 'Mars/Olympus'")
    assert [text in caplog.text for text in said] == [True] * 3
    assert "a-secret" not in caplog.text


async def test_a_config_that_cannot_be_is_refused(host: Host) -> None:
    for config in ({}, {"calendar": "team", "minutesBefore": -1}, {"calendar": "team", "minutes": 5}):
        with pytest.raises(InvalidInput):
            await enable(host, config)
