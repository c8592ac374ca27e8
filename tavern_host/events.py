"""The event bus: numbered events, a bounded memory of them, and bounded subscribers that are told of gaps.

Publishing never blocks and may happen on any thread; subscribers live on the host's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.events import Event, Gap

KEPT = 4096
"""How many events are kept for those who reconnect."""


class EventBus:
    """All events of one host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seq = 0
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._undelivered: deque[Event] = deque()
        self._is_closed = False
        self._subscriptions: set[BusSubscription] = set()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def last_seq(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._seq

    def publish(self, type: str, payload: Mapping[str, Any], *, plugin: str | None = None) -> Event:
        """Number an event, keep it, and hand it to the subscribers.

        The payload is copied. Raises `InvalidInput` where it is not JSON.
        """
        try:
            copied = {key: _json(value) for key, value in payload.items()}
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"the payload of {type} is not JSON: {error}", plugin=plugin) from None
        with self._lock:
            self._seq += 1
            event = Event.model_construct(
                seq=self._seq, type=type, payload=copied, plugin=plugin, time=datetime.now(UTC)
            )
            self._kept.append(event)
            self._undelivered.append(event)
        if threading.get_ident() == self._thread:
            self._deliver()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._deliver)
        return event

    def _deliver(self) -> None:
        """Hand over what was published, on this thread or another, in the order of its numbers."""
        while self._undelivered:
            event = self._undelivered.popleft()
            for subscription in tuple(self._subscriptions):
                subscription._offer(event)

    def subscribe(self, *types: str, since: int | None = None, limit: int = 1024) -> BusSubscription:
        """Subscribe to types (all, where none is named); with `since`, begin after that event."""
        subscription = BusSubscription(self, frozenset(types), limit)
        if threading.get_ident() == self._thread:
            self._deliver()  # what is on its way from other threads is older than this subscription
        if since is not None:
            with self._lock:
                kept = [e for e in self._kept if e.seq > since]
                oldest = self._kept[0].seq if self._kept else self._seq + 1
            if since + 1 < oldest:
                subscription._gap = Gap(first=since + 1, last=oldest - 1)
            for event in kept:
                subscription._offer(event)
        if self._is_closed:
            subscription._end()
        else:
            self._subscriptions.add(subscription)
        return subscription

    async def close(self) -> None:
        """End every subscription, and at once those that come later."""
        self._is_closed = True
        for subscription in tuple(self._subscriptions):
            await subscription.close()


class BusSubscription:
    """One bounded reader. When it falls behind, the oldest waiting events are dropped and a `Gap` says so."""

    def __init__(self, bus: EventBus, types: frozenset[str], limit: int) -> None:
        self._bus = bus
        self._types = types
        self._limit = max(1, limit)
        self._waiting: deque[Event] = deque()
        self._gap: Gap | None = None
        self._ready = asyncio.Event()
        self._closed = False
        self._callbacks: list[Callable[[], None]] = []

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the subscription is closed."""
        self._callbacks.append(callback)

    def _offer(self, event: Event) -> None:
        if self._closed or (self._types and event.type not in self._types):
            return
        if len(self._waiting) >= self._limit:
            lost = self._waiting.popleft()
            self._gap = Gap(first=self._gap.first if self._gap else lost.seq, last=lost.seq)
        self._waiting.append(event)
        self._ready.set()

    def __aiter__(self) -> AsyncIterator[Event | Gap]:
        return self

    async def __anext__(self) -> Event | Gap:
        while True:
            if self._gap is not None:
                gap, self._gap = self._gap, None
                return gap
            if self._waiting:
                return self._waiting.popleft()
            if self._closed:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()

    async def close(self) -> None:
        """End the subscription: what waits is still read, then the iteration ends."""
        self._end()
        self._bus._subscriptions.discard(self)
        for callback in self._callbacks:
            callback()

    def _end(self) -> None:
        self._closed = True
        self._ready.set()


def _json(value: Any) -> JsonValue:
    """Return a copy of a JSON value. Raises `TypeError` or `ValueError` for any other."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not finite")
        return value
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not a text")
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    raise TypeError(f"it has a {type(value).__name__}")
