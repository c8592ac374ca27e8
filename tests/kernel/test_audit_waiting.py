"""Waiting until an entry of the audit log is on disk: shared by all who wait, and refused where it cannot be."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.audit_logs import kept_locked, tail, unwritable, verify

from tavern_host.audit import log as audit
from tavern_host.audit.log import AuditLog
from tavern_host.contracts.audit import AuditCheck
from tavern_host.contracts.errors import ServiceUnavailable


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often the disk is told to keep something."""
    found: list[int] = []
    real = os.fsync

    def fsync(file: int) -> None:
        found.append(file)
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def recorded(log: AuditLog, number: int | None = None) -> int:
    return log.record("thing.done", actor="system:host", details={"n": number})


def numbers(log: AuditLog) -> list[Any]:
    return [entry.details.get("n") for entry in tail(log.path, 100_000)]


async def test_awaited_entries_are_on_disk_in_order(log: AuditLog) -> None:
    for number in range(10):
        last = recorded(log, number)
    await log.written(last)
    await log.written(last)  # once more is no waiting
    await log.written()
    assert numbers(log) == list(range(10))
    assert verify(log.path, log.anchor) == AuditCheck(entries=10)


async def test_concurrent_waiters_share_the_flushes(log: AuditLog, flushes: list[int]) -> None:
    async def one(number: int) -> None:
        await log.written(recorded(log, number))

    await asyncio.gather(*(one(number) for number in range(100)))
    assert sorted(numbers(log)) == list(range(100))
    assert len(flushes) < 20  # the anchor's, once for each batch


async def test_a_slow_disk_leaves_the_loop_running(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    release, began = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    real = os.fsync

    def slow(file: int) -> None:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        real(file)

    monkeypatch.setattr(os, "fsync", slow)
    waiting = asyncio.create_task(log.written(recorded(log)))
    await began.wait()
    assert not waiting.done()
    release.set()
    await waiting
    assert len(numbers(log)) == 1


async def at_next_attempt(log: AuditLog, number: int) -> None:
    """Wait until an entry is on disk, or the next attempt to write it fails, which is made at once."""
    waiting = asyncio.create_task(log.written(number))
    await asyncio.sleep(0)
    await asyncio.to_thread(log.flush)
    await waiting


async def test_unwritable_entries_are_refused_and_retried(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    mend = unwritable(log)
    for _ in range(2):
        with pytest.raises(ServiceUnavailable, match="audit.sqlite3 cannot be written: File exists"):
            await at_next_attempt(log, recorded(log))
    lost = recorded(log)
    await log.close()
    mend()
    await at_next_attempt(log, recorded(log))
    with pytest.raises(ServiceUnavailable, match="took no more entries"):
        await log.written(lost)
    assert len(numbers(log)) == 2, "the last, and how many were lost by closing"
    monkeypatch.setattr(audit, "MAX_PENDING", 100)
    number = recorded(log)
    assert number == 0, "without room they are refused at once"
    with pytest.raises(ServiceUnavailable, match="took no more entries"):
        await log.written(number)


async def test_what_could_not_be_committed_is_refused(log: AuditLog) -> None:
    recorded(log, 0)
    with kept_locked(log):
        number = recorded(log, 1)
        for _ in range(2):
            with pytest.raises(ServiceUnavailable, match="cannot be written: another process did not release it"):
                await at_next_attempt(log, number)
        assert numbers(log) == [0]
    await at_next_attempt(log, number)
    assert numbers(log) == [0, 1]


async def test_cancelling_one_waiter_leaves_the_others(log: AuditLog) -> None:
    numbers_of = [recorded(log, n) for n in range(3)]
    waiting = [asyncio.create_task(log.written(number)) for number in numbers_of]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.gather(waiting[0], waiting[2])
    assert numbers(log) == [0, 1, 2]


async def test_waiters_are_answered_while_closing(log: AuditLog) -> None:
    waiting = asyncio.create_task(log.written(recorded(log)))
    await asyncio.gather(log.close(), waiting)
    again = recorded(log)
    await asyncio.gather(log.written(again), log.close())
    assert len(numbers(log)) == 2


def test_a_closed_loop_does_not_stop_writing(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.sqlite3")

    async def give_up() -> None:
        waiting = asyncio.create_task(log.written(recorded(log)))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(give_up())
    log.flush()
    assert len(numbers(log)) == 1
    asyncio.run(log.close())
