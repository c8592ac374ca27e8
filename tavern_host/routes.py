"""Routes, socket messages and commands that plugins registered, found again by what is asked for.

aiohttp's own router is frozen once it serves; plugins come and go, so theirs are matched here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tavern_host.contracts.commands import CommandInfo
from tavern_host.contracts.http import MessageInfo, RouteInfo
from tavern_host.contracts.plugins import Problem

I = TypeVar("I")  # noqa: E741
_PART = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Registered(Generic[I]):
    """A descriptor with its owner and the call that reaches its handler (with the plugin's context last)."""

    plugin: str
    info: I
    call: Callable[..., Any]


@dataclass
class Registrations:
    """What all plugins registered for the outside. Each `add_…` returns what takes it back."""

    routes: dict[tuple[str, str], Registered[RouteInfo]] = field(default_factory=dict)
    messages: dict[str, Registered[MessageInfo]] = field(default_factory=dict)
    commands: dict[str, Registered[CommandInfo]] = field(default_factory=dict)
    _patterns: dict[tuple[str, str], re.Pattern[str]] = field(default_factory=dict)

    def add_route(self, item: Registered[RouteInfo]) -> Callable[[], None]:
        """Register a route."""
        key = (item.info.method, item.info.path)
        self.routes[key] = item
        self._patterns[key] = _pattern(item.info.path)

        def remove() -> None:
            del self.routes[key], self._patterns[key]

        return remove

    def add_message(self, item: Registered[MessageInfo]) -> Callable[[], None]:
        """Register a socket message type."""
        self.messages[item.info.type] = item
        return lambda: self.messages.__delitem__(item.info.type)

    def add_command(self, item: Registered[CommandInfo]) -> Callable[[], None]:
        """Register a command."""
        self.commands[item.info.name] = item
        return lambda: self.commands.__delitem__(item.info.name)

    def find(self, method: str, path: str) -> tuple[Registered[RouteInfo] | None, dict[str, str], list[str]]:
        """Return the route for a request with its path's parameters, and the methods that the path allows."""
        allowed = []
        for (registered_method, registered_path), pattern in self._patterns.items():
            match = pattern.fullmatch(path)
            if match is None:
                continue
            if registered_method == method or (method == "HEAD" and registered_method == "GET"):
                return self.routes[registered_method, registered_path], match.groupdict(), []
            allowed.append(registered_method)
        return None, {}, allowed

    def route_problems(self, plugin: str, infos: list[RouteInfo | MessageInfo], *, first_party: bool) -> list[Problem]:
        """Return why routes or messages cannot be registered: taken, or outside of the plugin's own space."""
        problems = []
        taken: Registered[Any] | None
        for info in infos:
            if isinstance(info, MessageInfo):
                taken = self.messages.get(info.type)
                what = f"the message type {info.type}"
            else:
                taken = self.routes.get((info.method, info.path))
                what = f"{info.method} {info.path}"
                own = f"/api/x/{plugin}/"
                if not first_party and not info.path.startswith(own):
                    problems.append(Problem(message=f"the route {what} must begin with {own}"))
            if taken is not None:
                problems.append(Problem(message=f"{what} is registered by {taken.plugin} already"))
        return problems

    def command_problems(self, infos: list[CommandInfo], reserved: frozenset[str]) -> list[Problem]:
        """Return why commands cannot be registered."""
        problems = []
        for info in infos:
            taken = self.commands.get(info.name)
            owner = taken.plugin if taken else "the host" if info.name.split()[0] in reserved else None
            if not re.fullmatch(r"[a-z][a-z0-9-]*( [a-z][a-z0-9-]*)?", info.name):
                problems.append(Problem(message=f"the command name {info.name!r} must be one or two lower-case words"))
            elif owner is not None:
                problems.append(Problem(message=f"the command {info.name!r} belongs to {owner}"))
        return problems


def _pattern(path: str) -> re.Pattern[str]:
    pieces = _PART.split(path)
    return re.compile("".join(re.escape(p) if i % 2 == 0 else f"(?P<{p}>[^/]+)" for i, p in enumerate(pieces)))
