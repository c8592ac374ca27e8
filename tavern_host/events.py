"""The event bus: numbered events, a bounded memory of them, and bounded subscribers that are told of gaps.

Publishing never blocks and may happen on any thread; subscribers live on the host's event loop. Who may publish
and read what is not decided here, but by those who ask `covers` and `is_own`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.errors import InvalidInput, describe
from tavern_host.contracts.events import Event, Gap

KEPT = 4096
"""How many events are kept for those who reconnect."""
KEPT_BYTES = 32 * 2**20
"""How much memory, roughly, the kept events may take; the newest is kept whatever its size."""
WAITING_BYTES = 32 * 2**20
"""How much memory, roughly, the events may take that wait for one subscriber; one may wait whatever its size."""
MAX_NESTED = 200
"""How deeply lists and objects in a payload may be nested."""
MAX_TYPE = 200
"""How many characters an event type or pattern may have."""

_ROUTES = 1024
"""For how many event types it is remembered who wants them."""
_EVENT_BYTES, _ITEM_BYTES, _SHORT = 1000, 60, 200
"""What an event and an item in it take, roughly, and up to which length a text is an item like any other."""
_WORD, _MAX_BITS = 2**63 - 1, 4096


class EventBus:
    """All events of one host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seq = 0
        self._delivered = 0
        self._kept: deque[tuple[Event, int]] = deque()
        self._kept_limit = KEPT
        self._kept_bytes = 0
        self._is_delivery_due = False
        self._is_closed = False
        self._subscriptions: set[BusSubscription] = set()
        self._routes: dict[str, tuple[BusSubscription, ...]] = {}
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def last_seq(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._seq

    def publish(self, type: str, payload: Mapping[str, Any], *, plugin: str | None = None, copy: bool = False) -> Event:
        """Number an event, keep it, and hand it to the subscribers.

        The payload is copied. The event that is returned is the one that others read, unless `copy` asks for one
        that the publisher may change. Raises `InvalidInput` where the payload is not JSON, or `type` no event type.
        """
        if type.__class__ is not str or type not in self._routes:
            type = _checked(type, plugin)
        measured = _Copier()
        try:
            copied = measured.object(payload, 0)
        except RecursionError:
            raise InvalidInput(f"the payload of {type} is nested too deeply", plugin=plugin) from None
        except Exception as error:
            raise InvalidInput(f"the payload of {type} is not JSON: {_reason(error)}", plugin=plugin) from None
        is_here = threading.get_ident() == self._thread
        with self._lock:
            self._seq += 1
            event = Event.model_construct(
                seq=self._seq, type=type, payload=copied, plugin=plugin, time=datetime.now(UTC)
            )
            self._keep(event, measured.bytes)
            is_next = is_here and self._delivered == self._seq - 1
            if is_next:
                self._delivered = self._seq
            is_due = self._is_delivery_due
            self._is_delivery_due = is_due or not is_here
        if is_next:
            self._hand_over(event, measured.bytes)
        elif is_here:
            self._deliver()
        elif not is_due:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._deliver)
        return _copy(event) if copy else event

    def _keep(self, event: Event, size: int) -> None:
        kept = self._kept
        kept.append((event, size))
        self._kept_bytes += size
        while len(kept) > self._kept_limit or (self._kept_bytes > KEPT_BYTES and len(kept) > 1):
            self._kept_bytes -= kept.popleft()[1]

    def _deliver(self) -> None:
        """Hand over what was published on any thread, in the order of its numbers; on the loop's thread."""
        with self._lock:
            self._is_delivery_due = False
            oldest = self._seq - len(self._kept) + 1
            lost = (self._delivered + 1, oldest - 1)
            first = max(self._delivered + 1, oldest)
            waiting = [self._kept[seq - self._seq - 1] for seq in range(first, self._seq + 1)]
            self._delivered = self._seq
        if lost[0] <= lost[1]:
            for subscription in tuple(self._subscriptions):
                subscription._offer(Gap(first=lost[0], last=lost[1]), 0)
        for event, size in waiting:
            self._hand_over(event, size)

    def _hand_over(self, event: Event, size: int) -> None:
        routes = self._routes.get(event.type)
        if routes is None:
            routes = self._route(event.type)
        for subscription in routes:
            subscription._offer(event, size)

    def _route(self, type: str) -> tuple[BusSubscription, ...]:
        """Return who wants a type; remembered until somebody comes or goes."""
        with self._lock:
            if len(self._routes) >= _ROUTES:
                self._routes.clear()
            found = self._routes[type] = tuple(s for s in self._subscriptions if s._wants(type))
        return found

    def subscribe(
        self, *types: str, since: int | None = None, limit: int = 1024, copy: bool = False
    ) -> BusSubscription:
        """Subscribe to types (all, where none is named); with `since`, begin after that event.

        A type may be a pattern with a `*` at its end. A `since` from before a restart of the host, when numbers
        were higher, begins with everything. With `copy`, the reader may change what it is given. Raises
        `InvalidInput` for a type that can never be published.
        """
        wanted = [_checked(one, None, is_pattern=True) for one in types]
        with self._lock:
            subscription = BusSubscription(self, wanted, limit, after=self._seq, copy=copy)
            if since is not None:
                self._replay(subscription, max(0, since) if since <= self._seq else 0)
            if self._is_closed:
                subscription._end()
            else:
                self._subscriptions.add(subscription)
                self._routes.clear()
        return subscription

    def _replay(self, subscription: BusSubscription, since: int) -> None:
        oldest = self._seq - len(self._kept) + 1
        if since + 1 < oldest:
            subscription._add(Gap(first=since + 1, last=oldest - 1), 0)
        for event, size in self._kept:
            if event.seq > since and subscription._wants(event.type):
                subscription._add(event, size)

    def _forget(self, subscription: BusSubscription) -> None:
        with self._lock:
            self._subscriptions.discard(subscription)
            self._routes.clear()

    async def close(self) -> None:
        """End every subscription, and at once those that come later."""
        with self._lock:
            self._is_closed = True
        if threading.get_ident() == self._thread:
            self._deliver()  # what other threads have published is read to its end too
        for subscription in tuple(self._subscriptions):
            await subscription.close()


