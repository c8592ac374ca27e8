"""Postpones garbage collection while `tavern` starts: most objects of a start stay, and scanning them repeatedly takes
a tenth of it."""

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
