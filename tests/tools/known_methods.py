"""Methods of the host's services as tools know them, without a host that would be called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tavern_host.contracts.catalogue import interfaces
from tavern_host.contracts.services import MethodInfo, interface_methods


@dataclass(frozen=True)
class KnownMethod:
    """What is known of a method; it is never called."""

    info: MethodInfo

    async def __call__(self, arguments: Any, call: Any) -> Any:
        raise AssertionError("a decision calls nothing")


def known_method(service: str, method: str) -> KnownMethod | None:
    """Return a method, or None where there is none."""
    known = interfaces()
    info = interface_methods(known[service]).get(method) if service in known else None
    return None if info is None else KnownMethod(info)
