"""Stores that cannot be written for a while, and small disks."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tavern_host.storage.databases import Database


@asynccontextmanager
async def unwritable(database: Database) -> AsyncIterator[None]:
    """Let SQLite refuse what is written to a database, until the block ends."""
    await database.read(lambda connection: connection.execute("PRAGMA query_only = ON").fetchall(), [])
    try:
        yield
    finally:
        await database.read(lambda connection: connection.execute("PRAGMA query_only = OFF").fetchall(), [])


@asynccontextmanager
async def refusing_one(database: Database, table: str, after: int) -> AsyncIterator[list[int]]:
    """Let SQLite refuse one change of a table, after so many; give the number of each change that was tried."""
    tried: list[int] = []

    def is_refused() -> bool:
        tried.append(len(tried))
        return tried[-1] == after

    def begin(connection: sqlite3.Connection) -> None:
        connection.create_function("is_refused", 0, is_refused)
        for change in ("INSERT", "UPDATE"):
            connection.execute(
                f"CREATE TEMP TRIGGER refusing_{change} BEFORE {change} ON main.{table} WHEN is_refused() "
                "BEGIN SELECT RAISE(ABORT, 'refused'); END"
            )

    await database.write(begin)
    try:
        yield tried
    finally:
        for change in ("INSERT", "UPDATE"):
            await database.write(lambda connection, of=change: connection.execute(f"DROP TRIGGER refusing_{of}"))


async def cancelled_within(database: Database, statement: str, work: Coroutine[Any, Any, Any]) -> None:
    """Cancel `work` in the middle of a statement that begins so, which SQLite carries out all the same."""
    loop, is_cancelled = asyncio.get_running_loop(), threading.Event()

    def cancel() -> None:
        task.cancel()
        is_cancelled.set()

    def see(seen: str) -> None:
        if seen.startswith(statement) and not is_cancelled.is_set():
            loop.call_soon_threadsafe(cancel)
            is_cancelled.wait(10)

    await database.read(lambda connection: connection.set_trace_callback(see), None)
    task = asyncio.ensure_future(work)
    await asyncio.wait([task])
    await database.read(lambda connection: connection.set_trace_callback(None), None)
    assert task.cancelled() and is_cancelled.is_set()


def mount(*arguments: str) -> None:
    """Mount something, or skip the test where that is not allowed."""
    try:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting is for root: {error}")


@contextmanager
def small_disk(folder: Path, size: str = "3m") -> Iterator[None]:
    """Let a new folder be a disk of its own."""
    folder.mkdir(parents=True)
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
