"""Events: numbered, kept for those who reconnect, and never held up by a slow reader."""

from __future__ import annotations

import asyncio
import enum
import pickle
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugin_maker import context_of, contextual, host_with
from pydantic import ValidationError

from tavern_host.contracts.errors import InvalidInput, PermissionDenied
from tavern_host.contracts.events import Event, Gap
from tavern_host.events import bus as events
from tavern_host.events.bus import THIN_AT, BusSubscription, EventBus, covers, is_own


@pytest.fixture
async def bus() -> EventBus:
    return EventBus()


async def ready(subscription: BusSubscription) -> list[Any]:
    """Close a subscription and return what it still had to give: numbers, and gaps as pairs."""
    await subscription.close()
    return [e.seq if isinstance(e, Event) else (e.first, e.last) async for e in subscription]


async def test_events_have_numbers_publisher_and_payload(bus: EventBus) -> None:
    assert bus.last_seq == 0
    first = bus.publish("A", {"x": [1]}, plugin="acme")
    second = bus.publish("B", {})
    assert (first.seq, first.type, first.payload, first.plugin) == (1, "A", {"x": [1]}, "acme")
    assert (second.seq, second.plugin, bus.last_seq) == (2, None, 2)
    assert second.time.tzinfo is not None
    assert Event.model_validate(first.model_dump()) == first


async def test_subscribers_get_their_types_and_patterns(bus: EventBus) -> None:
    wanted = {
        (): [1, 2, 3, 4, 5, 6, 7],
        ("*",): [1, 2, 3, 4, 5, 6, 7],
        ("A", "NODE"): [3, 7],
        ("NODE_*",): [1, 2, 6],
        ("NODE_E*", "A"): [1, 3, 6],
    }
    subscriptions = {types: bus.subscribe(*types) for types in wanted}
    for kind in ("NODE_ERROR", "NODE_", "A", "node_x", "XNODE_", "NODE_END", "NODE"):
        bus.publish(kind, {})
    assert {types: await ready(subscription) for types, subscription in subscriptions.items()} == wanted


@pytest.mark.parametrize("wanted", ["", "A*B", "**", "*A", "x" * 201], ids=str)
async def test_a_pattern_that_nothing_can_match_is_refused(bus: EventBus, wanted: str) -> None:
    with pytest.raises(InvalidInput, match="event type or pattern"):
        bus.subscribe("A", wanted)


@pytest.mark.parametrize("type", ["", "A*", "*", "x" * 201, 7, None, ["A"]], ids=repr)
async def test_what_is_no_type_cannot_be_published(bus: EventBus, type: Any) -> None:
    with pytest.raises(InvalidInput, match="event type"):
        bus.publish(type, {})
    assert bus.last_seq == 0


async def test_a_reader_waits_for_what_comes(bus: EventBus) -> None:
    subscription = bus.subscribe()
    waiting = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    assert not waiting.done()
    bus.publish("A", {})
    assert (await waiting).seq == 1  # type: ignore[union-attr]


async def test_reconnecting_subscribers_get_missed_events(bus: EventBus) -> None:
    for kind in "ABA":
        bus.publish(kind, {})
    all_of_it, later, of_type = bus.subscribe(since=0), bus.subscribe(since=2), bus.subscribe("A", since=1)
    bus.publish("A", {})
    assert await ready(all_of_it) == [1, 2, 3, 4]
    assert await ready(later) == [3, 4]
    assert await ready(of_type) == [3, 4]


