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
from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st
from plugin_maker import context_of, contextual, host_with
from pydantic import ValidationError

from tavern_host.common.event_types import covers, is_own
from tavern_host.contracts.errors import InvalidInput, PermissionDenied
from tavern_host.contracts.events import Event, Gap
from tavern_host.events import bus as events
from tavern_host.events.bus import THIN_AT, BusSubscription, EventBus


@pytest.fixture
async def bus() -> EventBus:
    return EventBus()


def numbers(events: list[Any]) -> list[Any]:
    """Return the numbers of events, and gaps as pairs."""
    return [e.seq if isinstance(e, Event) else (e.first, e.last) for e in events]


async def rest(subscription: BusSubscription) -> list[Any]:
    """Close a subscription and return what it still had to give."""
    await subscription.close()
    return [event async for event in subscription]


async def ready(subscription: BusSubscription) -> list[Any]:
    """Close a subscription and return the numbers of what it still had to give."""
    return numbers(await rest(subscription))


def publish(bus: EventBus, count: int, **payload: Any) -> None:
    for _ in range(count):
        bus.publish("A", payload)


async def test_events_have_numbers_publisher_and_payload(bus: EventBus) -> None:
    assert bus.last_seq == 0
    first = bus.publish("A", {"x": [1]}, plugin="acme")
    second = bus.publish("B", {})
    assert (first.seq, first.type, first.payload, first.plugin) == (1, "A", {"x": [1]}, "acme")
    assert (second.seq, second.plugin, bus.last_seq) == (2, None, 2)
    assert second.time.tzinfo is not None
    assert Event.model_validate(first.model_dump()) == first


async def test_subscribers_get_their_types_and_patterns(bus: EventBus) -> None:
    wanted = {(): [1, 2, 3, 4, 5, 6, 7], ("*",): [1, 2, 3, 4, 5, 6, 7], ("A", "NODE"): [3, 7]}
    wanted |= {("NODE_*",): [1, 2, 6], ("NODE_E*", "A"): [1, 3, 6]}
    subscriptions = {types: bus.subscribe(*types) for types in wanted}
    for kind in ("NODE_ERROR", "NODE_", "A", "node_x", "XNODE_", "NODE_END", "NODE"):
        bus.publish(kind, {})
    assert {types: await ready(subscription) for types, subscription in subscriptions.items()} == wanted


async def test_impossible_patterns_and_types_are_refused(bus: EventBus) -> None:
    with Failures() as failures:
        for wanted in ("", "A*B", "**", "*A", "x" * 201):
            with failures.row(wanted), pytest.raises(InvalidInput, match="event type or pattern"):
                bus.subscribe("A", wanted)
        for kind in ("", "A*", "*", "x" * 201, 7, None, ["A"]):
            with failures.row(kind), pytest.raises(InvalidInput, match="event type"):
                bus.publish(kind, {})
    assert bus.last_seq == 0


async def test_readers_wait_for_an_event_or_the_end(bus: EventBus) -> None:
    subscription = bus.subscribe()
    waiting = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    assert not waiting.done()
    bus.publish("A", {})
    assert (await waiting).seq == 1
    waiting = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    await subscription.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    bus.publish("A", {})
    assert await ready(subscription) == []


async def test_reconnecting_subscribers_get_missed_events_or_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEPT", 3)
    bus = EventBus()
    for kind in "AAAAAAABAA":
        bus.publish(kind, {})
    wanted = {0: [(1, 7), 8, 9, 10], 6: [(7, 7), 8, 9, 10], 7: [8, 9, 10], 10: []}
    from_before_a_restart = {since: [(1, 7), 8, 9, 10] for since in (11, 10**30, -1)}
    assert {since: await ready(bus.subscribe(since=since)) for since in wanted} == wanted
    assert {n: await ready(bus.subscribe(since=n)) for n in from_before_a_restart} == from_before_a_restart
    of_type = bus.subscribe("A", since=8)
    bus.publish_all([("B", {}), ("A", {})])
    assert await ready(of_type) == [9, 10, 12]


