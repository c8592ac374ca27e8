"""Follows the calls of one plugin of a running host: what `Plugins.trace` gives.

Nothing is done for it while nobody follows, nor for the calls of other plugins: the first who follows has the plugin's
methods bound to views with an observer before them, and the last one who leaves has them bound without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from textwrap import shorten
from time import perf_counter
from typing import Any

from pydantic import BaseModel, JsonValue

from tavern_host.common.log_context import log_context
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Conflict, describe, one_line
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.hooks import Veto
from tavern_host.contracts.plugins import Problem, withheld

PlaceOf = Callable[[str, BaseException], Problem | None]
"""Returns a failure of the plugin, by where it was and what was raised, with its file and line."""

MOST_WAITING = 2_000
"""How many calls may wait for one follower; of more, the oldest are lost, and it is said how many."""
LONGEST = 300
"""How many characters of what an error says are shown."""


class Tracer:
    """Observes the calls of one plugin, and publishes them on a bus of its own."""

    items: int | None = 0
    """A stream is said to be one, whatever it gave."""

    def __init__(self, manager: Any, plugin: str, bus: Any, place_of: PlaceOf) -> None:
        self._manager = manager
        self._plugin = plugin
        self._bus = bus
        self._place_of = place_of
        self._followers = 0

    def called(
        self, kind: str, plugin: str, name: str, caller: str, arguments: dict[str, Any]
    ) -> Callable[[Any, BaseException | None], None]:
        """Publish a call when it has ended."""
        began = perf_counter()
        about: dict[str, JsonValue] = {"name": name, "caller": _who(caller, arguments)}

        def done(result: Any, error: BaseException | None) -> None:
            about["ms"] = round((perf_counter() - began) * 1000, 3)
            with suppress(Exception):  # an object of a plugin's own may do anything while it is looked at
                about.update({"result": shortly(result)} if error is None else self._failure(name, error))
                self._bus.publish(kind.upper(), about, plugin=plugin)

        return done

    def published(self, event: Event) -> None:
        """Leave events to who subscribes to them."""

    def _failure(self, name: str, error: BaseException) -> dict[str, JsonValue]:
        place = self._place_of(name, error)
        said = shortened(describe(error)) or type(error).__name__
        return {"error": said, **({"file": place.file, "line": place.line} if place and place.file else {})}

    async def follow(self) -> AsyncIterator[Event | Gap]:
        """Yield the calls from now on."""
        self._followers += 1
        subscription = self._bus.subscribe(limit=MOST_WAITING)
        try:
            self._bind()
            async for item in subscription:
                yield item
        finally:
            await subscription.close()
            self._followers -= 1
            self._bind()

    def _bind(self) -> None:
        """Have the plugin's calls observed as long as somebody follows."""
        services, lifecycle, name = self._manager.services, self._manager.lifecycle, self._plugin
        observers = services.boundary.observers
        if self._followers:
            observers[name] = self
        elif observers.get(name) is self:
            del observers[name]
        for loaded in lifecycle.loads_of(name):
            loaded.in_flight.observer = services.boundary.observer_of(name)
        for service in services.services():
            if services.provides(name, service):
                services.rebind(service)


def calls_of(manager: Any, name: str, make_bus: Callable[[], Any], place_of: PlaceOf) -> AsyncIterator[Event | Gap]:
    """Return the calls of a loaded plugin of the host with this `Manager`, from when the first one is asked for;
    `make_bus` makes an event bus of its own. Raises `NotFound`, `Conflict`."""
    record = manager.get(name)
    if name not in manager.active:
        why = withheld(name, [manager.info(name)]) or f"; it is {record.state.value}"
        raise Conflict(f"{name} is not loaded, so nothing of it is called{why}")
    known = manager.services.boundary.observers.get(name)
    return (known if isinstance(known, Tracer) else Tracer(manager, name, make_bus(), place_of)).follow()


def shortened(text: str) -> str:
    """Return the first words of what an error says. None is cut: a part of a secret is masked nowhere."""
    return shorten(one_line(text[: 2 * LONGEST]), LONGEST, placeholder=" …")


def shortly(value: Any) -> str:
    """Return a result's type and size. Texts are not quoted, since one may be a secret."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, Veto):
        return "Veto"
    if isinstance(value, str | bytes):
        what = "text" if isinstance(value, str) else "bytes"
        return f"{what} of {len(value):,}"
    if isinstance(value, BaseModel) or not isinstance(value, dict | list | tuple | set | frozenset):
        return type(value).__name__
    kinds = {type(item).__name__ for item in (value.values() if isinstance(value, dict) else value)}
    inner = f" {kinds.pop()}" if len(kinds) == 1 and not isinstance(value, dict) else ""
    return f"{type(value).__name__} of {len(value):,}{inner}"


def _who(caller: str, arguments: dict[str, Any]) -> str:
    """Return who calls, and for whom where that is somebody else."""
    given = [arguments.get("call"), arguments.get("context"), *arguments.values()]
    principal = next((str(one.principal) for one in given if isinstance(one, CallContext)), "")
    principal = principal or log_context().get("principal", "")
    if not principal or principal in (caller, f"plugin:{caller}"):
        return caller
    return f"{caller} for {principal}" if caller else principal
