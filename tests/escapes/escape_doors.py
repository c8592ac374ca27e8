"""Ways from one object to the next that Python leaves open, for the tests that document them."""

from __future__ import annotations

import inspect
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import AsyncGeneratorType, FunctionType, MethodType
from typing import Any

Door = Callable[[Any], Iterator[Any]]


def closures(thing: Any) -> Iterator[Any]:
    """Yield what a function closes over, and what a method is bound to."""
    if isinstance(thing, MethodType):
        yield from (thing.__self__, thing.__func__)
    elif isinstance(thing, FunctionType):
        yield from (cell.cell_contents for cell in thing.__closure__ or ())


def frames(thing: Any) -> Iterator[Any]:
    """Yield the variables of a coroutine or generator, and of the frames that an error passed."""
    if inspect.iscoroutine(thing):
        yield from inspect.getcoroutinelocals(thing).values()
    elif isinstance(thing, AsyncGeneratorType):
        yield from thing.ag_frame.f_locals.values() if thing.ag_frame is not None else ()
    elif isinstance(thing, BaseException):
        yield from (v for f, _ in traceback.walk_tb(thing.__traceback__) for v in f.f_locals.values())


def attributes(thing: Any) -> Iterator[Any]:
    """Yield the values of an object's attributes, private ones too, and the items of a container."""
    if isinstance(thing, Mapping):
        yield from thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from thing
    elif not isinstance(thing, type):
        yield from getattr(thing, "__dict__", {}).values()


def reach(start: Any, *doors: Door, wanted: Callable[[Any], bool], within: int = 20_000) -> Any:
    """Return the first thing that is wanted and can be reached from `start`, or None."""
    todo, seen = deque([start]), {id(start): start}
    while todo and len(seen) < within:
        thing = todo.popleft()
        if wanted(thing):
            return thing
        for door in doors:
            for found in door(thing):
                if id(found) not in seen:
                    seen[id(found)] = found
                    todo.append(found)
    return None
