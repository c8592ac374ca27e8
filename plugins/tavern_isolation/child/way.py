"""The way of a child to its host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tavern_host.contracts.services import ServiceInterface, interface_methods
from tavern_isolation.link import Link
from tavern_isolation.typed import Lent, remote_method, typed


class Way:
    """The way to the host: the link, and the streams lent over it."""

    def __init__(self, link: Link, lent: Lent, plugin: str) -> None:
        self.link = link
        self.lent = lent
        self.plugin = plugin

    def view(self, interface: type[ServiceInterface], original: int | None = None) -> Any:
        """Return an object with the methods of a service, each of which asks the host; with `original`, those of what
        the object of this number overrides."""
        view = type(f"{interface.__name__}View", (), {"__slots__": ()})
        for name in interface_methods(interface):
            setattr(view, name, staticmethod(self._method(interface, name, original)))
        return view()

    def _method(self, interface: type[ServiceInterface], name: str, original: int | None) -> Callable[..., Any]:
        function = getattr(interface, name)
        crossing = typed(function, f"{interface.service_name}.{name}", self.plugin)
        head = {"service": interface.service_name, "method": name, "original": original}
        return remote_method(crossing, function, self.lent, self._ready, "service", head)

    async def _ready(self) -> Link:
        return self.link
