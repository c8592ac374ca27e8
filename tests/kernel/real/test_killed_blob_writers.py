"""A process that is killed while it puts and sweeps Blobs loses none that is held."""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
from pathlib import Path

from helpers.repetition import repetitions
from helpers.survival import killed, say

from tavern_host.storage.blobs import BlobStore


async def write(folder: Path) -> None:
    """Put Blobs that are held and others, sweep, and say the held ones."""
    store = BlobStore(folder)
    for number in itertools.count():
        blob = await store.put(b"%d " % number * 50_000, holder="run")
        await store.put(b"free %d" % number)
        say(blob.hash)
        await store.sweep(0)


async def test_what_is_held_survives_a_kill(tmp_path: Path) -> None:
    folder, said = tmp_path / "blobs", []
    for _ in range(repetitions(2, 20)):
        said += await killed(write, folder, lines=5)
    store = BlobStore(folder)
    await store.sweep(0)
    for name in said:
        assert hashlib.sha256(await store.read(await store.get(name))).hexdigest() == name
    await store.close()
    with sqlite3.connect(folder / "blobs.sqlite3") as connection:
        known = {name for (name,) in connection.execute("SELECT hash FROM blobs")}
        assert known == {name for (name,) in connection.execute("SELECT hash FROM holds")}
    assert known == {path.name for path in folder.glob("??/*")}
