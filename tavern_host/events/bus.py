"""The event bus: numbered events, a bounded buffer of the newest, and bounded subscriptions that report gaps.

Publishing never blocks and may happen on any thread; subscribers live on the host's event loop. Callers decide who may
publish and read what, by `common.event_types`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any

from pydantic import JsonValue

from tavern_host import clock
from tavern_host.contracts.errors import InvalidInput, TavernError, describe
from tavern_host.contracts.events import Event, Gap
from tavern_host.events.payloads import copied_object

KEPT = 4096
"""How many events are kept for subscribers that reconnect."""
KEPT_BYTES = 32 * 2**20
"""How much memory, roughly, the kept events may take; the newest is kept whatever its size."""
WAITING_BYTES = 32 * 2**20
"""How much memory, roughly, the events may take that wait for one subscriber; one may wait whatever its size."""
WAITING = 16_384
"""How many events may wait for a subscriber that asks for no other number."""
THIN_AT = 1024
"""How many events wait for a subscriber when those are left out first that newer ones supersede."""
MAX_KNOWN = 1000
"""Of how many event types it is known who subscribes to them."""
MAX_TYPE = 200
"""How many characters an event type or pattern may have."""

_EVENT_BYTES = 300
"""What an event takes beside its payload, roughly."""

Numbered = tuple[int, str, dict[str, JsonValue], str | None, datetime, int]
"""An event as the bus keeps it: number, type, payload, plugin, time, and how much memory it takes, roughly.

