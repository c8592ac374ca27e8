"""Where in a plugin's code an error was raised: found in the child, and made an exception of the host that says so."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from pydantic import Field, ValidationError

from tavern_host.contracts.errors import PluginFailure, TavernError, describe
from tavern_host.contracts.wire import Model

_PLACE = "place"
_MOST = 2_000
"""Characters of a line of code."""


class _Place(Model):
    """A file and a line; of a syntax error also the column, the text that is there, and what is wrong with it."""

    file: str
    line: int
    column: int | None = None
    text: str | None = Field(default=None, max_length=_MOST)
    said: str | None = Field(default=None, max_length=_MOST)


def with_place(error: Exception, plugin: str, root: str | None) -> TavernError:
    """Return an error as it is sent: with the innermost place of the plugin's own code that it passed."""
    sent = error if isinstance(error, TavernError) else PluginFailure(describe(error), plugin=plugin)
    for one in (error, error.__cause__):
        if one is None or root is None:
            continue
        places = [_Place(file=frame.f_code.co_filename, line=at) for frame, at in traceback.walk_tb(one.__traceback__)]
        if isinstance(one, SyntaxError):
            at = one.lineno or 0
            places.append(
                _Place(file=one.filename or "", line=at, column=one.offset, text=(one.text or "")[:_MOST], said=one.msg)
            )
        for place in reversed(places):
            if Path(place.file).is_relative_to(root):
                sent.info.details[_PLACE] = place.model_dump(mode="json")
                return sent
    return sent


def raised_there(error: TavernError, outside: Callable[[str], str]) -> Exception:
    """Return the error that the host would have caught in its own process: a syntax error as itself, any other with its
    place as its cause. `outside` gives the path of a file as the host sees it."""
    try:
        place = _Place.model_validate(error.info.details.pop(_PLACE, None))
    except ValidationError:
        return error
    there = SyntaxError(place.said or "", (outside(place.file), place.line, place.column, place.text))
    if place.text:
        return there
    error.__cause__ = there
    return error
