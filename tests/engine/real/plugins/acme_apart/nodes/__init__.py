"""Nodes that hang in threads and in processes of their own, and say how far they are wherever they run."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from tavern_host import NodeContext, Slot, node

Passed = Annotated[Any, Slot(key="value")]


def _note(file: str, line: object) -> None:
    """Add a line to a file."""
    with Path(file).open("a") as notes:
        notes.write(f"{line}\n")


@node(blocking=True)
def block(file: str, seconds: float, value: Any = None) -> Passed:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not Path(f"{file}.over").exists():
        time.sleep(0.02)
    _note(file, "ended")
    return value


@node(isolated=True)
def apart(file: str, seconds: float, value: Any = None) -> Passed:
    """Run in a process of its own: say which, and how long it took."""
    _note(file, f"begin {os.getpid()}")
    time.sleep(seconds)
    _note(file, f"end {os.getpid()}")
    return value


async def _until(file: str) -> None:
    while not Path(file).exists():
        await asyncio.sleep(0.005)


def _two(context: NodeContext) -> None:
    context.progress(1, 4, "first")
    time.sleep(0.01)
    context.progress(2, 4, "second")


@node(cached=False)
async def tell(file: str, context: NodeContext, value: Any = None) -> Passed:
    """Say how far it is, and wait until a file is there."""
    _two(context)
    await _until(file)
    return value


@node(cached=False, blocking=True)
def tell_in_thread(file: str, context: NodeContext, value: Any = None) -> Passed:
    _two(context)
    while not Path(file).exists():
        time.sleep(0.005)
    return value


@node(cached=False, isolated=True)
def tell_apart(file: str, context: NodeContext, value: Any = None) -> Passed:
    return tell_in_thread(file, context, value)


@node(cached=False)
async def tell_in_stream(file: str, context: NodeContext, value: Any = None) -> AsyncIterator[str]:
    _two(context)
    await _until(file)
    yield "done"


@node(cached=False, isolated=True)
def use_plugin_apart(context: NodeContext) -> Annotated[str, Slot(key="value")]:
    return context.plugin.settings.get("anything")