An `Event` is made of it for each reader: most events are read by nobody, or once.
"""
_size_of = itemgetter(5)

# Ordering. A number is given and its event appended to `_kept` within one hold of the lock, so `_kept` has consecutive
# numbers and ends with `_seq`: the place of an event follows from its number. `_delivered` is moved forward within the
# lock too, with what is taken for delivery, so each event is offered once.
# Subscriptions are offered events on the loop's thread only, in the order of the numbers. Who publishes there delivers
# at once, and first what other threads have published before; another thread has the loop deliver, for which one
# callback waits at a time. What was forgotten before it could be delivered is a `Gap`: numbers are missing, never out
# of order. A subscription skips what is not above `_after`, the newest number when it was made: that came before it, or
# a replay has given it. The observer is called outside the lock, on the thread that publishes: of the events of two
# threads it may see the later one first.


class EventBus:
    """All events of one host. `observer` is called with each, on the thread that publishes it; what it raises is raised
    to the publisher."""

    def __init__(self, observer: Callable[[Event], None] | None = None) -> None:
        self.epoch = secrets.token_hex(8)
        """Tells the numbers of this bus from those that were given before a restart."""
        self._lock = threading.Lock()
        self._seq = 0
        self._delivered = 0
        self._kept: deque[Numbered] = deque()
        self._kept_limit = KEPT
        self._kept_bytes = 0
        self._is_delivery_due = False
        self._is_closed = False
        self._subscriptions: set[BusSubscription] = set()
        self._readers: dict[str, tuple[BusSubscription, ...]] = {}
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def last_seq(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._seq

    def publish(self, type: str, payload: Mapping[str, Any], *, plugin: str | None = None) -> Event:
        """Number an event, keep it, and hand it to the subscribers; return it with a payload that is the publisher's.

        The payload is copied. Raises `InvalidInput` where the payload is not JSON, or `type` no event type.
        """
        type = _checked(type, plugin)
        try:
            copied, size = copied_object(payload)
        except Exception as error:
            raise _refusal(type, plugin, error) from None
        (numbered,) = self._publish([(type, copied, size)], plugin)
        return _copy(numbered)

    def publish_all(
        self,
        events: Iterable[tuple[str, Mapping[str, Any]]],
        *,
        plugin: str | None = None,
        may_publish: Callable[[str], None] | None = None,
    ) -> None:
        """Publish events, given as pairs of type and payload, in order and with numbers that follow each other.

        `may_publish` is called once for each type, and raises a `TavernError` to refuse it. An event that cannot be
        published is left out; when the others were published, what `publish` would have raised for the first such one
        is raised. What the iterable itself raises is raised before anything was published.
        """
        prepared: list[tuple[str, dict[str, JsonValue], int]] = []
        known: set[str] = set()
        refused: TavernError | None = None
        for event in events:
            try:
                type, payload = event
            except Exception:
                refused = refused or InvalidInput("an event is a pair of its type and its payload", plugin=plugin)
                continue
            try:
                if type.__class__ is not str or type not in known:
                    type = _checked(type, plugin)
                    if may_publish is not None:
                        may_publish(type)
                    known.add(type)
                copied, size = copied_object(payload)
            except Exception as error:
                refused = refused or (error if isinstance(error, TavernError) else _refusal(type, plugin, error))
                continue
            prepared.append((type, copied, size))
        if prepared:
            self._publish(prepared, plugin)
        if refused is not None:
            raise refused

    def _publish(self, events: list[tuple[str, dict[str, JsonValue], int]], plugin: str | None) -> list[Numbered]:
        """Number events, given as type, payload and its size, keep them, and deliver them or have the loop's thread do
        so."""
        is_here = threading.get_ident() == self._thread
        with self._lock:
            time = clock.now()
            numbered: list[Numbered] = []
            for type, payload, size in events:
                self._seq += 1
                numbered.append((self._seq, type, payload, plugin, time, size + _EVENT_BYTES))
            self._kept.extend(numbered)
            self._kept_bytes += sum(map(_size_of, numbered))
            waiting = self._undelivered() if is_here else []
            while len(self._kept) > self._kept_limit or (self._kept_bytes > KEPT_BYTES and len(self._kept) > 1):
                self._kept_bytes -= _size_of(self._kept.popleft())
            is_due = is_here or self._is_delivery_due
            self._is_delivery_due = self._is_delivery_due or not is_here
        self._offer(waiting)
        if not is_due:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._deliver)
        if self._observer is not None:
            for one in numbered:
                self._observer(_event(one))
        return numbered

    def _deliver(self) -> None:
        """Deliver what was published on any thread, in the order of its numbers; on the loop's thread."""
        with self._lock:
            self._is_delivery_due = False
            waiting = self._undelivered()
        self._offer(waiting)

    def _undelivered(self) -> list[Gap | list[Numbered]]:
        """Return the events not delivered yet, with the lock held; a gap before them where some are no longer kept."""
        oldest = self._seq - len(self._kept) + 1
        first = max(self._delivered + 1, oldest)
        waiting: list[Gap | list[Numbered]] = []
        if self._delivered + 1 < first:
            waiting.append(Gap(first=self._delivered + 1, last=first - 1))
        if first <= self._seq:
            waiting.append([self._kept[seq - self._seq - 1] for seq in range(first, self._seq + 1)])
        self._delivered = self._seq
        return waiting

    def _offer(self, waiting: list[Gap | list[Numbered]]) -> None:
        for items in waiting:
            with self._lock:
                if isinstance(items, Gap):
                    subscriptions: Iterable[BusSubscription] = tuple(self._subscriptions)
                else:
                    subscriptions = {one for type in {item[1] for item in items} for one in self._readers_of(type)}
            for subscription in subscriptions:
                subscription._offer(items)

    def _readers_of(self, type: str) -> tuple[BusSubscription, ...]:
        """Return the subscriptions to a type, with the lock held."""
        found = self._readers.get(type)
        if found is None:
            if len(self._readers) >= MAX_KNOWN:
                self._readers.clear()
            found = self._readers[type] = tuple(one for one in self._subscriptions if one.hears(type))
        return found

    def subscribe(
        self,
        *types: str,
        since: int | None = None,
        limit: int = WAITING,
        copy: bool = False,
        admits: Callable[[str, Mapping[str, Any]], bool] | None = None,
    ) -> BusSubscription:
        """Subscribe to types (all, where none is named); with `since`, begin after that event.

        A type may be a pattern with a `*` at its end. A `since` from before a restart of the host, when numbers
        were higher, begins with everything. With `copy`, the reader may change what it is given; `admits` says by type
        and payload what is wanted of these types. Raises `InvalidInput` for a type that can never be published.
        """
        wanted = [_checked(one, None, is_pattern=True) for one in types]
        with self._lock:
            subscription = BusSubscription(self, wanted, limit, after=self._seq, copy=copy)
            subscription.admits = admits
            if since is not None:
                self._replay(subscription, max(0, since) if since <= self._seq else 0)
            if self._is_closed:
                subscription._end()
            else:
                self._subscriptions.add(subscription)
                self._readers.clear()
        return subscription

    def is_read(self, type: str) -> bool:
        """Return whether somebody hears events of a type as they are published."""
        with self._lock:
            return self._observer is not None or bool(self._readers_of(type))

    def _replay(self, subscription: BusSubscription, since: int) -> None:
        oldest = self._seq - len(self._kept) + 1
        if since + 1 < oldest:
            subscription._waiting.append(Gap(first=since + 1, last=oldest - 1))
        subscription._add(self._kept, since)

    def _forget(self, subscription: BusSubscription) -> None:
        with self._lock:
            self._subscriptions.discard(subscription)
            self._readers.clear()

    async def close(self) -> None:
        """End every subscription, and at once those that come later."""
        with self._lock:
            self._is_closed = True
        if threading.get_ident() == self._thread:
            self._deliver()  # what other threads have published is read to its end too
        for subscription in tuple(self._subscriptions):
            await subscription.close()


