"""How the parts of a graph are carried out: in order, with few tasks, fairly, and stopped at once."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable

import pytest

from tavern_engine.drain import SLICE, Drain


def drain(
    count: int,
    links: list[tuple[int, int]],
    execute: Callable[[int], Awaitable[bool]],
    skipped: list[int] | None = None,
) -> Drain:
    followers: list[list[int]] = [[] for _ in range(count)]
    waiting_for = [0] * count
    for source, target in links:
        followers[source].append(target)
        waiting_for[target] += 1
    return Drain(waiting_for, followers, execute, (skipped if skipped is not None else []).append)


async def test_every_part_runs_once_and_after_those_before_it() -> None:
    done: list[int] = []

    async def execute(part: int) -> bool:
        await asyncio.sleep(0.001 * (5 - part))
        done.append(part)
        return True

    await drain(5, [(0, 2), (1, 2), (2, 3), (0, 4)], execute).run()

    assert sorted(done) == [0, 1, 2, 3, 4]
    assert done.index(2) > max(done.index(0), done.index(1)) and done.index(3) > done.index(2)


async def test_parts_that_do_not_suspend_share_one_task() -> None:
    tasks = set()

    async def execute(part: int) -> bool:
        tasks.add(asyncio.current_task())
        return True

    await drain(200, [(0, i) for i in range(1, 200)], execute).run()

    assert len(tasks) == 1


async def test_parts_that_suspend_run_at_the_same_time() -> None:
    barrier = asyncio.Barrier(300)

    async def execute(part: int) -> bool:
        async with asyncio.timeout(5):
            await barrier.wait()
        return True

    await drain(300, [], execute).run()

    assert not barrier.broken


async def test_a_chain_of_fifty_thousand_parts_needs_no_recursion() -> None:
    count = 50_000
    ran = 0

    async def execute(part: int) -> bool:
        nonlocal ran
        ran += 1
        return True

    await drain(count, [(i, i + 1) for i in range(count - 1)], execute).run()

    assert ran == count


async def test_a_failure_at_the_head_of_a_long_chain_skips_it_without_recursion() -> None:
    count = 50_000
    skipped: list[int] = []

    async def execute(part: int) -> bool:
        return False

    await drain(count, [(i, i + 1) for i in range(count - 1)], execute, skipped).run()

    assert skipped == list(range(1, count))


async def test_a_part_after_a_failure_is_skipped_once_even_if_others_before_it_succeed() -> None:
    ran: list[int] = []
    skipped: list[int] = []

    async def execute(part: int) -> bool:
        await asyncio.sleep(0.01 if part == 1 else 0)
        ran.append(part)
        return part != 0

    await drain(4, [(0, 2), (1, 2), (2, 3), (0, 3)], execute, skipped).run()

    assert (ran, skipped) == ([0, 1], [2, 3])


async def test_asyncio_timeouts_and_task_groups_inside_of_a_part_concern_that_part_alone() -> None:
    outcomes = {}

    async def execute(part: int) -> bool:
        try:
            async with asyncio.timeout(0.01 if part == 0 else 5), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(1 if part == 0 else 0))
        except TimeoutError:
            outcomes[part] = "timeout"
        else:
            outcomes[part] = "done"
        return True

    await drain(5, [], execute).run()

    assert outcomes == {0: "timeout", 1: "done", 2: "done", 3: "done", 4: "done"}


async def test_context_variables_and_cancellations_of_a_part_do_not_reach_the_next() -> None:
    colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
    colour.set("outer")
    seen = []

    async def execute(part: int) -> bool:
        seen.append(colour.get())
        colour.set("inner")
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return True

    await drain(4, [(0, 1), (1, 2)], execute).run()

    assert seen == ["outer"] * 4


async def test_a_cancellation_that_a_part_left_behind_does_not_hold_up_the_rest() -> None:
    done = []

    async def execute(part: int) -> bool:
        task = asyncio.current_task()
        assert task is not None
        if part == 0:
            asyncio.get_running_loop().call_soon(task.cancel)
            time.sleep(2 * SLICE)  # noqa: ASYNC251  # so that the worker gives way before the next part
        done.append(part)
        return True

    async with asyncio.timeout(5):
        await drain(3, [(0, 1), (1, 2)], execute).run()

    assert done == [0, 1, 2]


async def test_stop_cancels_all_that_runs_and_begins_nothing() -> None:
    began: list[int] = []
    cancelled: list[int] = []

    async def execute(part: int) -> bool:
        began.append(part)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(part)
            raise
        return True

    running = drain(4, [(0, 3)], execute)
    task = asyncio.create_task(running.run())
    while len(began) < 3:  # nothing else happens in between
        await asyncio.sleep(0)
    running.stop()
    await task

    assert sorted(began) == sorted(cancelled) == [0, 1, 2]
    assert not running.stragglers


async def test_cancelling_the_run_cancels_its_parts() -> None:
    cancelled = asyncio.Event()

    async def execute(part: int) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return True

    task = asyncio.create_task(drain(1, [], execute).run())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert cancelled.is_set()


async def test_a_part_that_ignores_its_cancellation_is_left_behind() -> None:
    released = asyncio.Event()

    async def execute(part: int) -> bool:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return True

    running = drain(1, [], execute)
    task = asyncio.create_task(running.run())
    await asyncio.sleep(0.01)
    running.stop()
    await task

    (straggler,) = running.stragglers
    released.set()
    await straggler
    assert not running.stragglers


async def test_a_mistake_in_execute_ends_the_run_with_that_error() -> None:
    async def execute(part: int) -> bool:
        raise LookupError("a mistake of ours")

    with pytest.raises(LookupError, match="a mistake of ours"):
        await drain(3, [(0, 1)], execute).run()


async def test_nothing_to_do_is_done_at_once() -> None:
    async def execute(part: int) -> bool:
        raise AssertionError

    await drain(0, [], execute).run()


async def test_a_drain_that_was_stopped_before_it_ran_does_nothing() -> None:
    async def execute(part: int) -> bool:
        raise AssertionError

    early = drain(3, [], execute)
    early.stop()
    await early.run()
