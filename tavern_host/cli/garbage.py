"""Postpones garbage collection while `tavern` starts: most objects of a start stay, and scanning them repeatedly takes
a tenth of it."""

from __future__ import annotations

import gc

RARELY = 100
"""How many collections of the middle generation come before a full one: with Python's 10, reading a document of a
megabyte of small lists has a dozen full ones, each as long as all that the requests in flight hold is large, and holds
up the event loop from whichever thread."""


def put_off() -> None:
    """Collect no garbage until `collect_again`; for the process of a command, not for programs that embed a host."""
    gc.disable()


def collect_again() -> None:
    """Collect garbage again, if that was put off, and never look through what there is by now."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(*gc.get_threshold()[:2], RARELY)
        gc.enable()
