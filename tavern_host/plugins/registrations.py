"""Routes, socket messages and commands that plugins registered, and looking them up.

aiohttp's own router is frozen once it serves, while plugins are loaded and unloaded, so their routes are matched here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, TypeVar

from tavern_host.contracts.commands import CommandInfo
from tavern_host.contracts.http import MessageInfo, RouteInfo
from tavern_host.contracts.plugins import DescribedRoute, Problem
from tavern_host.runtime.described import schema_of
from tavern_host.runtime.ledger import Ledger

I = TypeVar("I")  # noqa: E741
_PART = re.compile(r"\{(\w+)\}")
_WORD = "[a-z][a-z0-9-]*"
_HOST_OPTIONS = frozenset({"json", "help"})


@dataclass(frozen=True)
class Registered(Generic[I]):
    """A descriptor with its owner, and whether that is first-party, and the call of its handler, which gets the
    plugin's context as its last argument.

    `schema` gives the JSON Schema of a type that the descriptor names; see `InProcessRuntime.schema`."""

    plugin: str
    info: I
    call: Callable[..., Any]
    schema: Callable[..., dict[str, Any]]
    first_party: bool = False


@dataclass
class Registrations:
    """What all plugins registered for clients."""

    routes: dict[tuple[str, str], Registered[RouteInfo]] = field(default_factory=dict)
    messages: dict[str, Registered[MessageInfo]] = field(default_factory=dict)
    commands: dict[str, Registered[CommandInfo]] = field(default_factory=dict)
    own_routes: tuple[RouteInfo, ...] = ()
    sockets: int = 0
    """The routes of the server itself, where there is one, and how many sockets are open at it for this host."""
    raw: tuple[str, ...] = ()
    """Where the paths of raw routes begin."""
    _below: dict[str, dict[tuple[str, str], Registered[RouteInfo]]] = field(default_factory=dict)
    """The routes by what their path begins with, up to its first parameter."""

    def add(self, item: Registered[Any], ledger: Ledger) -> None:
        """Register a route, a type of socket messages or a command, until the plugin's ledger is undone."""
        registered, kind, key = self._place(item.info)
        below = self._below.setdefault(_prefix(key[1]), {}) if kind == "route" else {}
        registered[key] = below[key] = item
        if kind == "route" and item.info.raw:
            self.raw = tuple({*self.raw, _prefix(key[1])})

        def remove() -> None:
            for where in (registered, below):
                if where.get(key) is item:
                    del where[key]

        ledger.add(kind, key if isinstance(key, str) else " ".join(key), remove, offer=True)

    def _place(self, info: RouteInfo | MessageInfo | CommandInfo) -> tuple[dict[Any, Any], str, Any]:
        if isinstance(info, RouteInfo):
            return self.routes, "route", (info.method, info.path)
        if isinstance(info, MessageInfo):
            return self.messages, "message", info.type
        return self.commands, "command", info.name

    def find(self, method: str, path: str) -> tuple[Registered[RouteInfo] | None, dict[str, str], list[str]]:
        """Return the route for a request with its path's parameters, and the methods that the path allows. A route
        without parameters comes before all that have some."""
        if "{" not in path and (literal := self.routes.get((method, path))) is not None:
            return literal, {}, []
        allowed, prefixes = [], [path]
        while prefixes[-1]:
            prefixes.append(prefixes[-1].rpartition("/")[0])
        for (registered_method, registered_path), item in [i for p in prefixes for i in self._below.get(p, {}).items()]:
            match = _pattern(registered_path).fullmatch(path)
            if match is None:
                continue
            if registered_method == method or (method == "HEAD" and registered_method == "GET"):
                return item, match.groupdict(), []
            allowed.append(registered_method)
        return None, {}, allowed

    def error_form(self, path: str) -> str:
        """Return which function says a failure in the form of the protocol that a path belongs to, or nothing."""
        first = path.split("/", 2)[1:2]
        routes = (one.info for one in self.routes.values() if one.info.error_form)
        return next((info.error_form for info in routes if info.path.split("/", 2)[1:2] == first), "")

    def described(self, failed: Callable[[str, str, BaseException], object]) -> list[DescribedRoute]:
        """Return all routes with their types; `failed` is called for a plugin that names a missing one."""
        made = DescribedRoute.construct
        own = [made(plugin="tavern-host", info=i, schemas=_types(i, schema_of)) for i in self.own_routes]
        for registered in list(self.routes.values()):
            plugin, info = registered.plugin, registered.info
            schemas: dict[str, dict[str, Any]] = {}
            try:
                schemas = _types(info, registered.schema)
            except Exception as error:
                failed(plugin, f"the description of {info.method} {info.path}", error)
            own.append(made(plugin=plugin, info=info, schemas=schemas))
        return own

    def route_problems(self, plugin: str, infos: list[RouteInfo | MessageInfo], *, first_party: bool) -> list[Problem]:
        """Return why routes or messages cannot be registered: taken, or outside of the plugin's own paths."""
        problems = []
        seen: set[str] = set()
        for info in infos:
            registered, _, key = self._place(info)
            taken: Registered[Any] | None = registered.get(key)
            if isinstance(info, MessageInfo):
                what = f"the message type {info.type}"
            else:
                what = f"{info.method} {info.path}"
                own = f"/api/x/{plugin}/"
                if not first_party and not info.path.startswith(own):
                    problems.append(Problem(message=f"the route {what} must begin with {own}"))
                if not first_party and info.access == "public":
                    problems.append(Problem(message=f"the route {what} cannot be public: only first-party ones are"))
                if info.error_form and (not first_party or info.path.startswith("/api/")):
                    problems.append(Problem(message=f"the route {what} cannot have a form for errors"))
                problems += [Problem(message=f"the route {what}: {wrong}") for wrong in _path_problems(info.path)]
            owner = plugin if what in seen else None
            if taken is not None and taken.plugin != plugin:  # its own is replaced when it is reloaded
                owner = taken.plugin
            seen.add(what)
            if owner is not None:
                problems.append(Problem(message=f"{what} is registered by {owner} already"))
        return problems

    def command_problems(self, plugin: str, infos: list[CommandInfo], reserved: frozenset[str]) -> list[Problem]:
        """Return why commands cannot be registered; one that the parser cannot read would break all others."""
        problems = []
        owners = {name: taken.plugin for name, taken in self.commands.items() if taken.plugin != plugin}
        for info in infos:
            if not re.fullmatch(rf"{_WORD}( {_WORD})?", info.name):
                problems.append(Problem(message=f"the command name {info.name!r} must be one or two lower-case words"))
                continue
            word = info.name.split()[0]
            owner = "the host" if word in reserved else owners.get(info.name)
            beside = next((n for n in owners if n.split()[0] == word and (n == word) != (info.name == word)), None)
            if owner is not None:
                hint = f"begin it with another word, such as {plugin}"
                problems.append(Problem(message=f"the command {info.name!r} belongs to {owner}", hint=hint))
            elif beside is not None:
                message = f"the command {info.name!r} stands beside {beside!r}; {word!r} is one command or several"
                problems.append(Problem(message=message))
            problems += [Problem(message=f"the command {info.name!r}: {wrong}") for wrong in _parameter_problems(info)]
            owners.setdefault(info.name, plugin)
        return problems


