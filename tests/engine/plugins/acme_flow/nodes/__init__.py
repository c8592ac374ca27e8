"""Nodes that take notes in a file of what they did, fail as often as they are told, branch, stream, and keep state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

from tavern_host import Config, NodeContext, Slot, node
from tavern_host.contracts.wire import Model


def _note(file: str, line: object) -> int:
    """Add a line to a file; return how many it has."""
    path = Path(file)
    with path.open("a") as notes:
        notes.write(f"{line}\n")
    return len(path.read_text().splitlines())


Passed = Annotated[Any, Slot(key="value")]


@node()
def note(file: str, value: Any = None) -> Passed:
    """Pass a value on, and take a note of it."""
    _note(file, value)
    return value


@node(cached=False)
def note_always(file: str, value: Any = None) -> Passed:
    _note(file, value)
    return value


@node()
async def fail_times(file: str, times: int = 1, value: Any = None) -> Passed:
    """Fail until it was called more than so often, by the notes in the file."""
    if (count := _note(file, "called")) <= times:
        raise ValueError(f"failure {count}")
    return value


@node()
async def fail_at(at: Any, value: Any = None, unless: str = "") -> Passed:
    """Fail at one value, unless a file is there."""
    if value == at and not (unless and Path(unless).exists()):
        raise ValueError(f"it is {at}")
    return value


@node()
async def wait_until(file: str, at: Any = None, value: Any = None) -> Passed:
    """Wait until a file is there, or do so at one value alone."""
    while (at is None or value == at) and not Path(file).exists():
        await asyncio.sleep(0.005)
    return value


@node()
async def sleep(seconds: float, value: Any = None) -> Passed:
    await asyncio.sleep(seconds)
    return value


@node()
async def slow_to_end(file: str, seconds: float, value: Any = None) -> Passed:
    """Wait for ever; when it is cancelled, take some time to tidy up."""
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(seconds)
        _note(file, "tidied up")
    return value


@node()
async def swallow(file: str, seconds: float, value: Any = None) -> Passed:
    """Go on although it is cancelled, as often as that happens, until there is a file `{file}.over`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end and not Path(f"{file}.over").exists():
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            _note(file, "cancelled")
    _note(file, "ended")
    return value


@node()
async def cancel_and_fail(file: str, times: int = 1, value: Any = None) -> Passed:
    """Cancel the task that runs it, and fail."""
    task = asyncio.current_task()
    if _note(file, "called") <= times:
        task.cancel()
        raise ValueError("it failed and cancelled its task")
    return value


class Ways(TypedDict, total=False):
    """The outputs of `Switch`, and one that is always there."""

    yes: Annotated[Any, Slot(branch=True)]
    no: Annotated[Any, Slot(branch=True)]
    both: Any


@node()
def switch(condition: bool, value: Any = None) -> Ways:
    return {"yes": value, "both": value} if condition else {"no": value, "both": value}


@node()
def merge(values: Annotated[list[Any], Slot(multi=True)]) -> Passed:
    return values[0]


@node()
def gather(values: Annotated[list[Any], Slot(multi=True, required=False)]) -> Annotated[list[Any], Slot(key="list")]:
    return values


@node()
def needs(must: Any, may: Any = "no value") -> Annotated[list[Any], Slot(key="list")]:
    return [must, may]


@node()
def less(a: float, b: float) -> Annotated[bool, Slot(key="value")]:
    return a < b


@node()
def is_even(number: int) -> Annotated[bool, Slot(key="value")]:
    return number % 2 == 0


@node()
def append(items: list[Any], item: Any) -> Annotated[list[Any], Slot(key="list")]:
    return [*items, item]


@node()
def append_in_place(items: list[Any], item: Any) -> Annotated[list[Any], Slot(key="list")]:
    """Do what no node should: change what came in."""
    items.append(item)
    return items


class Amount(Model):
    """A frozen model, which has no codec."""

    real: int


@node()
def opaque(number: int = 0) -> Annotated[Any, Slot(key="value")]:
    """Give a value that a wire carries and no journal keeps."""
    return Amount(real=number)


@node()
def real(value: Any) -> Annotated[int, Slot(key="value")]:
    return int(value.real)


@node()
def iteration(context: NodeContext, value: Any = None) -> Annotated[Any, Slot(key="value")]:
    return context.iteration


@node(cached=False)
class Tally:
    """Count how often it ran in this run."""

    def __init__(self, start: Annotated[int, Config()] = 0) -> None:
        self.count = start

    async def run(self, value: Any = None) -> Annotated[int, Slot(key="count")]:
        self.count += 1
        return self.count


@node()
async def letters(text: str) -> Annotated[AsyncIterator[str], Slot(key="letters")]:
    """Stream the letters of a text."""
    for letter in text:
        await asyncio.sleep(0)
        yield letter


@node()
async def read(items: AsyncIterator[Any], file: str = "") -> Annotated[list[Any], Slot(key="list")]:
    """Read a stream, and take a note of each item as it comes if there is a file for it."""
    found = []
    async for item in items:
        if file:
            _note(file, item)
        found.append(item)
    return found


@node()
async def read_one(items: AsyncIterator[Any]) -> Annotated[Any, Slot(key="value")]:
    async for item in items:
        return item
    return None


@node()
def append_then_fail(items: list[Any], file: str) -> Annotated[list[Any], Slot(key="list")]:
    """Change what came in, and fail the first time."""
    items.append(2)
    if _note(file, "called") == 1:
        raise ValueError("it had changed its input by then")
    return items


@node(cached=False)
def fail_on_call(file: str, call: int, value: Any = None) -> Passed:
    """Fail when it is called for the so-manieth time; else say for which it was."""
    if (number := _note(file, "called")) == call:
        raise ValueError(f"call {call}")
    return number


@node(cached=False)
async def chatter(times: int, context: NodeContext, value: Any = None) -> Passed:
    """Say very often how far it is."""
    for number in range(times):
        context.progress(number, times)
        await asyncio.sleep(0)
    return value


@node(cached=False)
def misreport(what: Any, context: NodeContext) -> Passed:
    context.progress(what)
    return what
