"""Objects of a plugin in a process of its own: the host's end, with the methods of a protocol that both sides know."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from weakref import finalize

from tavern_host.contracts.errors import DeadlineExceeded, PluginFailure
from tavern_isolation.described import reference_of
from tavern_isolation.link import Link
from tavern_isolation.notes import Notes
from tavern_isolation.opened import Opened
from tavern_isolation.supervisor import Supervisor
from tavern_isolation.typed import Lent, is_stream, remote_method, typed

PATIENCE = 10.0
"""Seconds for which a thread waits for one method."""


@dataclass(frozen=True)
class Place:
    """The child of a plugin, and what its objects need of this side."""

    plugin: str
    child: Supervisor
    lent: Lent
    notes: Notes
    loop: asyncio.AbstractEventLoop


class StandIn:
    """An object of the host with the methods of one in the child: those of a protocol that its class has. It is opened
    before its first call, and again in a child that took the place of another, and forgotten there with this.

    A method that is not async is called on a thread, which waits. An object that has one is not opened again: what it
    had taken is gone.
    """

    def __init__(
        self,
        place: Place,
        protocol: type,
        head: dict[str, Any],
        parts: list[bytes],
        methods: Collection[str],
    ) -> None:
        self._place = place
        self._opening = head, parts
        self._opened = Opened(head["handler"], place.child, self._open)
        known = head["service"] or reference_of(protocol)
        self._head = {"object": head["object"], "protocol": known, "what": head["handler"]}
        for name, function in inspect.getmembers(protocol, inspect.isfunction):
            if not name.startswith("_") and name in methods:
                setattr(self, name, self._method(name, function))
        if "close" in methods and not hasattr(protocol, "close"):
            self.close = self._close
        finalize(self, place.notes.say, "forgotten", head["object"]).atexit = False

    async def open(self) -> Link:
        """Return the link to a child in which the object is. Raises what its class raises, `PluginEnded`."""
        return await self._opened.link()

    async def _open(self, link: Link) -> None:
        head, parts = self._opening
        await link.call("open", json.dumps(head).encode(), *parts)
        if self._opened.holds:  # until it has taken all
            finalize(self, self._place.notes.say, "released", head["object"]).atexit = False

    def _method(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        plugin, loop = self._place.plugin, self._place.loop
        crossing = typed(function, f"{self._head['what']}.{name} of {plugin}", plugin)
        method = remote_method(crossing, function, self._place.lent, self.open, "method", {**self._head, "name": name})
        if inspect.iscoroutinefunction(function) or is_stream(crossing.hints["return"]):
            return method
        self._opened.holds = True

        def wait(*args: Any, **named: Any) -> Any:
            if asyncio._get_running_loop() is not None:
                raise PluginFailure(f"{name} waits for the process of {plugin}: call it on a thread", plugin=plugin)
            asked = asyncio.run_coroutine_threadsafe(method(*args, **named), loop)
            try:
                return asked.result(PATIENCE)
            except TimeoutError:
                asked.cancel()
                message = f"{self._head['what']}.{name} of {plugin} did not end within {PATIENCE:g} s"
                raise DeadlineExceeded(message, plugin=plugin) from None

        return wait

    async def _close(self) -> None:
        if self._opened.is_open:
            await (await self._opened.link()).call("close", json.dumps(self._head).encode())
