"""Imports MCP servers from the configurations of other programs. None of them is started or reached: each waits until
the operator has seen what it runs and gets, and has approved it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_importers.api.importers import ImportedThing, ImporterInfo, ImportReport, ImportRequest
from tavern_mcp import State
from tavern_mcp.declarations import Server, read_servers
from tavern_mcp.fetched import FETCHERS, packaged

MOST = 200
_LISTS = ("mcpServers", "context_servers", "servers")
"""Under which key the programs keep their servers: Claude and most others, Zed, Visual Studio Code."""
_SAME = ("command", "args", "env", "url", "headers")
_URLS = ("url", "serverUrl", "httpUrl")
_KNOWN = (*_SAME, *_URLS, "type", "transport", "cwd", "name", "description", "source", "enabled")
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_INPUT = re.compile(r"\$\{input:([^}]{1,80})\}")
_FETCHERS = ("docker", "podman", *FETCHERS)


def importers() -> list[ImporterInfo]:
    """Return the one kind of file."""
    entry: dict[str, JsonValue] = {"type": "object", "anyOf": [{"required": [key]} for key in ("command", *_URLS)]}
    servers: dict[str, JsonValue] = {"type": "object", "additionalProperties": entry}
    shapes: list[JsonValue] = [{"required": [key], "properties": {key: servers}} for key in _LISTS]
    return [
        ImporterInfo(
            name="mcp-servers",
            title="configuration of MCP servers",
            handler="tavern_mcp.importing:import_servers",
            marks={"type": "object", "anyOf": shapes},
            access="operate",
        )
    ]


async def import_servers(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Keep the servers of a file, unapproved."""
    document: dict[str, Any] = request.object()
    listed = next((document[key] for key in _LISTS if isinstance(document.get(key), dict)), None)
    if not listed:
        raise InvalidInput(f"{request.file.name} names no MCP servers")
    if len(listed) > MOST:
        raise InvalidInput(f"{request.file.name} names {len(listed):,} MCP servers; at most {MOST} are imported")
    only = request.options.only or ["*"]
    chosen = {name: one for name, one in listed.items() if any(fnmatchcase(name, pattern) for pattern in only)}
    if not chosen:
        raise InvalidInput(f"none of the servers is called {' or '.join(only)}; there are {', '.join(listed)[:500]}")
    async with context.own(State).importing:
        declared, problems = read_servers(context)
        reading = _Reading({*declared, *problems}, request.options.hosts)
        found = await asyncio.to_thread(reading.all, chosen)
        if found and not request.options.dry_run:
            await keep(found, context, request.call)
    things = [ImportedThing(kind="MCP server", id=name, name=_what(one)) for name, one in found.items()]
    steps = [f"look at what {name} runs and gets, and let it: tavern mcp approve {name}" for name in found]
    return ImportReport(things=things, without_effect=reading.without_effect, next_steps=[*steps, *reading.hints])


async def keep(servers: dict[str, dict[str, Any]], context: PluginContext, call: CallContext) -> None:
    """Keep servers that wait for the operator's approval, beside those that are there."""
    kept = context.settings.layers("imported").get("operator") or {}
    change = SettingsChange(plugin=context.plugin, values={"imported": {**kept, **servers}})
    await context.services.get(SETTINGS).save(change, call=call)


def _what(server: Mapping[str, Any]) -> str:
    if url := server.get("url"):
        return str(url)[:200]
    words = [server.get("npm"), server.get("pypi"), server.get("command"), *server.get("args", [])]
    return " ".join(str(word) for word in words if word)[:200]


def _is_there(path: str) -> bool:
    with suppress(OSError, ValueError):
        return Path(path).exists()
    return False


class _Reading:
    """Reads the entries of a file; `taken` are the names that are in use."""

    def __init__(self, taken: set[str], hosts: list[str]) -> None:
        self._taken, self._hosts = taken, hosts
        self.without_effect: list[str] = []
        self.hints: list[str] = []

    def all(self, entries: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the servers that can be kept, by name. Blocking: it looks whether paths are there."""
        found: dict[str, dict[str, Any]] = {}
        for given, entry in entries.items():
            name = re.sub(r"[^a-z0-9]+", "-", given.lower()).strip("-")[:40] or f"server-{len(found) + 1}"
            if name in self._taken:
                self.without_effect.append(f"{given}: there is an MCP server {name} already, and it stays as it is")
                continue
            server = self._server(given, entry if isinstance(entry, dict) else {})
            try:
                Server.model_validate(server)
            except ValidationError as error:
                place = ".".join(map(str, error.errors()[0]["loc"]))
                self.without_effect.append(f"{given}: {place}: {error.errors()[0]['msg']}")
                continue
            self._taken.add(name)
            found[name] = server
        return found

    def _server(self, given: str, entry: dict[str, Any]) -> dict[str, Any]:
        server = {key: entry[key] for key in _SAME if key in entry}
        if url := next((entry[key] for key in _URLS if isinstance(entry.get(key), str)), None):
            server = {"url": url, "headers": server.get("headers", {})}
        for key in ("env", "headers"):
            values = server.get(key)
            if isinstance(values, dict):
                server[key] = {name: self._value(given, name, value) for name, value in values.items()}
        if unknown := sorted(entry.keys() - {*_KNOWN}):
            self.without_effect.append(f"{given}: {', '.join(unknown)[:200]}")
        if "sse" in (entry.get("type"), entry.get("transport")):
            self.hints.append(f"{given} speaks SSE in its file, which is not spoken here; ask it for streamable HTTP")
        if "command" in server:
            self._give(given, server)
        if entry.get("cwd"):
            server["folder"] = entry["cwd"]
        return server

    def _value(self, given: str, name: str, value: Any) -> Any:
        """Return a value of `env` or `headers`; one that stands for a variable of the host as that."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str) and (variable := _VARIABLE.fullmatch(value)) is not None:
            return {"env": variable[1]}
        if isinstance(value, str) and (asked := _INPUT.search(value)) is not None:
            self.hints.append(f"{given}: {name} asks for {asked[1]!r}; write it into extensions.tavern-mcp.imported")
        return value

    def _give(self, given: str, server: dict[str, Any]) -> None:
        """Let a program see the paths that it is called with, which its review names, and say what else it may miss."""
        given_words = server.get("args")
        words = [word for word in given_words if isinstance(word, str)] if isinstance(given_words, list) else []
        paths = [word for word in words if word.startswith("/") and "\0" not in word]
        there = [word for word in paths if _is_there(word)]
        missing = [word for word in paths if word not in there]
        server |= {"read": there} if there else {}
        server |= {"hosts": self._hosts} if self._hosts else {}
        if missing:
            self.hints.append(f"{given} is called with {', '.join(missing)[:200]}, which is not there on this machine")
        if (found := packaged(str(server["command"]), words)) is not None:
            del server["command"]
            server |= found
        elif str(server["command"]).rpartition("/")[2] in _FETCHERS:
            self.hints.append(
                f"{given} is run by {server['command']}, which fetches it at each start, for which the sandbox has no "
                "network: install the program, and name it as the command in extensions.tavern-mcp.imported"
            )