class BusSubscription:
    """One bounded reader. When it falls behind, the oldest waiting events are dropped and a `Gap` says so."""

    def __init__(self, bus: EventBus, types: Iterable[str], limit: int, *, after: int = 0, copy: bool = False) -> None:
        self._bus = bus
        self._types = frozenset(t for t in types if not t.endswith("*"))
        self._prefixes = tuple(t[:-1] for t in types if t.endswith("*"))
        self._limit = max(1, limit)
        self._after = after
        self._copy = copy
        self._waiting: deque[tuple[Event | Gap, int]] = deque()
        self._bytes = 0
        self._lost: tuple[int, int] | None = None
        self._ready = asyncio.Event()
        self._closed = False
        self._callbacks: list[Callable[[], None]] = []

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the subscription is closed."""
        self._callbacks.append(callback)

    def _wants(self, type: str) -> bool:
        if not self._types and not self._prefixes:
            return True
        return type in self._types or type.startswith(self._prefixes)

    def _offer(self, item: Event | Gap, size: int) -> None:
        """Take what is new: nothing that this subscription is younger than, or was replayed."""
        if self._closed or (item.seq if isinstance(item, Event) else item.last) <= self._after:
            return
        self._add(item, size)

    def _add(self, item: Event | Gap, size: int) -> None:
        waiting = self._waiting
        waiting.append((item, size))
        self._bytes += size
        while len(waiting) > self._limit or (self._bytes > WAITING_BYTES and len(waiting) > 1):
            dropped, freed = waiting.popleft()
            self._bytes -= freed
            first, last = (dropped.seq, dropped.seq) if isinstance(dropped, Event) else (dropped.first, dropped.last)
            self._lost = (self._lost[0] if self._lost else first, last)
        self._ready.set()

    def __aiter__(self) -> AsyncIterator[Event | Gap]:
        return self

    async def __anext__(self) -> Event | Gap:
        while True:
            if self._lost is not None:
                (first, last), self._lost = self._lost, None
                return Gap(first=first, last=last)
            if self._waiting:
                item, size = self._waiting.popleft()
                self._bytes -= size
                return _copy(item) if self._copy and isinstance(item, Event) else item
            if self._closed:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()

    async def close(self) -> None:
        """End the subscription: what waits is still read, then the iteration ends."""
        self._end()
        self._bus._forget(self)
        for callback in self._callbacks:
            callback()

    def _end(self) -> None:
        self._closed = True
        self._ready.set()


def covers(granted: Iterable[str], wanted: str) -> bool:
    """Return whether one granted type or pattern matches each type that `wanted`, a type or pattern, matches."""
    if not isinstance(wanted, str):
        return False
    plain = str.__str__(wanted)
    start = plain.removesuffix("*")
    return any(g == plain or (g.endswith("*") and start.startswith(g[:-1])) for g in granted)


def is_own(plugin: str, wanted: str) -> bool:
    """Return whether a type, or each type that a pattern matches, is the plugin's own: its name and a dot first."""
    return isinstance(wanted, str) and str.startswith(wanted, f"{plugin}.")


