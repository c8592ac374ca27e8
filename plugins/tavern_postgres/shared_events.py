"""Events of runs, carried between the hosts that share a database, so that a page at one follows a run at another.

A host writes its events into a table, some at a time, and notifies the others, which read them there: a notification of
PostgreSQL holds 8,000 bytes. An event that a host has from another is not carried on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets

from tavern_host import PluginContext
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.events import Event
from tavern_postgres.database import CHANNEL, Connection

TYPES = ("NODE_*", "EXECUTION_STATUS_UPDATE", "WORKFLOW_INTERFACE_YIELD", "AGENT_TRACE", "CHAT_HISTORY")
"""What is carried: the events of runs and agents. What a host is, and what its operator does, is its own."""

_EVERY = 0.05
"""Seconds in which events are gathered."""
_MOST = 500
"""How many events are written at once."""
_KEPT_SECONDS = 120
"""How long an event is in the table: the others read it at once, or were not there."""
_BEGIN_SECONDS = 5.0
"""How long the start of a host waits until it hears the others."""
_AGAIN = 5.0
"""Seconds until a database that did not answer is tried again."""


class SharedEvents:
    """Carries events from this host to the others and from them to this one, until it is cancelled."""

    def __init__(self, context: PluginContext, url: str, schema: str) -> None:
        self._context = context
        self._host = secrets.token_hex(8)
        self._schema = schema
        self._has_tried = asyncio.Event()
        self._waiting: asyncio.Queue[Event] = asyncio.Queue(_MOST)
        self._sending = Connection(url, schema, context.log, name="sending events")
        self._hearing = Connection(url, schema, context.log, name="hearing events")

    async def begun(self) -> None:
        """Return when events of other hosts are heard, or cannot be for now."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BEGIN_SECONDS):
                await self._has_tried.wait()

    async def run(self) -> None:
        """Carry events in both directions."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._gather(), name="gather events for other hosts")
                group.create_task(self._send(), name="send events to other hosts")
                group.create_task(self._again_and_again(), name="hear events of other hosts")
        finally:
            await self._sending.close()
            await self._hearing.close()

    async def _gather(self) -> None:
        """Take the events of this host; what waits too long, the subscription drops."""
        async for event in self._context.events.subscribe(*TYPES):
            if isinstance(event, Event) and event.plugin != self._context.plugin:
                await self._waiting.put(event)

    async def _send(self) -> None:
        while True:
            events = [await self._waiting.get()]
            await asyncio.sleep(_EVERY)
            while len(events) < _MOST and not self._waiting.empty():
                events.append(self._waiting.get_nowait())
            with contextlib.suppress(TavernError):  # the run store logs it; a page that missed events reads the run
                await self._write(events)

    async def _write(self, events: list[Event]) -> None:
        kinds = [event.type for event in events]
        payloads = [json.dumps(event.payload, separators=(",", ":")).encode() for event in events]
        async with self._sending.cursor(transaction=True) as cursor:
            await cursor.execute(
                "INSERT INTO events (host, type, payload) SELECT %s, given.type, given.payload"
                " FROM unnest(%s::text[], %s::bytea[]) WITH ORDINALITY AS given (type, payload, place)"
                " ORDER BY place RETURNING seq",
                (self._host, kinds, payloads),
            )
            numbers = [seq for (seq,) in await cursor.fetchall()]
            told = json.dumps([self._schema, self._host, min(numbers), max(numbers)])
            await cursor.execute("SELECT pg_notify(%s, %s)", (CHANNEL, told))
            old = "DELETE FROM events WHERE host = %s AND made < clock_timestamp() - %s * interval '1 second'"
            await cursor.execute(old, (self._host, _KEPT_SECONDS))

    async def _again_and_again(self) -> None:
        is_told = False
        while True:
            try:
                await self._hear()
            except TavernError as error:
                if not is_told:
                    self._context.log.warning("events of other hosts are not heard: %s", error.message)
                is_told = True
            self._has_tried.set()
            await asyncio.sleep(_AGAIN)

    async def _hear(self) -> None:
        """Publish what other hosts publish, until the connection is lost."""
        async with contextlib.aclosing(self._hearing.listen(CHANNEL)) as notifications:
            async for told in notifications:
                if told is None:  # from here on
                    self._has_tried.set()
                    continue
                schema, host, first, last = json.loads(told)
                if schema == self._schema and host is None:
                    self._context.events.publish(first, last)
                elif schema == self._schema and host != self._host:
                    found = await self._sending.rows(
                        "SELECT type, payload FROM events WHERE host = %s AND seq BETWEEN %s AND %s ORDER BY seq",
                        (host, first, last),
                    )
                    self._context.events.publish_all((kind, json.loads(payload)) for kind, payload in found)
