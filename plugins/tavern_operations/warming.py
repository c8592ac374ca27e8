"""Prepares a server that is ready for its first requests, on a thread and part by part, so that none waits for all.

The descriptors of routes name what there is to prepare, and so whoever owns it does: the modules of handlers are
imported, and the models built that they read and answer with.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterable
from pkgutil import resolve_name
from typing import Protocol

from pydantic import BaseModel

from tavern_host.contracts.errors import describe
from tavern_host.contracts.http import RouteInfo

_LATER = 0.2
"""Seconds after the start, in which the server can answer for the first time."""

_log = logging.getLogger("tavern.server")


class Registered(Protocol):
    """A route that a plugin registered."""

    @property
    def info(self) -> RouteInfo:
        """What describes it."""

    @property
    def first_party(self) -> bool:
        """Whether the plugin is."""


async def warm_up(projects: Iterable[Iterable[Registered]]) -> None:
    """Prepare what the first-party ones name of each project's routes, until cancelled.

    What cannot be prepared is left to the request for it, which says why.
    """
    await asyncio.sleep(_LATER)
    for reference in references(one.info for routes in projects for one in routes if one.first_party):
        await asyncio.to_thread(_prepare, reference)


def references(routes: Iterable[RouteInfo]) -> list[str]:
    """Return the handlers and types that routes name, as `module:name`, each once."""
    named = (name for route in routes for name in (route.handler, route.body, route.query, route.answer))
    return [*dict.fromkeys(name.removesuffix("[]") for name in named if name)]


def _prepare(reference: str) -> None:
    try:
        found = resolve_name(reference)
        if isinstance(found, type) and issubclass(found, BaseModel):
            found.model_rebuild()  # nothing where it is built already
    except Exception as error:
        _log.info("%s was not prepared: %s", reference, describe(error))
    gc.collect(1)  # what is new: a full collection would stop everything
    gc.freeze()  # collections leave it out, as they do what a start made
