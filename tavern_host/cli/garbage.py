"""Puts off the collecting of garbage while `tavern` starts: a start makes much that stays, and looking through it
time and again takes a tenth of the start."""

from __future__ import annotations

import gc


def put_off() -> None:
    """Collect no garbage until `collect_again`; for the process of a command, not for programs that embed a host."""
    gc.disable()


def collect_again() -> None:
    """Collect garbage again, if that was put off, and never look through what there is by now."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
