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


def numbers(log: AuditLog) -> list[Any]:
    return [entry.details.get("n") for entry in tail(log.path, 100_000)]


async def test_awaited_entries_are_on_disk_in_order(log: AuditLog) -> None:
    for number in range(10):
        last = log.record("thing.done", actor="system:host", details={"n": number})
    await log.written(last)
    await log.written(last)  # once more is no waiting
    await log.written()
    assert numbers(log) == list(range(10))
    assert verify(log.path, log.anchor) == AuditCheck(entries=10)


async def test_concurrent_waiters_share_the_flushes(log: AuditLog, flushes: list[int]) -> None:
    async def one(number: int) -> None:
        await log.written(log.record("thing.done", actor="system:host", details={"n": number}))

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
    waiting = asyncio.create_task(log.written(log.record("thing.done", actor="system:host")))
    await began.wait()
    assert not waiting.done()
    release.set()
    await waiting
    assert len(numbers(log)) == 1


async def test_unwritable_entries_are_refused_and_retried(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "RETRY", 0.01)
    mend = unwritable(log)
    for _ in range(2):
        with pytest.raises(ServiceUnavailable, match="audit.sqlite3 cannot be written: File exists"):
            await log.written(log.record("thing.done", actor="system:host"))
    mend()
    await log.written(log.record("thing.done", actor="system:host"))
    assert len(numbers(log)) == 3


async def test_what_could_not_be_committed_is_refused(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "RETRY", 0.01)
    log.record("thing.done", actor="system:host", details={"n": 0})
    with kept_locked(log):
        number = log.record("thing.done", actor="system:host", details={"n": 1})
        for _ in range(2):
            with pytest.raises(ServiceUnavailable, match="cannot be written: another process did not release it"):
                await log.written(number)
        assert numbers(log) == [0]
    await log.written(number)
    assert numbers(log) == [0, 1]


async def test_entries_without_room_are_refused_at_once(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_PENDING", 100)
    number = log.record("thing.done", actor="system:host")
    assert number == 0
    with pytest.raises(ServiceUnavailable, match="took no more entries"):
        await log.written(number)


async def test_entries_lost_by_closing_stay_refused(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "RETRY", 0.01)
    mend = unwritable(log)
    lost = log.record("thing.done", actor="system:host")
    await log.close()
    mend()
    await log.written(log.record("thing.done", actor="system:host"))
    with pytest.raises(ServiceUnavailable, match="took no more entries"):
        await log.written(lost)


async def test_cancelling_one_waiter_leaves_the_others(log: AuditLog) -> None:
    numbers_of = [log.record("thing.done", actor="system:host", details={"n": n}) for n in range(3)]
    waiting = [asyncio.create_task(log.written(number)) for number in numbers_of]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.gather(waiting[0], waiting[2])
    assert numbers(log) == [0, 1, 2]


async def test_waiters_are_answered_while_closing(log: AuditLog) -> None:
    waiting = asyncio.create_task(log.written(log.record("thing.done", actor="system:host")))
    await asyncio.gather(log.close(), waiting)
    again = log.record("thing.done", actor="system:host")
    await asyncio.gather(log.written(again), log.close())
    assert len(numbers(log)) == 2


def test_a_closed_loop_does_not_stop_writing(log_path: Path) -> None:
    log = AuditLog(log_path)

    async def give_up() -> None:
        waiting = asyncio.create_task(log.written(log.record("thing.done", actor="system:host")))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(give_up())
    log.flush()
    assert len(tail(log_path, 10)) == 1
    asyncio.run(log.close())


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    return tmp_path / "audit.sqlite3"
