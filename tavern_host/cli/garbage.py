"""Postpones garbage collection while `tavern` starts, since most objects of a start stay, and scanning them repeatedly
takes a tenth of it; lets a server look through all objects when it has little else to do."""

from __future__ import annotations

import asyncio
import gc
import time

RARELY = 100
"""How many collections of the middle generation come before a full one: with Python's 10, reading a document of a
megabyte of small lists has a dozen full ones, each as long as all that the requests in flight hold is large, and holds
up the event loop from whichever thread."""

_LOOK_EVERY, _BUSY, _PATIENCE = 1.0, 0.2, 30
"""Seconds between two looks whether a collection is due, how many of a processor within them mean that the process
is busy, and how many looks a collection waits for a pause at most."""

_LONG, _MOST_FROZEN = 0.02, 20
"""How many seconds a collection takes whose survivors the next ones leave out, and how often that is done before one
looks through everything again."""


def put_off() -> None:
    """Collect no garbage until `collect_again`; for the process of a command, not for programs that embed a host."""
    gc.disable()


def collect_again() -> None:
    """Collect garbage again, if that was put off, and never look through what there is by now."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(*gc.get_threshold()[:2], RARELY)
        gc.enable()


async def collect_in_pauses() -> None:
    """Collect garbage again, with full collections in pauses of the process alone, until cancelled. Those that Python
    begins by itself come amidst large requests, and look through all that these hold."""
    collect_again()
    before, frozen = gc.get_threshold(), 0
    gc.set_threshold(*before[:2], 1 << 30)
    try:
        while True:
            await _pause()
            frozen = _collect(frozen)
    finally:
        gc.set_threshold(*before)


async def _pause() -> None:
    """Wait until a full collection is due, and then for a second with little work, which may not come for long."""
    known, waited = gc.get_stats()[1]["collections"], 0
    while waited < _PATIENCE:
        used = time.process_time()
        await asyncio.sleep(_LOOK_EVERY)
        if gc.get_stats()[1]["collections"] - known >= RARELY:
            waited += 1
            if time.process_time() - used < _BUSY:
                return


def _collect(frozen: int) -> int:
    """Collect all garbage outside of what is frozen; return how often something was since all was looked through."""
    if frozen == _MOST_FROZEN:
        gc.unfreeze()
        frozen = 0
    began = time.perf_counter()
    gc.collect()
    if time.perf_counter() - began < _LONG:
        return frozen
    gc.freeze()
    return frozen + 1
