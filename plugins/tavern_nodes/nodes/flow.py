"""Nodes that are about the run itself: choosing and branching, waiting, failing, counting."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict

from tavern_host import Config, InvalidInput, Slot, TavernError, node
from tavern_nodes.values import as_text, fits_64_bits, kind_of, show

MAX_WAIT = 3600.0
"""The longest wait, in seconds."""

MAX_CASES = 8
"""How many cases `SwitchCase` has."""

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


class TwoWays(TypedDict, total=False):
    """The outputs of `Switch`."""

    when_true: Annotated[Any, Slot("The value, if the condition is true.", branch=True)]
    when_false: Annotated[Any, Slot("The value, if the condition is false.", branch=True)]


class Cases(TypedDict, total=False):
    """The outputs of `SwitchCase`."""

    case_1: Annotated[Any, Slot("The value, if it is the first case.", branch=True)]
    case_2: Annotated[Any, Slot("The value, if it is the second case.", branch=True)]
    case_3: Annotated[Any, Slot("The value, if it is the third case.", branch=True)]
    case_4: Annotated[Any, Slot("The value, if it is the fourth case.", branch=True)]
    case_5: Annotated[Any, Slot("The value, if it is the fifth case.", branch=True)]
    case_6: Annotated[Any, Slot("The value, if it is the sixth case.", branch=True)]
    case_7: Annotated[Any, Slot("The value, if it is the seventh case.", branch=True)]
    case_8: Annotated[Any, Slot("The value, if it is the eighth case.", branch=True)]
    default: Annotated[Any, Slot("The value, if it is none of the cases.", branch=True)]
    case: Annotated[int, Slot("The number of the case, from 1; 0 for none.")]


class OneWay(TypedDict, total=False):
    """The output of `Gate`."""

    value: Annotated[Any, Slot("The value, if the gate is open.", branch=True)]


@node(category="Flow", display_name="Switch", bypass={"when_true": "value", "when_false": "value"})
def switch(
    condition: Annotated[bool, Slot("Which of the two ways to go.")],
    value: Passed = None,
) -> TwoWays:
    """Send a value one of two ways. What follows the other way is not run."""
    return {"when_true": value} if condition else {"when_false": value}


@node(
    category="Flow",
    display_name="Switch by case",
    bypass={**{f"case_{number}": "value" for number in range(1, MAX_CASES + 1)}, "default": "value"},
)
def switch_case(
    key: Annotated[Any, Slot("What is compared with the cases: a text, a number, true or false.")],
    value: Annotated[Any, Slot("Any value; it is passed on as it is. Empty: the key is passed on.")] = None,
    cases: Annotated[
        list[Any],
        Config(f"The texts and numbers of up to {MAX_CASES} cases; a list in it is several that go one way."),
    ] = [],  # noqa: B006 - it is never changed, and shown as the default of the configuration
    ignore_case: Annotated[bool, Config("Take capital and small letters as the same.")] = True,
) -> Cases:
    """Send a value the way of the first case that it is. What follows the other ways is not run.

    White space around texts does not count; a number is the same as its text.
    """
    passed = key if value is None else value
    wanted = _case(key, ignore_case, "SwitchCase: the key")
    for number, names in enumerate(_cases(cases), 1):
        if wanted in [_case(name, ignore_case, f"SwitchCase: case {number}") for name in names]:
            return {f"case_{number}": passed, "case": number}  # type: ignore[misc]
    return {"default": passed, "case": 0}


def _cases(cases: Any) -> list[list[Any]]:
    if not isinstance(cases, list):
        raise InvalidInput(f"SwitchCase: cases must be a list of texts and numbers, not {kind_of(cases)}")
    if len(cases) > MAX_CASES:
        raise InvalidInput(f"SwitchCase: there are {len(cases)} cases; at most {MAX_CASES} are possible")
    return [each if isinstance(each, list) else [each] for each in cases]


def _case(value: Any, ignore_case: bool, where: str) -> str:
    if value is not None and not isinstance(value, str | bool | int | float):
        raise InvalidInput(f"{where} must be a text, a number, true or false, not {kind_of(value)}")
    text = as_text(value, where).strip()
    return text.casefold() if ignore_case else text


@node(category="Flow", display_name="Gate", bypass={"value": "value"})
def gate(
    is_open: Annotated[bool, Slot("Whether the value passes.", display_name="open")],
    value: Passed = None,
) -> OneWay:
    """Let a value through or not. What follows a closed gate is not run."""
    return {"value": value} if is_open else {}


@node(category="Flow", display_name="Merge")
def merge(
    values: Annotated[list[Any], Slot("The values, in the order of their connections.", multi=True)],
) -> Annotated[Any, Slot("The first value that is there.", key="value")]:
    """Bring branches together again: pass on the value of the first of them that was run and gave one."""
    return next((value for value in values if value is not None), None)


@node(category="Flow", display_name="Wait", cached=False)
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


@node(category="Flow", display_name="Counter", cached=False)
class Counter:
    """Counts how often this node ran in this run."""

    def __init__(
        self,
        start: Annotated[int, Config("The first number.")] = 1,
        step: Annotated[int, Config("What is added each time.")] = 1,
    ) -> None:
        for name, value in (("start", start), ("step", step)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidInput(f"Counter: {name} must be a whole number, not {show(value)}")
        self._next = start
        self._step = step

    def run(
        self, trigger: Annotated[Any, Slot("Whatever the count should follow; it is not looked at.")] = None
    ) -> Annotated[int, Slot("The number.", key="count")]:
        """Return the number and advance to the next."""
        count = fits_64_bits(self._next, "Counter")
        self._next = count + self._step
        return count
