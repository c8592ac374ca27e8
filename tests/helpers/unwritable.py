"""Stores that cannot be written for a while, and small disks."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tavern_host.contracts.databases import Database


@asynccontextmanager
async def unwritable(database: Database) -> AsyncIterator[None]:
    """Let SQLite refuse what is written to a database, until the block ends."""
    await database.read(lambda connection: connection.execute("PRAGMA query_only = ON").fetchall(), [])
    try:
        yield
    finally:
        await database.read(lambda connection: connection.execute("PRAGMA query_only = OFF").fetchall(), [])


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
