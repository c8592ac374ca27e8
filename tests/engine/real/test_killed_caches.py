"""The cache on disk of a host that is killed, or that has no room left."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3

import pytest
from cache_bench import Place, errors, numbered
from engine_bench import output
from helpers.repetition import repetitions
from runs_bench import begin

from tavern_engine.cache.disk.entries import decode_entry

CHILD = """
import asyncio
from pathlib import Path
from cache_bench import Place, numbered

async def main():
    async with Place(Path({root!r})).host(cacheMegabytes=64) as bench:
        for first in range({first}, 10**9, 40):
            await bench.run(numbered(first, 40, 3000))
            print(first, flush=True)

asyncio.run(main())
"""


@pytest.mark.timeout(180)
async def test_what_a_killed_host_has_kept_is_whole(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random()
    first = 0
    for kill in range(repetitions(1, 12)):
        child = await begin(CHILD.format(root=str(place.root), first=first))
        more = chance.randrange(10)
        while more >= 0:
            first = int(await child.stdout.readline()) + 40
            more -= place.count() > 100 * (kill + 1)
        child.kill()
        await child.wait()
    place.executed  # noqa: B018
    with contextlib.closing(sqlite3.connect(place.database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert [id for id, signature, _, content in place.rows() if decode_entry(signature, content) is None] == []
    run = await place.run(numbered(0, first, 3000))
    assert len(place.executed) < first
    assert all(output(run, f"n{i}").startswith(f"{i} x") for i in range(first))
    assert errors(caplog) == []


FULL = """
import asyncio, logging, resource, signal
from pathlib import Path
from cache_bench import Place, numbered, written

async def main():
    logging.basicConfig(level=logging.WARNING)
    async with Place(Path({root!r})).host() as bench:
        for first, count, size in ((0, 10, 10), (1000, 100, 10_000), (2000, 100, 10_000)):
            print((await bench.run(numbered(first, count, size))).status.value)
            await written(bench)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

asyncio.run(main())
"""


async def test_a_full_disk_costs_one_line(place: Place) -> None:
    child = await begin(FULL.format(root=str(place.root)), stderr=asyncio.subprocess.PIPE)
    out, err = await child.communicate()
    assert out.decode().split() == ["complete"] * 3, err.decode()
    (line,) = [line for line in err.decode().splitlines() if "cache" in line]
    assert "writing the cache on disk fails; runs continue without it:" in line and "outputs.sqlite3" in line
    place.executed  # noqa: B018
    await place.run(numbered(0, 10, 10))
    assert place.executed == []
