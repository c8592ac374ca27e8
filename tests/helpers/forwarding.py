"""A provider that hands every call on to what it overrides; plugins of tests change a method of it."""

from __future__ import annotations

import inspect
from typing import Any

from tavern_host.contracts.services import ServiceKey, interface_methods


def forwarding(key: ServiceKey[Any]) -> Any:
    """Return a class of providers of a service, made with what each overrides (`original`)."""

    def method(name: str) -> Any:
        async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await getattr(self.original, name)(*args, **kwargs)

        def stream(self: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(self.original, name)(*args, **kwargs)

        return call if inspect.iscoroutinefunction(getattr(key.interface, name)) else stream

    def init(self: Any, original: Any) -> None:
        self.original = original

    methods = {name: method(name) for name in interface_methods(key.interface)}
    return type("HandsOn", (key.interface,), {"__init__": init, **methods})


def overriding(key: str, body: str, *, head: str = "") -> str:
    """Return the code of a plugin that overrides the service of a key, given by its name; `body` is what the provider
    does other than to hand calls on, `head` what the plugin begins with."""
    return f"""{head}
from helpers.forwarding import forwarding
from tavern_host import *

class Mine(forwarding({key})):
{body.strip(chr(10))}

@hookimpl
def tavern_override_services():
    return [service_info({key}, Mine)]
"""
