"""A process that is killed while it puts and sweeps Blobs loses none that is held."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import sys
from pathlib import Path

from helpers.repetition import repetitions

from tavern_host.storage.blobs import BlobStore

WRITER = """
import asyncio, sys
from pathlib import Path
from tavern_host.storage.blobs import BlobStore

async def main():
    store = BlobStore(Path(sys.argv[1]))
    number = 0
    while True:
        blob = await store.put(b"%d " % number * 50_000, holder="run")
        await store.put(b"free %d" % number)
        print(blob.hash, flush=True)
        await store.sweep(0)
        number += 1

asyncio.run(main())
"""


async def test_what_is_held_survives_a_kill(tmp_path: Path) -> None:
    folder, said = tmp_path / "blobs", []
    for _ in range(repetitions(2, 20)):
        command = (sys.executable, "-c", WRITER, str(folder))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        said += [(await process.stdout.readline()).decode().strip() for _ in range(5)]
        process.kill()
        await process.wait()
    store = BlobStore(folder)
    await store.sweep(0)
    for name in said:
        assert hashlib.sha256(await store.read(await store.get(name))).hexdigest() == name
    await store.close()
    with sqlite3.connect(folder / "blobs.sqlite3") as connection:
        known = {name for (name,) in connection.execute("SELECT hash FROM blobs")}
        assert known == {name for (name,) in connection.execute("SELECT hash FROM holds")}
    assert known == {path.name for path in folder.glob("??/*")}