class BusSubscription:
    """One bounded reader. When it falls behind, the oldest waiting events are dropped and a `Gap` reports it."""

    def __init__(self, bus: EventBus, types: Iterable[str], limit: int, *, after: int = 0, copy: bool = False) -> None:
        self._bus = bus
        self._types = frozenset(t for t in types if not t.endswith("*"))
        self._prefixes = tuple(t[:-1] for t in types if t.endswith("*"))
        self._limit = max(1, limit)
        self._after = after
        self._copy = copy
        self._waiting: deque[Numbered | Gap] = deque()
        self._bytes = 0
        self._lost: tuple[int, int] | None = None
        self._ready = asyncio.Event()
        self._closed = False
        self.admits: Callable[[str, Mapping[str, Any]], bool] | None = None
        """Says by type and payload which of its types are wanted, of those that are published from now on."""
        self.state_of: Callable[[str, Mapping[str, Any]], Hashable] | None = None
        """Says by type and payload of what an event is the newest state, None where it is no state. While many wait,
        those that a newer one supersedes are left out."""
        self.joined: Callable[[str, Mapping[str, Any], Mapping[str, Any]], dict[str, JsonValue] | None] | None = None
        """Returns by type and payloads what is sent in place of two events that follow each other, None for both."""
        self._thin_at = THIN_AT
        self.on_close: Callable[[], object] = lambda: None
        """Called when the subscription is closed."""

    def hears(self, type: str) -> bool:
        """Return whether events of a type are among those that it subscribes to."""
        return not (self._types or self._prefixes) or type in self._types or type.startswith(self._prefixes)

    def _wants(self, event: Numbered) -> bool:
        return self.hears(event[1]) and (self.admits is None or self.admits(event[1], event[2]))

    def _offer(self, items: Gap | list[Numbered]) -> None:
        """Take new events, in the order of their numbers; those from before it was made, or replayed, are skipped."""
        if self._closed:
            return
        if isinstance(items, list):
            self._add(items, self._after)
        elif items.last > self._after:
            self._waiting.append(items)
            self._drop_oldest()

    def _add(self, items: Iterable[Numbered], after: int) -> None:
        """Take those of these events that come after a number and are wanted."""
        if wanted := [item for item in items if item[0] > after and self._wants(item)]:
            self._waiting.extend(wanted)
            self._bytes += sum(map(_size_of, wanted))
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop the oldest events where too many wait, and wake the reader."""
        if self.state_of is not None and len(self._waiting) >= self._thin_at:
            self._thin(self.state_of)
        while len(self._waiting) > self._limit or (self._bytes > WAITING_BYTES and len(self._waiting) > 1):
            dropped = self._waiting.popleft()
            if isinstance(dropped, tuple):
                first = last = dropped[0]
                self._bytes -= dropped[5]
            else:
                first, last = dropped.first, dropped.last
            self._lost = (self._lost[0] if self._lost else first, last)
        self._ready.set()

    def _thin(self, state_of: Callable[[str, Mapping[str, Any]], Hashable]) -> None:
        """Leave out what is superseded, and join what can be; next when as many more wait, so that each event is looked
        at twice or so."""
        newest: set[Hashable] = {None}
        kept: deque[Numbered | Gap] = deque()
        for item in reversed(self._waiting):
            state = state_of(item[1], item[2]) if isinstance(item, tuple) else None
            if state is None or state not in newest:
                newest.add(state)
                if kept and (both := self._both(item, kept[0])) is not None:
                    kept[0], self._bytes = both, self._bytes - _EVENT_BYTES
                else:
                    kept.appendleft(item)
            elif isinstance(item, tuple):
                self._bytes -= item[5]
        self._waiting = kept
        self._thin_at = max(THIN_AT, 2 * len(kept))

    def _both(self, item: Numbered | Gap, after: Numbered | Gap) -> Numbered | None:
        """Return the one event that replaces two, with the number of the later, so that a reader who has seen it has
        missed nothing; None where both are sent."""
        if self.joined is None or not isinstance(item, tuple) or not isinstance(after, tuple) or item[1] != after[1]:
            return None
        payload = self.joined(item[1], item[2], after[2])
        return None if payload is None else (*after[:2], payload, *after[3:5], item[5] + after[5] - _EVENT_BYTES)

    def __aiter__(self) -> AsyncIterator[Event | Gap]:
        return self

    async def __anext__(self) -> Event | Gap:
        while True:
            if self._lost is not None:
                (first, last), self._lost = self._lost, None
                return Gap(first=first, last=last)
            if self._waiting:
                item = self._waiting.popleft()
                if isinstance(item, tuple):
                    self._bytes -= item[5]
                    return _copy(item) if self._copy else _event(item)
                return item
            if self._closed:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()

    async def some(self, most: int) -> list[Event | Gap]:
        """Return at most `most` waiting events; wait while there is none. Empty at the end."""
        try:
            found = [await anext(self)]
        except StopAsyncIteration:
            return []
        while (self._waiting or self._lost) and len(found) < most:
            found.append(await anext(self))  # which does not wait
        return found

    async def close(self) -> None:
        """End the subscription: what waits is still read, then the iteration ends."""
        self._end()
        self._bus._forget(self)
        self.on_close()

    def _end(self) -> None:
        self._closed = True
        self._ready.set()


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


def _event(numbered: Numbered) -> Event:
    """Return an event, without checking again what its parts were checked for."""
    seq, type, payload, plugin, time, _ = numbered
    return Event.model_construct(seq=seq, type=type, payload=payload, plugin=plugin, time=time)


def _copy(numbered: Numbered) -> Event:
    """Return an event whose payload is the reader's own."""
    seq, type, payload, plugin, time, size = numbered
    return _event((seq, type, copied_object(payload)[0], plugin, time, size))


def _refusal(type: str, plugin: str | None, error: Exception) -> InvalidInput:
    if isinstance(error, RecursionError):
        return InvalidInput(f"the payload of {type} is nested too deeply", plugin=plugin)
    reason = str(error) if isinstance(error, TypeError | ValueError) else describe(error)
    return InvalidInput(f"the payload of {type} is not JSON: {reason}", plugin=plugin)
