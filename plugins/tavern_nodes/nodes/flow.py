"""Nodes that are about the run itself: choosing, waiting, failing, counting."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from tavern_host import Config, InvalidInput, Slot, TavernError, node
from tavern_nodes.values import fits_64_bits

MAX_WAIT = 3600.0
"""The longest wait, in seconds."""

Passed = Annotated[Any, Slot("Any value; it is passed on as it is.")]
PassedOn = Annotated[Any, Slot("The value that came in.", key="value")]


@node(category="Flow", display_name="Choose")
def choose(
    condition: Annotated[bool, Slot("Which of the two to take.")],
    when_true: Annotated[Any, Slot("The value if the condition is true.")] = None,
    when_false: Annotated[Any, Slot("The value if the condition is false.")] = None,
) -> Annotated[Any, Slot("The chosen value.", key="value")]:
    """Pass on one of two values. Both are computed, whichever is chosen."""
    return when_true if condition else when_false


@node(category="Flow", display_name="Wait")
async def wait(
    value: Passed = None,
    seconds: Annotated[float, Slot("How long to wait.", min=0, max=MAX_WAIT)] = 1.0,
) -> PassedOn:
    """Wait, then pass the value on. Interrupting the run ends the wait at once."""
    if not 0 <= seconds <= MAX_WAIT:
        raise InvalidInput(f"Wait: seconds must be from 0 to {MAX_WAIT:g}, not {seconds:g}")
    await asyncio.sleep(seconds)
    return value


@node(category="Flow", display_name="Fail")
def fail(
    value: Passed = None,
    condition: Annotated[bool, Slot("Fail only if this is true.")] = True,
    message: Annotated[str, Slot("What to say.")] = "",
) -> PassedOn:
    """Stop the run with a message if the condition is true; otherwise pass the value on."""
    if condition:
        raise TavernError(message.strip() or "the Fail node was reached")
    return value


@node(category="Flow", display_name="Counter")
class Counter:
    """Counts how often this node ran in this run."""

    def __init__(
        self,
        start: Annotated[int, Config("The first number.")] = 1,
        step: Annotated[int, Config("What is added each time.")] = 1,
    ) -> None:
        self._next = start
        self._step = step

    def run(
        self, trigger: Annotated[Any, Slot("Whatever the count should follow; it is not looked at.")] = None
    ) -> Annotated[int, Slot("The number.", key="count")]:
        """Return the number and go on to the next."""
        count = fits_64_bits(self._next, "Counter")
        self._next = count + self._step
        return count
