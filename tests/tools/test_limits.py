"""How often tools may be called, how many calls of one run at a time, and which results are given again."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any

import pytest
from helpers.held_time import HeldClock
from helpers.repetition import Failures
from helpers.waiting import until_idle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tavern_host.contracts.calls import Principal
from tavern_host.contracts.tools import ToolCaching, ToolDefinition, ToolImplementation, ToolRate
from tavern_tools.api.toolcalls import ContentPart, ToolError, ToolErrorType, ToolResult
from tavern_tools.calls import limits as module
from tavern_tools.calls.limits import Limits
from tavern_tools.calls.result_cache import ResultCache
from tavern_tools.catalog.catalog import Tool

WRITER, READER = Principal(kind="agent", id="writer"), Principal(kind="agent", id="reader")


def tool(tool_id: str = "kb:Query", **more: Any) -> Tool:
    node = ToolImplementation(kind="node", node_type="a:b")
    return Tool(ToolDefinition(id=tool_id, implementation=node, **more))


def rated(calls: int, seconds: float = 10, tool_id: str = "kb:Query") -> Tool:
    return tool(tool_id, rate_limit=ToolRate(calls=calls, seconds=seconds))


# --- rates --------------------------------------------------------------------------------------------

ADMITTED: Any = [
    # the calls and seconds of a rate; by how much the clock moved, and how long the next call has to wait
    ((2, 10), [(0, None), (4, None), (1, 5.0), (5, None), (0, 4.0)]),
    ((1, 10), [(0, None), (5, 5.0), (1e6, None)]),
]


def test_rates_admit_so_many_in_a_time(held_clock: HeldClock) -> None:
    with Failures() as failures:
        for (calls, seconds), steps in ADMITTED:
            with failures.row(steps):
                limits, limited = Limits(), rated(calls, seconds)
                for moved, wait in steps:
                    held_clock.advance(moved)
                    assert limits.admit(limited, WRITER) == wait
    assert [Limits().admit(tool(), WRITER) for _ in range(1000)] == [None] * 1000


def test_principals_and_tools_have_rates_of_their_own() -> None:
    limits = Limits()
    for who, tool_id in ((WRITER, "a"), (READER, "a"), (Principal(kind="user", id="writer"), "a"), (WRITER, "b")):
        assert limits.admit(rated(1, tool_id=tool_id), who) is None
    assert limits.admit(rated(1, tool_id="a"), WRITER) == 10.0
    assert limits.admit(rated(2, tool_id="a"), WRITER) is None  # a rate that was changed holds for what was counted
    assert limits.admit(rated(1, tool_id="a"), WRITER) == 10.0


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])  # the clock only goes on
@given(
    most=st.integers(1, 1000),
    steps=st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=300),
    burst=st.integers(1, 8),
)
def test_no_window_admits_more_and_waiting_suffices(
    held_clock: HeldClock, most: int, steps: list[float], burst: int
) -> None:
    limits, seconds = Limits(), 10.0
    limited = rated(most, seconds)
    admitted: list[float] = []
    for step in steps:
        held_clock.advance(step)
        for _ in range(burst):
            wait = limits.admit(limited, WRITER)
            if wait is not None:
                assert 0 < wait <= seconds + 0.001
                held_clock.advance(wait)
                assert limits.admit(limited, WRITER) is None
            admitted.append(held_clock.monotonic())
    for index in range(len(admitted) - most):
        assert admitted[index + most] - admitted[index] >= seconds - 1e-6


def test_large_rates_and_crowds_take_little_memory(held_clock: HeldClock, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, limited = Limits(), rated(20_000, 60)
    for _ in range(20_000):
        assert limits.admit(limited, WRITER) is None
        held_clock.advance(0.0001)
    assert limits.admit(limited, WRITER) is not None
    (window,) = limits._windows.values()
    assert len(window._moments) <= module.MAX_MOMENTS + 1

    monkeypatch.setattr(module, "MAX_WINDOWS", 100)
    limits, limited = Limits(), rated(3, 10)
    assert limits.admit(limited, WRITER) is None
    admitted = sum(limits.admit(limited, Principal(kind="agent", id=str(n))) is None for n in range(5_000))
    assert admitted == 99 + 3
    assert len(limits._windows) <= 101
    assert limits.admit(limited, WRITER) is None  # the crowd keeps nobody else's place
    held_clock.advance(11)
    assert all(limits.admit(limited, Principal(kind="agent", id=f"new{n}")) is None for n in range(50))


# --- turns --------------------------------------------------------------------------------------------


async def test_no_more_run_at_once_in_their_order() -> None:
    limits, limited = Limits(), tool(concurrency=2)
    running: set[int] = set()
    order: list[tuple[int, int]] = []

    async def one(number: int) -> None:
        async with limits.turn(limited):
            running.add(number)
            order.append((number, len(running)))
            await asyncio.sleep(0)
            running.remove(number)

    await asyncio.gather(*(one(number) for number in range(50)))
    assert [number for number, _ in order] == list(range(50))
    assert max(at_once for _, at_once in order) == 2


async def test_turns_are_given_back_and_nested_ones_do_not_wait() -> None:
    limits, limited, other = Limits(), tool(concurrency=1), tool("kb:Other", concurrency=1)
    with pytest.raises(ValueError, match="x"):
        async with limits.turn(limited):
            raise ValueError("x")

    async def hold() -> None:
        async with limits.turn(limited):
            await asyncio.Event().wait()

    holding, waiting = asyncio.create_task(hold()), asyncio.create_task(hold())
    for task in (holding, waiting):
        await until_idle()
        task.cancel()
    await asyncio.gather(holding, waiting, return_exceptions=True)
    async with asyncio.timeout(60), limits.turn(limited), limits.turn(other), limits.turn(limited):
        pass  # a call that a tool makes of itself does not wait for ever
    async with asyncio.timeout(60), limits.turn(limited), limits.turn(other):
        pass


async def test_who_stops_waiting_takes_nobodys_turn() -> None:
    limits, limited = Limits(), tool(concurrency=1)
    done: list[int] = []

    async def one(number: int) -> None:
        async with limits.turn(limited):
            done.append(number)

    async with limits.turn(limited):
        tasks = [asyncio.create_task(one(number), context=Context()) for number in range(5)]
        await until_idle()
        tasks[0].cancel()
        tasks[2].cancel()
    tasks[1].cancel()  # it has just been given its turn
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == [3, 4]
    async with asyncio.timeout(60), limits.turn(limited):
        pass


async def test_a_task_left_behind_waits_like_others() -> None:
    limits, limited = Limits(), tool(concurrency=1)
    go, entered = asyncio.Event(), asyncio.Event()

    async def later() -> None:
        await go.wait()
        async with limits.turn(limited):
            entered.set()

    async with limits.turn(limited):
        left = asyncio.create_task(later())
    async with limits.turn(limited):
        go.set()
        await until_idle()
        assert not entered.is_set()
    await left
    assert entered.is_set()


async def test_a_changed_limit_holds_for_who_waits() -> None:
    limits, stop = Limits(), asyncio.Event()
    entered: list[int] = []

    async def one(number: int) -> None:
        async with limits.turn(tool(concurrency=1)):
            entered.append(number)
            await stop.wait()

    tasks = [asyncio.create_task(one(number)) for number in range(4)]
    await until_idle()
    assert entered == [0]
    limits.turn(tool(concurrency=3))
    await until_idle()
    assert entered == [0, 1, 2]
    stop.set()
    await asyncio.gather(*tasks)


# --- results that are given again ----------------------------------------------------------------------


def cached(seconds: float = 60, **more: Any) -> Tool:
    shared = more.pop("shared", False)
    return tool(cache=ToolCaching(seconds=seconds, shared=shared), **more)


def done(structured: Any = None, **more: Any) -> ToolResult:
    return ToolResult(**{"tool_id": "kb:Query", "status": "done", "structured": structured, **more})


class Kept:
    """A cache and the revision of the settings."""

    def __init__(self, max_bytes: int = 1_000_000) -> None:
        self.settings = 0
        self.cache = ResultCache(lambda: self.settings, max_bytes)

    def key(self, tool: Tool, arguments: Any = None, principal: Principal = WRITER) -> bytes:
        key = self.cache.key(tool, arguments or {}, principal)
        assert key is not None
        return key

    def put(self, tool: Tool, result: ToolResult, arguments: Any = None) -> bytes:
        key = self.key(tool, arguments)
        self.cache.put(key, tool, result)
        return key


def test_results_are_given_again_while_they_hold(held_clock: HeldClock) -> None:
    kept, query = Kept(), cached(10)
    kept.put(query, done([1]), {"a": 1, "b": {"c": 2, "d": 3}})
    key = kept.key(query, {"b": {"d": 3, "c": 2}, "a": 1})
    held_clock.advance(9.75)
    again = kept.cache.get(key)
    assert (again.structured, again.cached) == ([1], True)
    held_clock.advance(0.25)
    assert kept.cache.get(key) is None
    kept.put(query, done([1]))
    kept.settings += 1  # no result outlives a change of settings
    assert kept.cache.get(kept.key(query)) is None


OTHERS: Any = [
    *(({"a": 1}, {"a": 2}), ({"a": 1}, {"a": "1"}), ({"a": 1}, {"a": True}), ({"a": 1}, {"a": 1.0}), ({}, {"a": None})),
    *(({"a": "é"}, {"a": "e\u0301"}), ({"a": "\ud800"}, {"a": "?"}), ({"a": [1, 2]}, {"a": [2, 1]})),
]


def test_other_arguments_callers_or_tools_are_other_calls() -> None:
    kept, own, shared = Kept(), cached(), cached(shared=True)
    for one, other in OTHERS:
        assert kept.key(own, one) != kept.key(own, other), (one, other)
    assert len({kept.key(own, {}, who) for who in (WRITER, READER, Principal(kind="user", id="writer"))}) == 3
    assert kept.key(shared, {}, WRITER) == kept.key(shared, {}, READER)
    assert len({kept.key(own), kept.key(own), kept.key(cached()), kept.key(cached(version="2"))}) == 3


def test_what_cannot_be_given_again_is_not_kept() -> None:
    kept, asked_once = Kept(), tool()
    assert kept.cache.key(asked_once, {}, WRITER) is None
    kept.cache.put(b"key", asked_once, done())
    assert kept.cache.get(b"key") is None
    error = ToolError(type=ToolErrorType.TIMEOUT, message="x", tool_id="a")
    with Failures() as failures:
        for result in (
            *(done(status="error", error=error), done(status="pending", task_id="t"), done(1, cached=True)),
            *(done(status="awaiting_approval", task_id="t"), done("x" * 600_000)),
            done(content=[ContentPart(type="text", text="x"), ContentPart(type="stream", uri="stream_1")]),
        ):
            with failures.row(result.status):
                assert kept.cache.get(kept.put(cached(), result)) is None
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for odd in (object(), {1, 2}, b"x", deep):
        assert kept.cache.key(cached(), {"a": odd}, WRITER) is None


def test_nobody_changes_what_others_are_given() -> None:
    kept, value = Kept(), {"deep": [1]}
    told = {"index": 3, "block": 2, "request_id": "r", "coercions": ["c"], "warnings": ["w"], "attempts": 4}
    key = kept.put(cached(), done(value, content=[ContentPart(type="data", data=value)], duration_ms=9.5, **told))
    value["deep"].append(2)
    first: Any = kept.cache.get(key)
    first.structured["deep"] = None
    second = kept.cache.get(key)
    assert second == done({"deep": [1]}, content=[ContentPart(type="data", data={"deep": [1]})], cached=True)


def test_memory_is_bounded_and_the_longest_unused_goes() -> None:
    kept, query = Kept(max_bytes=10_000), cached()
    keys = [kept.put(query, done("x" * 1000), {"n": n}) for n in range(5)]
    assert kept.cache.get(keys[0]) is not None
    keys += [kept.put(query, done("x" * 1000), {"n": n}) for n in range(5, 8)]
    left = [index for index, key in enumerate(keys) if kept.cache.get(key) is not None]
    assert 0 in left
    assert 1 not in left
    assert 7 in left
    kept = Kept(max_bytes=100_000)
    for number in range(1000):
        kept.put(cached(), done("x" * 100), {"n": number})
        kept.put(query, done(1))
    assert len(kept.cache._entries) < 200
    assert kept.cache._entries.currsize == sum(entry.size for entry in kept.cache._entries.values()) <= 100_000