def _checked(type: str, plugin: str | None, *, is_pattern: bool = False) -> str:
    """Return an event type, or where one may be a pattern. Raises `InvalidInput` for what is neither."""
    kind = "event type or pattern" if is_pattern else "event type"
    type = str.__str__(type) if isinstance(type, str) else ""
    if not 0 < len(type) <= MAX_TYPE:
        raise InvalidInput(f"an {kind} is a text of 1 to {MAX_TYPE} characters", plugin=plugin)
    if "*" in (type[:-1] if is_pattern else type):
        where = "only at its end: NODE_*" if is_pattern else "only in what one subscribes to"
        raise InvalidInput(f"{type!r} is no {kind}: a * may stand {where}", plugin=plugin)
    return type


def _copy(event: Event) -> Event:
    return event.model_copy(update={"payload": _Copier().object(event.payload, 0)})


class _Copier:
    """Copies one JSON value, and adds up what memory it takes, roughly.

    What most values are is looked at in the loops themselves, since every event passes through here.
    """

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = _EVENT_BYTES

    def object(self, value: Mapping[str, Any], depth: int) -> dict[str, JsonValue]:
        """Return a copy of an object. Raises `TypeError` or `ValueError` where something in it is no JSON."""
        if depth > MAX_NESTED:
            raise ValueError(f"it is nested more than {MAX_NESTED} deep")
        copied: dict[str, JsonValue] = {}
        for key, item in value.items():
            if type(key) is not str or len(key) > _SHORT:
                key = self._key(key)
            kind = type(item)
            if (kind is str and len(item) <= _SHORT) or kind is bool or (kind is int and -_WORD <= item <= _WORD):
                copied[key] = item
            else:
                copied[key] = self._value(item, depth)
        self.bytes += _ITEM_BYTES * len(copied)
        return copied

    def _list(self, items: Iterable[Any], depth: int) -> list[JsonValue]:
        if depth > MAX_NESTED:
            raise ValueError(f"it is nested more than {MAX_NESTED} deep")
        copied: list[JsonValue] = []
        for item in items:
            kind = type(item)
            if (kind is str and len(item) <= _SHORT) or kind is bool or (kind is int and -_WORD <= item <= _WORD):
                copied.append(item)
            else:
                copied.append(self._value(item, depth))
        self.bytes += _ITEM_BYTES * len(copied)
        return copied

    def _value(self, value: Any, depth: int) -> JsonValue:
        """Return a copy of any value; of a subclass of a JSON type, such as a member of an enum, what it stands for."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, dict):
            return self.object(value, depth + 1)
        if isinstance(value, list | tuple):
            return self._list(value, depth + 1)
        if isinstance(value, str):
            text = str.__str__(value)
            self.bytes += sys.getsizeof(text)
            return text
        if isinstance(value, int):
            if value.bit_length() > _MAX_BITS:
                raise ValueError(f"a whole number of {value.bit_length()} bits is too large")
            return int.__int__(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"{value} is not finite")
            return float.__float__(value)
        raise TypeError(f"it has a {type(value).__name__}")

    def _key(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(f"a key is a {type(key).__name__}, not a text")
        self.bytes += sys.getsizeof(key)
        return str.__str__(key)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, TypeError | ValueError) else describe(error)
