"""`GET /api/openapi.json`: all registered routes, the host's and the plugins', as an OpenAPI document (3.1)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from tavern_host import PLUGINS, HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.host_api import ProblemDetails
from tavern_host.contracts.plugins import DescribedRoute
from tavern_studio import State

_ABOUT = """The HTTP interface of a tavern host. Every path that begins with `/api/` is also found below
`/api/projects/{projectId}/` for one project of a server that serves several; without it the default project is meant.
Errors are problem details (RFC 9457); a route with a protocol of its own may answer with the errors of that as well."""
_PROBLEM = "application/problem+json"
_PARAMETER = re.compile(r"\{(\w+)(?::[^}]*)?\}")
_REFERENCE = "#/components/schemas/{model}"


class _Document:
    """Collects operations, and the schemas that they share by name."""

    def __init__(self) -> None:
        self.paths: dict[str, dict[str, Any]] = {}
        self.schemas: dict[str, Any] = {}
        self.problem = self.shared(ProblemDetails.model_json_schema(ref_template=_REFERENCE), "host")

    def add(self, route: DescribedRoute) -> None:
        """Add a route."""
        info, tag = route.info, "host" if route.plugin == "tavern-host" else route.plugin
        path = _PARAMETER.sub(r"{\1}", info.path)
        verb = "follow" if info.status == 302 else info.method.lower()  # `/docs` leads to the page, `/api/docs` is one
        name = "_".join(re.findall(r"\w+", f"{verb} {path.removeprefix('/api')}"))
        operation: dict[str, Any] = {"operationId": name, "summary": info.summary, "tags": [tag]}
        parameters = [_parameter("path", name, {"type": "string"}) for name in _PARAMETER.findall(info.path)]
        if info.query in route.schemas:
            parameters += self._query(dict(route.schemas[info.query]), tag)
        if parameters:
            operation["parameters"] = parameters
        if info.body in route.schemas:
            content = {"application/json": {"schema": self.shared(dict(route.schemas[info.body]), tag)}}
            operation["requestBody"] = {"required": True, "content": content}
        answer = self.shared(dict(route.schemas[info.answer]), tag) if info.answer in route.schemas else {}
        done: dict[str, Any] = {"description": "Done."}
        if info.status not in (101, 204):
            done["content"] = {kind.strip(): {"schema": answer} for kind in info.content_type.split(",")}
        problem: dict[str, Any] = {"$ref": "#/components/responses/Problem"}
        if info.error_type:
            content = {_PROBLEM: {"schema": self.problem}, info.error_type: {}}
            problem = {"description": "What is wrong.", "content": content}
        accepted = {"202": {"description": "Accepted; there is no answer."}} if info.accepts else {}
        made = {"201": done} if info.creates else {}
        responses = {str(info.status): done, **made, **accepted, "4XX": problem, "5XX": problem}
        operation["responses"] = responses
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


def document(routes: Iterable[DescribedRoute]) -> dict[str, Any]:
    """Return the document of these routes."""
    made = _Document()
    for route in routes:
        made.add(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "tavern-host", "version": version("tavern-host"), "description": _ABOUT},
        "paths": dict(sorted(made.paths.items())),
        "components": {
            "schemas": dict(sorted(made.schemas.items())),
            "responses": {
                "Problem": {
                    "description": "What is wrong, and where.",
                    "content": {_PROBLEM: {"schema": made.problem}},
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


async def describe(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Describe every route. The document is made once for all plugins that are loaded: that takes a second."""
    revision, state = context.hooks.revision, context.own(State)
    if state.openapi[0] != revision:
        routes = await context.services.get(PLUGINS).routes()
        state.openapi = revision, await asyncio.to_thread(lambda: json.dumps(document(routes)).encode())
    servers = json.dumps([{"url": request.base}])
    return HttpResponse(
        body=f'{{"servers": {servers}, '.encode() + state.openapi[1].removeprefix(b"{")
    )  # as its reader calls it
