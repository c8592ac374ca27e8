"""Nodes that say where they run, take their time, and leave traces in files."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from pathlib import Path
from typing import Annotated, Any

from tavern_host import Config, Slot, node

from .words import GREETING


@node()
def place(value: Any = None) -> Annotated[dict[str, Any], Slot(key="value")]:
    return {"process": os.getpid(), "secret": os.environ.get("SECRET_OF_THE_HOST"), "greeting": GREETING}


@node()
def grow(size: int, value: Any = None) -> Annotated[str, Slot(key="value")]:
    return "x" * size


@node()
def grow_bytes(size: int) -> Annotated[bytes, Slot(key="value")]:
    return b"x" * size


@node()
def weigh(value: bytes) -> Annotated[int, Slot(key="value")]:
    return len(value)


@node()
def length(value: str) -> Annotated[int, Slot(key="value")]:
    return len(value)


@node(type="Turn")
def turn(number: int, rounds: int = 20_000) -> Annotated[int, Slot(key="value")]:
    """Compute for some time."""
    found = str(number).encode()
    for _ in range(rounds):
        found = hashlib.sha256(found).digest()
    return int.from_bytes(found[:4])


@node(cached=False)
def note(path: str, text: str, seconds: float = 0.0, value: Any = None) -> Annotated[str, Slot(key="value")]:
    """Write a line to a file: an effect that must not happen twice."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")
    time.sleep(seconds)
    return text


def _tried(path: str) -> int:
    with Path(path).open("a") as file:
        file.write("x")
    return Path(path).stat().st_size


@node()
def fail_at_first(path: str, times: int) -> Annotated[int, Slot(key="value")]:
    tries = _tried(path)
    if tries <= times:
        raise ValueError(f"failed {tries} times")
    return tries


@node()
async def wait_for(path: str, value: Any = None) -> Annotated[Any, Slot(key="value")]:
    """Say that it has begun, and wait until it is cancelled; say that too."""
    Path(path).write_text("begun")
    try:
        await asyncio.Event().wait()
    finally:
        Path(path).write_text("ended")
    return value


@node(type="Spin")
def spin(seconds: float) -> Annotated[float, Slot(key="value")]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return seconds


@node(type="Die")
def die(value: Any = None) -> Annotated[Any, Slot(key="value")]:
    os._exit(7)


@node(type="Configured")
def configured(text: Annotated[str, Config()] = "plain", value: Any = None) -> Annotated[str, Slot(key="value")]:
    return text


@node()
async def pause_at_first(path: str, after: Any = None) -> Annotated[int, Slot(key="value")]:
    """Give how often it was begun; the first time, never end."""
    tries = _tried(path)
    if tries == 1:
        await asyncio.Event().wait()
    return tries