async def test_large_events_are_not_kept_for_long(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEPT_BYTES", 25_000)
    publish(bus, 10, text="x" * 10_000)
    assert await ready(bus.subscribe(since=0)) == [(1, 8), 9, 10]
    bus.publish("A", {"deep": [["x" * 99_999]]})
    assert await ready(bus.subscribe(since=0)) == [(1, 10), 11]
    for payload in ({"x": ["é" * 10_000]}, {"x": [1] * 5_000}, {"k" * 50_000: 1}):
        publish(bus, 20, **payload)
        assert len(await ready(bus.subscribe(since=0))) < 5


async def test_slow_readers_hold_few_large_events(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "WAITING_BYTES", 25_000)
    slow, other = bus.subscribe(), bus.subscribe("B")
    publish(bus, 10, text="x" * 10_000)
    bus.publish("B", {})
    assert numbers([await anext(slow) for _ in range(3)]) == [(1, 8), 9, 10]
    bus.publish("A", {"text": "x" * 90_000})
    assert await ready(slow) == [(11, 11), 12]
    assert await ready(other) == [11]


async def test_slow_readers_lose_the_oldest_events(bus: EventBus) -> None:
    slow, quick, slowest = bus.subscribe(limit=2), bus.subscribe(), bus.subscribe(limit=1)
    publish(bus, 5)
    assert await ready(slow) == await ready(bus.subscribe(since=0, limit=2)) == [(1, 3), 4, 5]
    assert await ready(quick) == [1, 2, 3, 4, 5]
    assert await anext(slowest) == Gap(first=1, last=4)
    publish(bus, 1)
    assert await anext(slowest) == Gap(first=5, last=5), "each gap is told once"
    assert await ready(slowest) == [6]


async def test_what_waits_can_be_read_at_once(bus: EventBus) -> None:
    subscription = bus.subscribe(limit=4)
    bus.publish_all([("A", {})] * 5)
    assert numbers(await subscription.some(3)) == [(1, 1), 2, 3]
    assert numbers(await subscription.some(3)) == [4, 5]
    waiting = asyncio.create_task(subscription.some(3))
    await asyncio.sleep(0)
    assert not waiting.done()
    bus.publish_all([("A", {}), ("B", {})])
    assert numbers(await waiting) == [6, 7]
    bus.publish("A", {})
    await subscription.close()
    assert numbers(await subscription.some(3)) == [8]
    assert await subscription.some(3) == []


async def test_a_closed_bus_ends_every_subscription(bus: EventBus) -> None:
    early = bus.subscribe()
    bus.publish("A", {})
    await bus.close()
    async with asyncio.timeout(60):
        received = [[e async for e in one] for one in (early, bus.subscribe(), bus.subscribe(since=0))]
    assert list(map(numbers, received)) == [[1], [], [1]]


# --- many at once ------------------------------------------------------------------------------------


async def test_batches_are_numbered_and_share_a_time() -> None:
    told: list[Event] = []
    bus = EventBus(told.append)
    every, of_type, pattern = bus.subscribe(), bus.subscribe("B"), bus.subscribe("A*")
    bus.publish("A", {"x": 0})
    bus.publish_all([("B", {"x": 1}), ("A", {"x": [2]}), ("AB", {})], plugin="acme")
    bus.publish("B", {})
    seen = await rest(every)
    assert [(e.seq, e.type, e.payload, e.plugin) for e in seen] == [
        (1, "A", {"x": 0}, None),
        (2, "B", {"x": 1}, "acme"),
        (3, "A", {"x": [2]}, "acme"),
        (4, "AB", {}, "acme"),
        (5, "B", {}, None),
    ]
    assert told == seen, "an observer sees each event of a batch"
    assert len({e.time for e in seen[1:4]}) == 1
    assert (await ready(of_type), await ready(pattern)) == ([2, 5], [1, 3, 4])
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
        seen.seq = 7


WRONG: list[tuple[Any, str]] = [
    (("A", {"x": object()}), "the payload of A is not JSON: it has a object"),
    (("B", {"x": float("nan")}), "the payload of B is not JSON: nan is not finite"),
    (("A*", {}), "'A\\*' is no event type"),
    ((["A"], {}), "an event type is a text of 1 to 200 characters"),
    (("A", None), "the payload of A is not JSON"),
    (("A",), "an event is a pair of its type and its payload"),
    (None, "an event is a pair of its type and its payload"),
]


async def test_wrong_events_of_a_batch_are_left_out() -> None:
    with Failures() as failures:
        for wrong, message in WRONG:
            with failures.row(wrong):
                bus = EventBus()
                subscription = bus.subscribe()
                with pytest.raises(InvalidInput, match=message) as failure:
                    bus.publish_all([("A", {"x": 1}), wrong, ("A", {"x": 2}), ("A", {"x": {3}})], plugin="acme")
                assert failure.value.info.plugin == "acme"
                assert [(e.seq, e.payload) for e in await rest(subscription)] == [(1, {"x": 1}), (2, {"x": 2})]


async def test_what_gives_the_events_may_publish_or_fail(bus: EventBus) -> None:
    def some(error: Exception | None = None) -> Any:
        yield "A", {}
        if error is not None:
            raise error
        bus.publish("B", {})
        yield "A", {}

    subscription = bus.subscribe()
    with pytest.raises(LookupError, match="no more"):
        bus.publish_all(some(LookupError("no more")))
    assert bus.last_seq == 0
    bus.publish_all(some())
    assert [(e.seq, e.type) for e in await rest(subscription)] == [(1, "B"), (2, "A"), (3, "A")]


async def test_large_batches_reach_listeners_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEPT", 3)
    bus = EventBus()
    quick, slow = bus.subscribe(), bus.subscribe(limit=2)
    bus.publish_all([("A", {})] * 10)
    assert await ready(quick) == list(range(1, 11))
    assert await ready(slow) == [(1, 8), 9, 10]
    assert await ready(bus.subscribe(since=0)) == [(1, 7), 8, 9, 10]


# --- values ------------------------------------------------------------------------------------------


async def test_later_changes_of_a_payload_reach_nobody(bus: EventBus) -> None:
    payload: dict[str, Any] = {"list": [1], "deep": {"a": 1}, "pair": (True, None)}
    subscription = bus.subscribe()
    published = bus.publish("A", payload)
    payload["list"].append(2)
    payload["deep"]["b"] = 2
    published.payload["list"] = "changed"
    assert (await anext(subscription)).payload == {"list": [1], "deep": {"a": 1}, "pair": [True, None]}


async def test_readers_cannot_change_each_others_events(bus: EventBus) -> None:
    mine, its, page = bus.subscribe(copy=True), bus.subscribe(copy=True), bus.subscribe()
    bus.publish("A", {"list": [1, {"a": 1}]})
    changed: Any = await anext(mine)
    changed.payload["list"][1]["a"] = 2
    changed.payload["list"].append("x")
    changed.payload.clear()
    for other in (its, page, bus.subscribe(since=0)):
        assert (await anext(other)).payload == {"list": [1, {"a": 1}]}


class Colour(enum.StrEnum):
    RED = "red"


class Sly(str):
    def __len__(self) -> int:
        raise RuntimeError("you shall not measure me")


class Trap(dict[str, Any]):
    def items(self) -> Any:
        raise KeyError("gone")


async def test_derived_json_types_become_plain(bus: EventBus) -> None:
    values = [Colour.RED, Sly("sly"), enum.IntEnum("N", "ONE").ONE, OrderedDict(a=Colour.RED)]  # type: ignore[attr-defined]
    event = bus.publish("A", {"values": values, Colour.RED: 1})
    assert event.payload == {"values": ["red", "sly", 1, {"a": "red"}], "red": 1}
    assert [type(value) for value in event.payload["values"]] == [str, str, int, dict]


async def test_a_payload_that_is_no_json_is_refused(bus: EventBus) -> None:
    deep: Any = 1
    for _ in range(250):
        deep = [deep]
    endless: dict[str, Any] = {}
    endless["self"] = endless
    values = (object(), {1}, float("nan"), [float("inf")], b"b", [Path("a")], {1: 1}, deep, 1 << 99_999, Trap(a=1))
    subscription = bus.subscribe()
    with Failures() as failures:
        for payload in (*({"x": value} for value in values), endless, Trap(a=1), ["x"], None):
            with failures.row(type(payload)), pytest.raises(InvalidInput, match="the payload of A is not JSON"):
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


async def while_threads_work(bus: EventBus, work: Any, batch: list[tuple[str, Any]]) -> None:
    """Publish batches on the loop, no more than what is kept, while four threads work."""
    working = asyncio.create_task(asyncio.to_thread(in_threads, 4, work))
    while not working.done():
        if bus.last_seq < 2000:
            bus.publish_all(batch)
        await asyncio.sleep(0)
    await working
    await asyncio.sleep(0)


async def test_batches_from_threads_are_not_mixed_with_others(bus: EventBus) -> None:
    def batch(number: int) -> list[tuple[str, Any]]:
        return [("A", {"who": number, "place": place}) for place in range(10)]

    subscription = bus.subscribe()
    await while_threads_work(bus, lambda n: [bus.publish_all(batch(n)) for _ in range(50)], batch(9))
    seen = await rest(subscription)
    assert numbers(seen) == list(range(1, bus.last_seq + 1))
    for start in range(0, len(seen), 10):
        payloads = [e.payload for e in seen[start : start + 10]]
        assert payloads == [payload for _, payload in batch(payloads[0]["who"])]


async def test_concurrent_subscribers_miss_nothing_later(bus: EventBus) -> None:
    made: list[BusSubscription] = []

    def work(number: int) -> None:
        if number % 2:
            made.extend(bus.subscribe("A*", since=0, limit=10_000) for _ in range(30))
        else:
            publish(bus, 300)

    await while_threads_work(bus, work, [("A", {})])
    assert len(made) == 60
    for subscription in made:
        assert await ready(subscription) == list(range(1, bus.last_seq + 1))


async def test_a_blocked_loop_loses_events_with_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEPT", 5)
    bus = EventBus()
    every, one = bus.subscribe(), bus.subscribe("B")
    publish(bus, 1)
    in_threads(1, lambda _: publish(bus, 20))
    bus.publish("B", {})
    assert await ready(every) == [1, (2, 16), 17, 18, 19, 20, 21, 22]
    assert await ready(one) == [(2, 16), 22]


async def test_a_threads_event_arrives_once(bus: EventBus) -> None:
    in_threads(1, lambda _: bus.publish("A", {}))
    replayed, fresh = bus.subscribe(since=0), bus.subscribe()
    await asyncio.sleep(0)
    assert (await ready(replayed), await ready(fresh)) == ([1], [])


async def test_threads_may_publish_after_the_loop() -> None:
    made: list[EventBus] = []

    async def make() -> None:
        made.append(EventBus())

    await asyncio.to_thread(in_threads, 1, lambda _: asyncio.run(make()))
    assert made[0].publish("A", {}).seq == 1


# --- what a permission covers ------------------------------------------------------------------------


COVERED = [("A", "A"), ("X NODE_*", "NODE_ERROR"), ("NODE_*", "NODE_*"), ("NODE_*", "NODE_E*"), ("NODE_*", "NODE_")]
COVERED += [("*", "*"), ("*", "NODE_*"), ("*", "anything"), ("acme.*", "acme.a.b")]
WIDER = [("", "A"), ("", "*"), ("A", "A*"), ("A AB", "A*"), ("NODE_*", "NODE*"), ("NODE_*", "*"), ("NODE_*", "NODE")]
WIDER += [("NODE_*", "node_error"), ("A", "AB"), ("AB", "A"), ("A* B*", "*")]


def test_a_granted_pattern_covers_nothing_wider() -> None:
    assert [row for row in COVERED if not covers(row[0].split(), row[1])] == []
    assert [row for row in WIDER if covers(row[0].split(), row[1])] == []


@given(st.lists(st.text("AB*", max_size=3), max_size=3), st.text("AB", max_size=3), st.text("AB", max_size=3))
def test_covered_types_match_a_granted_pattern(granted: list[str], wanted: str, more: str) -> None:
    patterns = [g for g in granted if "*" not in g[:-1]]

    def matched(type: str) -> bool:
        return any(type.startswith(p[:-1]) if p.endswith("*") else type == p for p in patterns)

    assert covers(patterns, wanted) == matched(wanted)
    if covers(patterns, f"{wanted}*"):
        assert matched(wanted + more)


class Liar(str):
    def startswith(self, *_: Any) -> bool:
        return True

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = str.__hash__


def test_own_event_types_begin_with_the_name() -> None:
    assert is_own("acme", "acme.done") and is_own("acme", "acme.*")
    foreign: list[Any] = ["acme", "acme*", "acme-two.done", "*", "ACME.done", "x.acme.done"]
    lies: list[Any] = [Liar("NODE_ERROR"), 7, None, ["acme.x"]]
    assert [wanted for wanted in (*foreign, *lies) if is_own("acme", wanted)] == []
    assert [wanted for wanted in lies if covers(["AGENT_*", "HELLO"], wanted)] == []


# --- through a plugin's context ----------------------------------------------------------------------


async def test_forbidden_events_of_a_batch_are_left_out(tmp_path: Path) -> None:
    allowed = {"events": {"publish": ["HELLO"], "subscribe": ["HELLO"]}}
    async with host_with(tmp_path / "p", contextual(tmp_path, permissions=allowed), trust=[]) as host:
        await host.grant("acme")
        context = context_of()
        listening = host.events.subscribe("HELLO", "acme.*", "OTHER")
        for _ in range(2):  # what it may do is remembered, what it may not do is not
            batch = [("HELLO", {"a": 1}), ("OTHER", {}), ("acme.done", {"a": 2}), ("OTHER", {})]
            with pytest.raises(PermissionDenied, match="acme may not publish OTHER events") as denied:
                context.events.publish_all(batch)
            assert denied.value.info.details["permission"] == "events.publish:OTHER"
        context.events.publish_all([("HELLO", {"a": 3})])
        subscription = context.events.subscribe("acme.*")
        await subscription.close()
        assert "subscription" not in host.plugin("acme").contributions, "closed ones are not owned"
        await host.revoke("acme")
        with pytest.raises(PermissionDenied, match="acme is not loaded any more"):
            context.events.publish_all([("HELLO", {"a": 4})])
        seen = await rest(listening)
        assert [(e.payload["a"], e.plugin) for e in seen] == [(n, "acme") for n in (1, 2, 1, 2, 3)]


@pytest.mark.parametrize("count", [THIN_AT // 2 - 1, 5 * THIN_AT])
async def test_a_slow_reader_gets_the_newest_of_each_state(bus: EventBus, count: int) -> None:
    slow, plain = bus.subscribe(limit=100_000), bus.subscribe(limit=100_000)
    slow.state_of = lambda type, payload: payload["node"] if type == "PROGRESS" else None
    for number in range(count):
        bus.publish_all([("PROGRESS", {"node": number % 3, "number": number}), ("STATUS", {"number": number})])
    every, told = await rest(plain), await rest(slow)
    assert (len(every), slow._bytes) == (2 * count, 0)
    assert [e.payload["number"] for e in told if e.type == "STATUS"] == list(range(count))
    assert numbers(told) == sorted(numbers(told))
    progress = {e.payload["node"]: e.payload["number"] for e in told if e.type == "PROGRESS"}
    assert progress == {number % 3: number for number in range(count - 3, count)}
    assert (len(told) < len(every)) is (2 * count >= THIN_AT)
