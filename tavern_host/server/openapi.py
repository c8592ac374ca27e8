"""`GET /api/openapi.json`: all registered routes, the host's and the plugins', as an OpenAPI document (3.1)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from importlib.metadata import version
from typing import Any
from weakref import WeakKeyDictionary

from aiohttp import web

from tavern_host.contracts.http import RouteInfo
from tavern_host.host import Host
from tavern_host.plugins.registrations import Registered
from tavern_host.runtime.described import schema_of
from tavern_host.server.routes import OWN_ROUTES, Route, route
from tavern_host.server.served import host_of

Schema = Callable[..., dict[str, Any]]

_DOCUMENTS: WeakKeyDictionary[Host, tuple[list[Registered[RouteInfo]], bytes]] = WeakKeyDictionary()
"""The document of each host as it was last made, and for which routes: making one takes a second."""
_ABOUT = """The HTTP interface of a tavern host. Every path that begins with `/api/` is also found below
`/api/projects/{projectId}/` for one project of a server that serves several; without it the default project is meant.
Errors are problem details (RFC 9457)."""
_PARAMETER = re.compile(r"\{(\w+)(?::[^}]*)?\}")
_PROBLEM = "tavern_host.contracts.host_api:ProblemDetails"


class _Document:
    """Collects operations, and the schemas that they share by name."""

    def __init__(self) -> None:
        self.paths: dict[str, dict[str, Any]] = {}
        self.schemas: dict[str, Any] = {}

    def add(self, info: RouteInfo, schema: Schema, tag: str) -> None:
        """Add a route. Raises `NotFound` where it names a type that is not there."""
        path = _PARAMETER.sub(r"{\1}", info.path)
        name = "_".join(re.findall(r"\w+", f"{info.method.lower()} {path.removeprefix('/api')}"))
        operation: dict[str, Any] = {"operationId": name, "summary": info.summary, "tags": [tag]}
        parameters = [_parameter("path", name, {"type": "string"}) for name in _PARAMETER.findall(info.path)]
        if info.query:
            parameters += self._query(schema(info.query), tag)
        if parameters:
            operation["parameters"] = parameters
        if info.body:
            content = {"application/json": {"schema": self.shared(schema(info.body), tag)}}
            operation["requestBody"] = {"required": True, "content": content}
        answer = self.shared(schema(info.answer), tag) if info.answer else {}
        done: dict[str, Any] = {"description": "Done."}
        if info.status not in (101, 204):
            done["content"] = {info.content_type: {"schema": answer}}
        problem = {"$ref": "#/components/responses/Problem"}
        operation["responses"] = {str(info.status): done, "4XX": problem, "5XX": problem}
        if info.needs == "public":
            operation["security"] = []
        operation["x-access"] = info.needs
        self.paths.setdefault(path, {})[info.method.lower()] = operation

    def _query(self, schema: dict[str, Any], tag: str) -> list[dict[str, Any]]:
        schema = self._inlined(schema, tag)
        required = schema.get("required", ())
        return [
            {**_parameter("query", name, one), "required": name in required}
            for name, one in schema.get("properties", {}).items()
        ]

    def _inlined(self, schema: dict[str, Any], tag: str) -> dict[str, Any]:
        """Return a schema with the types that it uses among the shared ones; one that is taken by another type gets the
        plugin's name before its own."""
        taken = {}
        definitions = schema.pop("$defs", {})
        for name, definition in definitions.items():
            if (kept := self._kept(name, definition, tag)) != name:
                taken[name] = kept
        return _renamed(schema, taken) if taken else schema

    def _kept(self, name: str, schema: dict[str, Any], tag: str) -> str:
        """Keep a schema, and return under which name."""
        if self.schemas.setdefault(name, schema) != schema:
            name = "".join(part.capitalize() for part in tag.split("-")) + name
            self.schemas[name] = {**schema, "title": name}
        return name

    def shared(self, schema: dict[str, Any], tag: str) -> dict[str, Any]:
        """Return a reference to a schema that has a name of its own."""
        schema = self._inlined(schema, tag)
        if "title" not in schema or "properties" not in schema:
            return schema
        name = self._kept(re.sub(r"\W+", "_", schema["title"]), schema, tag)
        return {"$ref": f"#/components/schemas/{name}"}


def _parameter(place: str, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    parameter = {"in": place, "name": name, "required": True, "schema": schema}
    return parameter | ({"description": schema["description"]} if "description" in schema else {})


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: f"{found[0]}/{names[found[2]]}"
        if key == "$ref" and (found := item.rpartition("/"))[2] in names
        else _renamed(item, names)
        for key, item in value.items()
    }


def document(host: Host, own: tuple[Route, ...]) -> dict[str, Any]:
    """Return the document for a host and the server's own routes. A route that names a type that is not there is in it
    without its schemas, and its plugin is reported."""
    made = _Document()

    for info, _ in own:
        made.add(info, schema_of, "host")
    for registered in list(host.registrations.routes.values()):
        info = registered.info
        try:
            made.add(info, registered.schema, registered.plugin)
        except Exception as error:
            host.report_failure(registered.plugin, f"the description of {info.method} {info.path}", error)
            made.add(info.model_copy(update={"body": "", "query": "", "answer": ""}), schema_of, registered.plugin)
    problem = made.shared(schema_of(_PROBLEM), "host")
    return {
        "openapi": "3.1.0",
        "info": {"title": "tavern-host", "version": version("tavern-host"), "description": _ABOUT},
        "paths": dict(sorted(made.paths.items())),
        "components": {
            "schemas": dict(sorted(made.schemas.items())),
            "responses": {
                "Problem": {
                    "description": "What is wrong, and where.",
                    "content": {"application/problem+json": {"schema": problem}},
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


async def _openapi(request: web.Request) -> web.Response:
    """Describe every route (OpenAPI 3.1)."""
    host = host_of(request)
    routes = list(host.registrations.routes.values())
    known = _DOCUMENTS.get(host)
    if known is None or known[0] != routes:
        made = await asyncio.to_thread(document, host, request.app[OWN_ROUTES])
        known = _DOCUMENTS[host] = routes, json.dumps(made).encode()
    return web.Response(body=known[1], content_type="application/json", charset="utf-8")


ROUTES = (route("GET", "/api/openapi.json", _openapi),)