def _types(info: RouteInfo, schema: Callable[[str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: schema(name) for name in (info.body, info.query, info.answer) if name}


def _path_problems(path: str) -> list[str]:
    names = _PART.findall(path)
    problems = [f"{name!r} cannot be the name of a part" for name in names if not name.isidentifier()]
    problems += [f"{name!r} names two parts" for name in dict.fromkeys(names) if names.count(name) > 1]
    if re.search("[{}]", _PART.sub("", path)):
        problems.append("braces stand around a name, such as {id}")
    return problems


def _parameter_problems(info: CommandInfo) -> list[str]:
    problems = []
    keys: set[str] = set()
    for parameter in info.parameters:
        if not re.fullmatch(r"(--)?[a-z][a-z0-9_-]*", parameter.name):
            what = f"the parameter name {parameter.name!r}"
            problems.append(f"{what} must be a lower-case word, with -- before it for an option")
            continue
        if (key := parameter.key) in _HOST_OPTIONS:
            problems.append(f"the parameter {parameter.name} belongs to the host")
        elif key in keys:
            problems.append(f"two parameters are called {key}")
        keys.add(key)
    return problems


def _prefix(path: str) -> str:
    whole, parameter, _ = path.partition("{")
    return whole.rpartition("/")[0] if parameter else whole


@lru_cache(maxsize=1024)
def _pattern(path: str) -> re.Pattern[str]:
    pieces = _PART.split(path)
    return re.compile("".join(re.escape(p) if i % 2 == 0 else f"(?P<{p}>[^/]+)" for i, p in enumerate(pieces)))
