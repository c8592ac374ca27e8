"""Events: numbered, kept for those who reconnect, and never held up by a slow reader."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from plugin_maker import context_of, contextual, host_with

from tavern_host import events
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.events import Event, Gap
from tavern_host.events import BusSubscription, EventBus


@pytest.fixture
async def bus() -> EventBus:
    return EventBus()


async def ready(subscription: BusSubscription) -> list[Any]:
    """Close a subscription and return what it still had to give: numbers, and gaps as pairs."""
    await subscription.close()
    return [e.seq if isinstance(e, Event) else (e.first, e.last) async for e in subscription]


async def test_events_are_numbered_from_one_and_carry_who_and_what(bus: EventBus) -> None:
    assert bus.last_seq == 0
    first = bus.publish("A", {"x": [1]}, plugin="acme")
    second = bus.publish("B", {})
    assert (first.seq, first.type, first.payload, first.plugin) == (1, "A", {"x": [1]}, "acme")
    assert (second.seq, second.plugin, bus.last_seq) == (2, None, 2)
    assert second.time.tzinfo is not None
    assert Event.model_validate(first.model_dump()) == first


async def test_a_subscriber_gets_what_comes_after_it_in_order(bus: EventBus) -> None:
    bus.publish("A", {})
    subscription = bus.subscribe()
    for _ in range(3):
        bus.publish("A", {})
    assert await ready(subscription) == [2, 3, 4]


async def test_a_subscriber_gets_the_types_that_it_names(bus: EventBus) -> None:
    some, every = bus.subscribe("A", "B"), bus.subscribe()
    for kind in "ABCA":
        bus.publish(kind, {})
    assert await ready(some) == [1, 2, 4]
    assert await ready(every) == [1, 2, 3, 4]


async def test_a_reader_waits_for_what_comes(bus: EventBus) -> None:
    subscription = bus.subscribe()
    waiting = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    assert not waiting.done()
    bus.publish("A", {})
    assert (await waiting).seq == 1  # type: ignore[union-attr]


async def test_one_that_reconnects_gets_what_it_missed_and_then_goes_on(bus: EventBus) -> None:
    for kind in "ABA":
        bus.publish(kind, {})
    all_of_it, later, of_type = bus.subscribe(since=0), bus.subscribe(since=2), bus.subscribe("A", since=1)
    bus.publish("A", {})
    assert await ready(all_of_it) == [1, 2, 3, 4]
    assert await ready(later) == [3, 4]
    assert await ready(of_type) == [3, 4]


async def test_one_that_comes_too_late_is_told_what_is_lost(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEPT", 3)
    bus = EventBus()
    for _ in range(10):
        bus.publish("A", {})
    assert await ready(bus.subscribe(since=0)) == [(1, 7), 8, 9, 10]
    assert await ready(bus.subscribe(since=6)) == [(7, 7), 8, 9, 10]
    assert await ready(bus.subscribe(since=7)) == [8, 9, 10]
    assert await ready(bus.subscribe(since=10)) == []


async def test_a_slow_reader_loses_the_oldest_and_is_told(bus: EventBus) -> None:
    slow, quick = bus.subscribe(limit=2), bus.subscribe()
    for _ in range(5):
        bus.publish("A", {})
    assert await ready(slow) == [(1, 3), 4, 5]
    assert await ready(quick) == [1, 2, 3, 4, 5]


async def test_a_gap_is_told_once_and_the_next_one_anew(bus: EventBus) -> None:
    slow = bus.subscribe(limit=1)
    bus.publish("A", {})
    bus.publish("A", {})
    assert await anext(slow) == Gap(first=1, last=1)
    bus.publish("A", {})
    assert await anext(slow) == Gap(first=2, last=2)
    assert await ready(slow) == [3]


async def test_a_replay_that_is_larger_than_the_limit_is_a_gap_too(bus: EventBus) -> None:
    for _ in range(5):
        bus.publish("A", {})
    assert await ready(bus.subscribe(since=0, limit=2)) == [(1, 3), 4, 5]


async def test_closing_ends_the_reading_after_what_was_there(bus: EventBus) -> None:
    subscription = bus.subscribe()
    reading = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    await subscription.close()
    with pytest.raises(StopAsyncIteration):
        await reading
    bus.publish("A", {})
    assert await ready(subscription) == []
    await subscription.close()


async def test_a_closed_bus_ends_every_subscription_and_those_that_come_late(bus: EventBus) -> None:
    early = bus.subscribe()
    bus.publish("A", {})
    await bus.close()
    assert [e.seq async for e in early] == [1]  # type: ignore[union-attr]
    async with asyncio.timeout(1):
        assert [e async for e in bus.subscribe()] == []
        assert [e.seq async for e in bus.subscribe(since=0)] == [1]  # type: ignore[union-attr]


# --- values ------------------------------------------------------------------------------------------


async def test_what_the_publisher_does_to_its_payload_later_reaches_nobody(bus: EventBus) -> None:
    payload: dict[str, Any] = {"list": [1], "deep": {"a": 1}, "pair": (True, None)}
    subscription = bus.subscribe()
    bus.publish("A", payload)
    payload["list"].append(2)
    payload["deep"]["b"] = 2
    seen = await anext(subscription)
    assert isinstance(seen, Event)
    assert seen.payload == {"list": [1], "deep": {"a": 1}, "pair": [True, None]}


@pytest.mark.parametrize(
    "payload",
    [{"x": x} for x in (object(), {1}, float("nan"), [float("inf")], b"b", [Path("a")], {1: 1})],
    ids=["object", "set", "nan", "inf", "bytes", "path", "int key"],
)
async def test_what_is_no_json_is_refused_where_it_is_published(bus: EventBus, payload: dict[str, Any]) -> None:
    subscription = bus.subscribe()
    with pytest.raises(InvalidInput, match="the payload of A is not JSON"):
        bus.publish("A", payload)
    assert bus.last_seq == 0
    assert await ready(subscription) == []


# --- threads -----------------------------------------------------------------------------------------


def in_threads(count: int, work: Any) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def test_events_from_threads_arrive_in_the_order_of_their_numbers(bus: EventBus) -> None:
    subscription = bus.subscribe(limit=10_000)

    def publish(_: int) -> None:
        for _ in range(200):
            bus.publish("A", {})

    work = asyncio.create_task(asyncio.to_thread(in_threads, 4, publish))
    while not work.done():
        bus.publish("B", {})
        await asyncio.sleep(0)
    await work
    await asyncio.sleep(0)
    got = await ready(subscription)
    assert got == list(range(1, bus.last_seq + 1))


async def test_an_event_of_this_thread_does_not_overtake_one_of_another(bus: EventBus) -> None:
    subscription = bus.subscribe()
    in_threads(1, lambda _: bus.publish("A", {}))
    bus.publish("B", {})
    await asyncio.sleep(0)
    assert await ready(subscription) == [1, 2]


async def test_an_event_of_another_thread_is_not_replayed_and_delivered_as_well(bus: EventBus) -> None:
    in_threads(1, lambda _: bus.publish("A", {}))
    replayed, fresh = bus.subscribe(since=0), bus.subscribe()
    await asyncio.sleep(0)
    assert await ready(replayed) == [1]
    assert await ready(fresh) == []


async def test_a_thread_that_outlives_the_loop_may_still_publish() -> None:
    made: list[EventBus] = []

    def other_loop(_: int) -> None:
        async def make() -> None:
            made.append(EventBus())

        asyncio.run(make())

    await asyncio.to_thread(in_threads, 1, other_loop)
    assert made[0].publish("A", {}).seq == 1


# --- through a plugin's context ----------------------------------------------------------------------


async def test_a_plugin_publishes_in_its_own_name_and_its_subscriptions_are_its_own(tmp_path: Path) -> None:
    async with host_with(tmp_path / "p", contextual(tmp_path), trust=[]) as host:
        await host.grant("acme")
        context = context_of()
        listening = host.events.subscribe("HELLO")
        mine = context.events.subscribe("HELLO", "BYE")
        assert host.plugin("acme").contributions["subscription"] == ["HELLO, BYE"]
        context.events.publish("HELLO", {"a": 1})
        event = await anext(listening)
        assert isinstance(event, Event)
        assert (event.plugin, event.payload) == ("acme", {"a": 1})
        await host.revoke("acme")
        assert [e.type async for e in mine] == ["HELLO"]  # type: ignore[union-attr]


async def test_a_subscription_that_a_plugin_closed_is_not_its_any_more(tmp_path: Path) -> None:
    async with host_with(tmp_path / "p", contextual(tmp_path)) as host:
        subscription = context_of().events.subscribe()
        await subscription.close()
        assert "subscription" not in host.plugin("acme").contributions