async def test_late_subscribers_get_a_gap(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEPT", 3)
    bus = EventBus()
    for _ in range(10):
        bus.publish("A", {})
    assert await ready(bus.subscribe(since=0)) == [(1, 7), 8, 9, 10]
    assert await ready(bus.subscribe(since=6)) == [(7, 7), 8, 9, 10]
    assert await ready(bus.subscribe(since=7)) == [8, 9, 10]
    assert await ready(bus.subscribe(since=10)) == []


@pytest.mark.parametrize("since", [5, 10**30, -1])
async def test_subscribers_from_before_a_restart_get_everything(bus: EventBus, since: int) -> None:
    for _ in range(3):
        bus.publish("A", {})
    replayed = bus.subscribe(since=since)
    bus.publish("A", {})
    assert await ready(replayed) == [1, 2, 3, 4]


async def test_large_events_are_not_kept_for_long(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEPT_BYTES", 250_000)
    for _ in range(10):
        bus.publish("A", {"text": "x" * 100_000})
    assert await ready(bus.subscribe(since=0)) == [(1, 8), 9, 10]
    bus.publish("A", {"deep": [["x" * 999_999]]})
    assert await ready(bus.subscribe(since=0)) == [(1, 10), 11]


@pytest.mark.parametrize("payload", [{"x": ["é" * 20_000]}, {"x": [1] * 10_000}, {"k" * 100_000: 1}], ids=list)
async def test_it_counts_whatever_makes_an_event_large(
    bus: EventBus, payload: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEPT_BYTES", 50_000)
    for _ in range(20):
        bus.publish("A", payload)
    assert len(await ready(bus.subscribe(since=0))) < 5


async def test_slow_readers_hold_few_large_events(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "WAITING_BYTES", 250_000)
    slow, other = bus.subscribe(), bus.subscribe("B")
    for _ in range(10):
        bus.publish("A", {"text": "x" * 100_000})
    bus.publish("B", {})
    assert await anext(slow) == Gap(first=1, last=8)
    assert [(await anext(slow)).seq for _ in range(2)] == [9, 10]  # type: ignore[union-attr]
    bus.publish("A", {"text": "x" * 900_000})
    assert await ready(slow) == [(11, 11), 12]
    assert await ready(other) == [11]


async def test_slow_readers_lose_the_oldest_events(bus: EventBus) -> None:
    slow, quick = bus.subscribe(limit=2), bus.subscribe()
    for _ in range(5):
        bus.publish("A", {})
    assert await ready(slow) == [(1, 3), 4, 5]
    assert await ready(quick) == [1, 2, 3, 4, 5]
    assert await ready(bus.subscribe(since=0, limit=2)) == [(1, 3), 4, 5]


async def test_each_gap_is_told_once(bus: EventBus) -> None:
    slow = bus.subscribe(limit=1)
    bus.publish("A", {})
    bus.publish("A", {})
    assert await anext(slow) == Gap(first=1, last=1)
    bus.publish("A", {})
    assert await anext(slow) == Gap(first=2, last=2)
    assert await ready(slow) == [3]


async def test_what_waits_can_be_read_at_once(bus: EventBus) -> None:
    subscription = bus.subscribe(limit=4)
    bus.publish_all([("A", {})] * 5)
    assert [e.seq if isinstance(e, Event) else e for e in await subscription.some(3)] == [Gap(first=1, last=1), 2, 3]
    assert [e.seq for e in await subscription.some(3)] == [4, 5]  # type: ignore[union-attr]
    waiting = asyncio.create_task(subscription.some(3))
    await asyncio.sleep(0)
    assert not waiting.done()
    bus.publish_all([("A", {}), ("B", {})])
    assert [e.seq for e in await waiting] == [6, 7]  # type: ignore[union-attr]
    bus.publish("A", {})
    await subscription.close()
    assert [e.seq for e in await subscription.some(3)] == [8]  # type: ignore[union-attr]
    assert await subscription.some(3) == []


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


async def test_a_closed_bus_ends_every_subscription(bus: EventBus) -> None:
    early = bus.subscribe()
    bus.publish("A", {})
    await bus.close()
    assert [e.seq async for e in early] == [1]  # type: ignore[union-attr]
    async with asyncio.timeout(60):
        assert [e async for e in bus.subscribe()] == []
        assert [e.seq async for e in bus.subscribe(since=0)] == [1]  # type: ignore[union-attr]


# --- many at once ------------------------------------------------------------------------------------


async def test_batches_are_numbered_and_share_a_time(bus: EventBus) -> None:
    every, of_type, pattern = bus.subscribe(), bus.subscribe("B"), bus.subscribe("A*")
    bus.publish("A", {"x": 0})
    bus.publish_all([("B", {"x": 1}), ("A", {"x": [2]}), ("AB", {})], plugin="acme")
    bus.publish("B", {})
    events_seen = [await anext(every) for _ in range(5)]
    assert all(isinstance(event, Event) for event in events_seen)
    assert [(e.seq, e.type, e.payload, e.plugin) for e in events_seen] == [  # type: ignore[union-attr]
        (1, "A", {"x": 0}, None),
        (2, "B", {"x": 1}, "acme"),
        (3, "A", {"x": [2]}, "acme"),
        (4, "AB", {}, "acme"),
        (5, "B", {}, None),
    ]
    assert len({e.time for e in events_seen[1:4]}) == 1  # type: ignore[union-attr]
    assert await ready(of_type) == [2, 5]
    assert await ready(pattern) == [1, 3, 4]
    assert await ready(bus.subscribe(since=2)) == [3, 4, 5]


async def test_events_equal_validated_ones(bus: EventBus) -> None:
    subscription = bus.subscribe()
    bus.publish_all([("A", {"list": [1, {"a": None}]})], plugin="acme")
    seen = await anext(subscription)
    checked = Event.model_validate(seen.model_dump())
    assert (seen, repr(seen), seen.to_json()) == (checked, repr(checked), checked.to_json())
    assert seen.model_fields_set == checked.model_fields_set
    assert pickle.loads(pickle.dumps(seen)) == checked
    assert seen.model_copy(update={"seq": 7}).seq == 7
    with pytest.raises(ValidationError):
        seen.seq = 7  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("A", {"x": object()}), "the payload of A is not JSON: it has a object"),
        (("B", {"x": float("nan")}), "the payload of B is not JSON: nan is not finite"),
        (("A*", {}), "'A\\*' is no event type"),
        ((["A"], {}), "an event type is a text of 1 to 200 characters"),
        (("A", None), "the payload of A is not JSON"),
        (("A",), "an event is a pair of its type and its payload"),
        (None, "an event is a pair of its type and its payload"),
    ],
    ids=["an object", "nan", "a pattern", "a list as type", "no payload", "a type alone", "nothing"],
)
async def test_wrong_events_of_a_batch_are_left_out(bus: EventBus, wrong: Any, message: str) -> None:
    subscription = bus.subscribe()
    with pytest.raises(InvalidInput, match=message) as failure:
        bus.publish_all([("A", {"x": 1}), wrong, ("A", {"x": 2}), ("A", {"x": {3}})], plugin="acme")
    assert failure.value.info.plugin == "acme"
    await subscription.close()
    assert [(e.seq, e.payload) async for e in subscription] == [(1, {"x": 1}), (2, {"x": 2})]  # type: ignore[union-attr]


