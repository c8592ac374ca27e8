"""A server collects garbage in its pauses, and not while it is busy."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import pytest
from helpers.waiting import until

from tavern_host.cli.garbage import RARELY, collect_in_pauses


class Ring:
    """Garbage that only a full collection finds, once it is old."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
async def due() -> AsyncIterator[None]:
    """Let a full collection be due, in a process with a server's collections."""
    before, collecting = gc.get_threshold(), asyncio.create_task(collect_in_pauses())
    await asyncio.sleep(0)
    for _ in range(RARELY):
        gc.collect(1)
    yield
    collecting.cancel()
    await asyncio.wait([collecting])
    assert gc.get_threshold() == before


def old_garbage() -> weakref.ref[Ring]:
    """Return what is garbage from now on, among old objects."""
    ring = Ring()
    gc.collect(1)
    return weakref.ref(ring)


@pytest.mark.usefixtures("due")
async def test_garbage_is_collected_in_a_pause() -> None:
    garbage = old_garbage()
    assert gc.get_threshold()[2] > 1_000_000  # Python begins no full collection by itself
    gc.collect(1)
    assert garbage() is not None
    await until(lambda: garbage() is None)
