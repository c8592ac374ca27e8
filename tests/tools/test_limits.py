"""How often tools may be called, and how many calls of one go on at a time."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from contextvars import Context

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tavern_host.contracts.calls import Principal
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation, ToolRate
from tavern_tools.calls import limits as module
from tavern_tools.calls.limits import Limits
from tavern_tools.catalog.catalog import Tool

WRITER, READER = Principal(kind="agent", id="writer"), Principal(kind="agent", id="reader")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def rated(calls: int, seconds: float, tool_id: str = "kb:Query") -> Tool:
    node = ToolImplementation(kind="node", node_type="a:b")
    return Tool(ToolDefinition(id=tool_id, implementation=node, rate_limit=ToolRate(calls=calls, seconds=seconds)))


def narrow(concurrency: int | None, tool_id: str = "kb:Query") -> Tool:
    node = ToolImplementation(kind="node", node_type="a:b")
    return Tool(ToolDefinition(id=tool_id, implementation=node, concurrency=concurrency))


# --- rates --------------------------------------------------------------------------------------------


def test_so_many_calls_are_admitted_in_so_many_seconds_and_then_it_is_told_when_to_come_again() -> None:
    clock = Clock()
    limits, tool = Limits(clock), rated(2, 10)
    assert limits.admit(tool, WRITER) is None
    clock.now += 4
    assert limits.admit(tool, WRITER) is None
    clock.now += 1
    assert limits.admit(tool, WRITER) == 5.0
    clock.now += 5
    assert limits.admit(tool, WRITER) is None
    assert limits.admit(tool, WRITER) == 4.0


def test_a_tool_without_a_rate_is_always_admitted() -> None:
    limits = Limits()
    assert [limits.admit(narrow(None), WRITER) for _ in range(1000)] == [None] * 1000


def test_each_principal_and_each_tool_has_its_own_rate() -> None:
    limits = Limits(Clock())
    assert limits.admit(rated(1, 10), WRITER) is None
    assert limits.admit(rated(1, 10), READER) is None
    assert limits.admit(rated(1, 10), Principal(kind="user", id="writer")) is None
    assert limits.admit(rated(1, 10, "kb:Other"), WRITER) is None
    assert limits.admit(rated(1, 10), WRITER) == 10.0


def test_a_rate_that_was_changed_holds_at_once_for_what_was_counted() -> None:
    limits = Limits(Clock())
    assert limits.admit(rated(5, 10), WRITER) is None
    assert limits.admit(rated(1, 10), WRITER) == 10.0
    assert limits.admit(rated(2, 10), WRITER) is None


def test_a_clock_that_jumps_back_stands_still_and_gives_nothing_away() -> None:
    clock = Clock()
    limits, tool = Limits(clock), rated(1, 10)
    assert limits.admit(tool, WRITER) is None
    clock.now -= 500
    assert limits.admit(tool, WRITER) == 10.0
    clock.now += 505
    assert limits.admit(tool, WRITER) == 5.0
    clock.now += 1e9
    assert limits.admit(tool, WRITER) is None


@settings(deadline=None)
@given(
    most=st.integers(1, 1000),
    steps=st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=300),
    burst=st.integers(1, 8),
)
def test_never_more_are_admitted_in_any_window_and_waiting_is_enough(most: int, steps: list[float], burst: int) -> None:
    clock, seconds = Clock(), 10.0
    limits, tool = Limits(clock), rated(most, seconds)
    admitted: list[float] = []
    for step in steps:
        clock.now += step
        for _ in range(burst):
            wait = limits.admit(tool, WRITER)
            if wait is not None:
                assert 0 < wait <= seconds + 0.001
                clock.now += wait
                assert limits.admit(tool, WRITER) is None
            admitted.append(clock.now)
    for index in range(len(admitted) - most):
        assert admitted[index + most] - admitted[index] >= seconds - 1e-6


def test_large_rates_take_little_memory() -> None:
    clock = Clock()
    limits, tool = Limits(clock), rated(100_000, 60)
    for _ in range(100_000):
        assert limits.admit(tool, WRITER) is None
        clock.now += 0.0001
    assert limits.admit(tool, WRITER) is not None
    (window,) = limits._windows.values()
    assert len(window._moments) <= module.MAX_MOMENTS + 1


def test_a_crowd_of_principals_is_counted_together_and_keeps_nobody_elses_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_WINDOWS", 100)
    clock = Clock()
    limits, tool = Limits(clock), rated(3, 10)
    assert limits.admit(tool, WRITER) is None
    admitted = sum(limits.admit(tool, Principal(kind="agent", id=str(n))) is None for n in range(100_000))
    assert admitted == 99 + 3
    assert len(limits._windows) <= 101
    assert limits.admit(tool, WRITER) is None
    clock.now += 11
    assert all(limits.admit(tool, Principal(kind="agent", id=f"new{n}")) is None for n in range(50))


# --- turns --------------------------------------------------------------------------------------------


def turn(limits: Limits, tool: Tool) -> AbstractAsyncContextManager[None]:
    return limits.turn(tool)


async def test_calls_of_a_tool_without_a_limit_do_not_wait() -> None:
    limits, tool = Limits(), narrow(None)
    async with asyncio.timeout(60), limits.turn(tool), limits.turn(tool), limits.turn(tool):
        pass


async def until_all_wait() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_no_more_go_on_at_once_and_whoever_came_first_is_first() -> None:
    limits, tool = Limits(), narrow(2)
    going: set[int] = set()
    order: list[int] = []
    most = 0

    async def one(number: int) -> None:
        nonlocal most
        async with turn(limits, tool):
            order.append(number)
            going.add(number)
            most = max(most, len(going))
            await asyncio.sleep(0)
            going.remove(number)

    await asyncio.gather(*(one(number) for number in range(50)))
    assert most == 2
    assert order == list(range(50))


async def test_a_turn_is_given_back_when_the_call_fails_or_is_cancelled() -> None:
    limits, tool = Limits(), narrow(1)
    with pytest.raises(ValueError, match="x"):
        async with turn(limits, tool):
            raise ValueError("x")

    async def hold() -> None:
        async with turn(limits, tool):
            await asyncio.Event().wait()

    holding, waiting = asyncio.create_task(hold()), asyncio.create_task(hold())
    await until_all_wait()
    holding.cancel()
    await until_all_wait()
    waiting.cancel()
    await asyncio.gather(holding, waiting, return_exceptions=True)
    async with asyncio.timeout(60), turn(limits, tool):
        pass


async def test_whoever_stops_waiting_takes_nobodys_turn() -> None:
    limits, tool = Limits(), narrow(1)
    done: list[int] = []

    async def one(number: int) -> None:
        async with turn(limits, tool):
            done.append(number)

    async with turn(limits, tool):
        tasks = [asyncio.create_task(one(number), context=Context()) for number in range(5)]
        await until_all_wait()
        tasks[0].cancel()
        tasks[2].cancel()
    tasks[1].cancel()  # it has just been given its turn
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == [3, 4]
    async with asyncio.timeout(60), turn(limits, tool):
        pass


async def test_a_call_that_a_tool_makes_of_itself_does_not_wait_for_ever() -> None:
    limits, tool, other = Limits(), narrow(1), narrow(1, "kb:Other")
    async with asyncio.timeout(60), turn(limits, tool), turn(limits, other), turn(limits, tool):
        pass
    async with asyncio.timeout(60), turn(limits, tool), turn(limits, other):
        pass


async def test_a_task_that_a_call_left_behind_waits_like_others() -> None:
    limits, tool = Limits(), narrow(1)
    entered: list[str] = []

    async def later(go: asyncio.Event) -> None:
        await go.wait()
        async with turn(limits, tool):
            entered.append("left behind")

    go = asyncio.Event()
    async with turn(limits, tool):
        left = asyncio.create_task(later(go))
    async with turn(limits, tool):
        go.set()
        await until_all_wait()
        assert entered == []
    await left
    assert entered == ["left behind"]


async def test_a_limit_that_was_changed_holds_for_those_who_wait() -> None:
    limits = Limits()
    entered: list[int] = []
    stop = asyncio.Event()

    async def one(number: int) -> None:
        async with turn(limits, narrow(1)):
            entered.append(number)
            await stop.wait()

    tasks = [asyncio.create_task(one(number)) for number in range(4)]
    await until_all_wait()
    assert entered == [0]
    turn(limits, narrow(3))
    await until_all_wait()
    assert entered == [0, 1, 2]
    stop.set()
    await asyncio.gather(*tasks)