async def test_a_failing_iterable_publishes_nothing(bus: EventBus) -> None:
    def some() -> Any:
        yield "A", {}
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        bus.publish_all(some())
    assert bus.last_seq == 0


async def test_what_gives_the_events_may_publish_some_itself(bus: EventBus) -> None:
    subscription = bus.subscribe()

    def some() -> Any:
        yield "A", {}
        bus.publish("B", {})
        yield "A", {}

    bus.publish_all(some())
    await subscription.close()
    assert [(e.seq, e.type) async for e in subscription] == [(1, "B"), (2, "A"), (3, "A")]  # type: ignore[union-attr]


async def test_large_batches_reach_listeners_whole(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEPT", 3)
    bus = EventBus()
    quick, slow = bus.subscribe(), bus.subscribe(limit=2)
    bus.publish_all([("A", {})] * 10)
    assert await ready(quick) == list(range(1, 11))
    assert await ready(slow) == [(1, 8), 9, 10]
    assert await ready(bus.subscribe(since=0)) == [(1, 7), 8, 9, 10]


async def test_batches_from_threads_are_not_mixed_with_others(bus: EventBus) -> None:
    subscription = bus.subscribe()

    def publish(number: int) -> None:
        for _ in range(50):
            bus.publish_all([("A", {"who": number, "place": place}) for place in range(10)])

    work = asyncio.create_task(asyncio.to_thread(in_threads, 4, publish))
    while not work.done():
        if bus.last_seq < 2000:
            bus.publish_all([("A", {"who": 9, "place": place}) for place in range(10)])
        await asyncio.sleep(0)
    await work
    await asyncio.sleep(0)
    await subscription.close()
    seen = [e async for e in subscription]
    assert [e.seq for e in seen] == list(range(1, bus.last_seq + 1))  # type: ignore[union-attr]
    for start in range(0, len(seen), 10):
        batch = [e.payload for e in seen[start : start + 10]]  # type: ignore[union-attr]
        assert [p["place"] for p in batch] == list(range(10))
        assert len({p["who"] for p in batch}) == 1


async def test_observers_see_each_event_of_a_batch() -> None:
    told: list[Event] = []
    bus = EventBus(told.append)
    bus.publish("A", {})
    bus.publish_all([("B", {"x": 1}), ("C", {})], plugin="acme")
    assert [(e.seq, e.type, e.payload, e.plugin) for e in told] == [
        (1, "A", {}, None),
        (2, "B", {"x": 1}, "acme"),
        (3, "C", {}, "acme"),
    ]


# --- values ------------------------------------------------------------------------------------------


async def test_later_changes_of_a_payload_reach_nobody(bus: EventBus) -> None:
    payload: dict[str, Any] = {"list": [1], "deep": {"a": 1}, "pair": (True, None)}
    subscription = bus.subscribe()
    published = bus.publish("A", payload)
    payload["list"].append(2)
    payload["deep"]["b"] = 2
    published.payload["list"] = "changed"
    seen = await anext(subscription)
    assert seen.payload == {"list": [1], "deep": {"a": 1}, "pair": [True, None]}


async def test_readers_cannot_change_each_others_events(bus: EventBus) -> None:
    mine, its = bus.subscribe(copy=True), bus.subscribe(copy=True)
    page = bus.subscribe()
    bus.publish("A", {"list": [1, {"a": 1}]})
    changed = await anext(mine)
    changed.payload["list"][1]["a"] = 2  # type: ignore[index,call-overload]
    changed.payload["list"].append("x")  # type: ignore[union-attr]
    changed.payload.clear()
    for other in (its, page, bus.subscribe(since=0)):
        seen = await anext(other)
        assert (seen.seq, seen.payload) == (1, {"list": [1, {"a": 1}]})


class Colour(enum.StrEnum):
    RED = "red"


class Sly(str):
    def __len__(self) -> int:
        raise RuntimeError("you shall not measure me")


async def test_derived_json_types_become_plain(bus: EventBus) -> None:
    values = [Colour.RED, Sly("sly"), enum.IntEnum("N", "ONE").ONE, OrderedDict(a=Colour.RED)]  # type: ignore[attr-defined]
    event = bus.publish("A", {"values": values, Colour.RED: 1})
    assert event.payload == {"values": ["red", "sly", 1, {"a": "red"}], "red": 1}
    assert [type(value) for value in event.payload["values"]] == [str, str, int, dict]  # type: ignore[union-attr]


class Trap(dict[str, Any]):
    def items(self) -> Any:
        raise KeyError("gone")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def endless() -> Any:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


NO_JSON: dict[str, Any] = {
    "object": {"x": object()},
    **{repr(x): {"x": x} for x in ({1}, float("nan"), [float("inf")], b"b", [Path("a")], {1: 1})},
    "deep": {"x": nested(250)},
    "endless": endless(),
    "huge": {"x": 1 << 99_999},
    "trap": {"x": Trap(a=1)},
    "trapped": Trap(a=1),
    "list": ["x"],
    "none": None,
}


@pytest.mark.parametrize("payload", NO_JSON.values(), ids=NO_JSON)
async def test_a_payload_that_is_no_json_is_refused(bus: EventBus, payload: dict[str, Any]) -> None:
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


async def test_a_blocked_loop_loses_events_with_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEPT", 5)
    bus = EventBus()
    every, one = bus.subscribe(), bus.subscribe("B")
    bus.publish("A", {})
    in_threads(1, lambda _: [bus.publish("A", {}) for _ in range(20)])
    bus.publish("B", {})
    assert await ready(every) == [1, (2, 16), 17, 18, 19, 20, 21, 22]
    assert await ready(one) == [(2, 16), 22]


async def test_concurrent_subscribers_miss_nothing_later(bus: EventBus) -> None:
    made: list[tuple[int, BusSubscription]] = []

    def publish(_: int) -> None:
        for _ in range(300):
            bus.publish("A", {})

    def subscribe(_: int) -> None:
        for _ in range(30):
            made.append((bus.last_seq, bus.subscribe("A*", since=0, limit=10_000)))

    work = asyncio.create_task(asyncio.to_thread(in_threads, 4, lambda n: (subscribe if n % 2 else publish)(n)))
    while not work.done():
        if bus.last_seq < 2000:  # no more than what is kept
            bus.publish("A", {})
        await asyncio.sleep(0)
    await work
    await asyncio.sleep(0)
    for _, subscription in made:
        assert await ready(subscription) == list(range(1, bus.last_seq + 1))


async def test_a_threads_event_arrives_once(bus: EventBus) -> None:
    in_threads(1, lambda _: bus.publish("A", {}))
    replayed, fresh = bus.subscribe(since=0), bus.subscribe()
    await asyncio.sleep(0)
    assert await ready(replayed) == [1]
    assert await ready(fresh) == []


async def test_threads_may_publish_after_the_loop() -> None:
    made: list[EventBus] = []

    def other_loop(_: int) -> None:
        async def make() -> None:
            made.append(EventBus())

        asyncio.run(make())

    await asyncio.to_thread(in_threads, 1, other_loop)
    assert made[0].publish("A", {}).seq == 1


# --- what a permission covers ------------------------------------------------------------------------


COVERED = [("A", "A"), ("X NODE_*", "NODE_ERROR"), ("NODE_*", "NODE_*"), ("NODE_*", "NODE_E*"), ("NODE_*", "NODE_")]
COVERED += [("*", "*"), ("*", "NODE_*"), ("*", "anything"), ("acme.*", "acme.a.b")]
WIDER = [("", "A"), ("", "*"), ("A", "A*"), ("A AB", "A*"), ("NODE_*", "NODE*"), ("NODE_*", "*"), ("NODE_*", "NODE")]
WIDER += [("NODE_*", "node_error"), ("A", "AB"), ("AB", "A"), ("A* B*", "*")]


def test_a_granted_pattern_covers_nothing_wider() -> None:
    assert [row for row in COVERED if not covers(row[0].split(), row[1])] == []
    assert [row for row in WIDER if covers(row[0].split(), row[1])] == []


@given(
    granted=st.lists(st.text("AB*", max_size=3), max_size=3),
    wanted=st.text("AB", max_size=3),
    more=st.text("AB", max_size=3),
)
def test_covered_types_match_a_granted_pattern(granted: list[str], wanted: str, more: str) -> None:
    patterns = [g for g in granted if "*" not in g[:-1]]

    def matches(pattern: str, type: str) -> bool:
        return type.startswith(pattern[:-1]) if pattern.endswith("*") else type == pattern

    assert covers(patterns, wanted) == any(matches(p, wanted) for p in patterns)
    if covers(patterns, f"{wanted}*"):
        assert any(matches(p, wanted + more) for p in patterns)


def test_own_event_types_begin_with_the_name() -> None:
    assert is_own("acme", "acme.done")
    assert is_own("acme", "acme.*")
    for foreign in ("acme", "acme*", "acme-two.done", "*", "ACME.done", "x.acme.done"):
        assert not is_own("acme", foreign)


class Liar(str):
    def startswith(self, *_: Any) -> bool:
        return True

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = str.__hash__


@pytest.mark.parametrize("wanted", [Liar("NODE_ERROR"), 7, None, ["acme.x"]], ids=repr)
def test_lying_event_types_are_nobodys(wanted: Any) -> None:
    assert not is_own("acme", wanted)
    assert not covers(["AGENT_*", "HELLO"], wanted)


# --- through a plugin's context ----------------------------------------------------------------------


async def test_forbidden_events_of_a_batch_are_left_out(tmp_path: Path) -> None:
    events = {"publish": ["HELLO"], "subscribe": ["HELLO"]}
    async with host_with(tmp_path / "p", contextual(tmp_path, permissions={"events": events}), trust=[]) as host:
        await host.grant("acme")
        context = context_of()
        listening = host.events.subscribe("HELLO", "acme.*", "OTHER")
        for _ in range(2):  # what it may do is remembered, what it may not do is not
            batch = [("HELLO", {"a": 1}), ("OTHER", {}), ("acme.done", {"a": 2}), ("OTHER", {})]
            with pytest.raises(PermissionDenied, match="acme may not publish OTHER events") as denied:
                context.events.publish_all(batch)
            assert denied.value.info.details["permission"] == "events.publish:OTHER"
        context.events.publish_all([("HELLO", {"a": 3})])
        await host.revoke("acme")
        with pytest.raises(PermissionDenied, match="acme is not loaded any more"):
            context.events.publish_all([("HELLO", {"a": 4})])
        await listening.close()
        seen = [e async for e in listening]
        assert [e.payload["a"] for e in seen] == [1, 2, 1, 2, 3]  # type: ignore[union-attr]
        assert {e.plugin for e in seen} == {"acme"}  # type: ignore[union-attr]


async def test_closed_subscriptions_are_not_owned(tmp_path: Path) -> None:
    async with host_with(tmp_path / "p", contextual(tmp_path)) as host:
        subscription = context_of().events.subscribe("acme.*")
        await subscription.close()
        assert "subscription" not in host.plugin("acme").contributions


@pytest.mark.parametrize("count", [THIN_AT // 2 - 1, 5 * THIN_AT])
async def test_a_slow_reader_gets_the_newest_of_each_state(count: int) -> None:
    bus = EventBus()
    slow, plain = bus.subscribe(limit=100_000), bus.subscribe(limit=100_000)
    slow.state_of = lambda type, payload: payload["node"] if type == "PROGRESS" else None
    for number in range(count):
        bus.publish_all([("PROGRESS", {"node": number % 3, "number": number}), ("STATUS", {"number": number})])
    await bus.close()

    every = [event async for event in plain if isinstance(event, Event)]
    told = [event async for event in slow if isinstance(event, Event)]
    assert (len(every), slow._bytes) == (2 * count, 0)
    assert [e.payload["number"] for e in told if e.type == "STATUS"] == list(range(count))
    assert [e.seq for e in told] == sorted(e.seq for e in told)
    progress = {e.payload["node"]: e.payload["number"] for e in told if e.type == "PROGRESS"}
    assert progress == {number % 3: number for number in range(count - 3, count)}
    assert (len(told) < len(every)) is (2 * count >= THIN_AT)
