"""Prepares a server that is ready for its first requests, on a thread and part by part, so that none waits for all.

Descriptors of routes and messages name what there is to prepare, and so whoever owns it does: the modules of handlers
are imported, and the models built that they read and answer with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pkgutil import resolve_name

from pydantic import BaseModel

from tavern_host.contracts.errors import describe
from tavern_host.contracts.http import MessageInfo, RouteInfo

_log = logging.getLogger("tavern.server")


async def warm_up(descriptors: Iterable[RouteInfo | MessageInfo], settle: Callable[[], object]) -> None:
    """Prepare what first-party descriptors name, until cancelled; `settle` is called in the thread after each part.

    What cannot be prepared is left to the request for it, which says why.
    """
    for reference in references(descriptors):
        await asyncio.to_thread(_prepare, reference, settle)


def references(descriptors: Iterable[RouteInfo | MessageInfo]) -> list[str]:
    """Return the handlers and types that descriptors name, `module:name`, each once."""
    found: dict[str, None] = {}
    for info in descriptors:
        types = (info.body, info.query, info.answer) if isinstance(info, RouteInfo) else ()
        found |= dict.fromkeys([info.handler, *(name.removesuffix("[]") for name in types if name)])
    return [*found]


def _prepare(reference: str, settle: Callable[[], object]) -> None:
    try:
        found = resolve_name(reference)
        if isinstance(found, type) and issubclass(found, BaseModel):
            found.model_rebuild()  # nothing where it is built already
    except Exception as error:
        _log.info("%s was not prepared: %s", reference, describe(error))
    settle()
