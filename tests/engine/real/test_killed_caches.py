"""The cache on disk of a host that is killed, or that has no room left."""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
import resource
import signal
import sqlite3

import pytest
from cache_bench import Place, errors, numbered, written
from engine_bench import output
from helpers.repetition import repetitions
from helpers.survival import Child, say

from tavern_engine.cache.disk.entries import decode_entry


async def fill(place: Place, first: int) -> None:
    """Run nodes of which each is another one, 40 at a time, and say the first of those."""
    async with place.host(cacheMegabytes=64) as bench:
        for number in itertools.count(first, 40):
            await bench.run(numbered(number, 40, 3000))
            say(number)


@pytest.mark.timeout(180)
async def test_what_a_killed_host_has_kept_is_whole(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random()
    first = 0
    for kill in range(repetitions(1, 12)):
        async with Child(fill, place, first) as child:
            more = chance.randrange(10)
            while more >= 0:
                first = await child.said() + 40
                more -= place.count() > 100 * (kill + 1)
    place.executed  # noqa: B018
    with contextlib.closing(sqlite3.connect(place.database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert [id for id, signature, _, content in place.rows() if decode_entry(signature, content) is None] == []
    run = await place.run(numbered(0, first, 3000))
    assert len(place.executed) < first
    assert all(output(run, f"n{i}").startswith(f"{i} x") for i in range(first))
    assert errors(caplog) == []


async def fill_disk(place: Place) -> None:
    """Run nodes beyond what the process may write to a file, and say how each run ended."""
    logging.basicConfig(level=logging.WARNING)
    async with place.host() as bench:
        for first, count, size in ((0, 10, 10), (1000, 100, 10_000), (2000, 100, 10_000)):
            say((await bench.run(numbered(first, count, size))).status)
            await written(bench)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))


async def test_a_full_disk_costs_one_line(place: Place) -> None:
    async with Child(fill_disk, place) as child:
        assert await child.ended() == ["complete"] * 3
        (line,) = [line for line in child.errors.splitlines() if "cache" in line]
    assert "writing the cache on disk fails; runs continue without it:" in line and "outputs.sqlite3" in line
    place.executed  # noqa: B018
    await place.run(numbered(0, 10, 10))
    assert place.executed == []
