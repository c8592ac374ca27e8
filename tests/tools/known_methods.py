"""Methods of the host's services as tools know them, without a host that would be called."""

from __future__ import annotations

from typing import Any

from documentation.platform import interfaces

from tavern_host.contracts.services import interface_methods
from tavern_host.runtime.json_calls import JsonCall


async def _never(**arguments: Any) -> Any:
    raise AssertionError("a decision calls nothing")


def known_method(service: str, method: str) -> JsonCall | None:
    """Return a method, or None where there is none. It is never called."""
    interface = interfaces().get(service)
    info = None if interface is None else interface_methods(interface).get(method)
    return None if interface is None or info is None else JsonCall(interface, method, _never, info)
