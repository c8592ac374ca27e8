"""`GET /api/openapi.json`: every route is in it, and what it names is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tavern_host import Host
from tavern_host.server.app import ROUTES
from tavern_host.testing.http import served


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (item for key, item in value.items() if key == "$ref")
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


async def test_every_route_is_described_and_every_reference_leads_somewhere(tmp_path: Path) -> None:
    async with Host(tmp_path / "project", third_party=False) as host, served(host) as site:
        answer = await site.get("/api/openapi.json")
        document = await answer.json()
        plugins_routes = [registered.info for registered in host.registrations.routes.values()]
        problems = [problem for plugin in host.plugins() for problem in plugin.problems]
    assert (answer.status, document["openapi"], problems) == (200, "3.1.0", [])
    described = {(method, path) for path, item in document["paths"].items() for method in item}
    routes = [*plugins_routes, *(info for info, _ in ROUTES)]
    assert described == {(info.method.lower(), re.sub(r":[^}]*}", "}", info.path)) for info in routes}
    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(_references(document)) <= schemas | {"#/components/responses/Problem"}
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        assert operation["summary"] and operation["x-access"] in ("public", "read", "create", "operate"), operation
    for info in routes:
        named = document["paths"][re.sub(r":[^}]*}", "}", info.path)][info.method.lower()].get("parameters", [])
        in_path = {parameter["name"] for parameter in named if parameter["in"] == "path"}
        assert in_path == set(re.findall(r"\{(\w+)", info.path))


async def test_what_goes_in_and_out_is_described(tmp_path: Path) -> None:
    async with Host(tmp_path / "project", third_party=False) as host, served(host) as site:
        document = await (await site.get("/api/openapi.json")).json()
        again = await (await site.get("/api/openapi.json")).json()
    assert again == document
    paths, schemas = document["paths"], document["components"]["schemas"]
    run = paths["/api/agents/{id}/runs"]["post"]
    assert run["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/RunBody"}
    assert schemas["RunBody"]["required"] == ["message"]
    assert run["responses"]["202"]["content"]["application/json"]["schema"]["$ref"].endswith("/AgentRun")
    tasks = {parameter["name"]: parameter for parameter in paths["/api/tasks"]["get"]["parameters"]}
    assert set(tasks) == {"status", "tool", "principal", "limit", "offset"}
    listed = paths["/api/workflows"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert listed == {"type": "array", "items": {"$ref": "#/components/schemas/WorkflowSummary"}}
    takes_any = {"/api/tools/execute", "/api/prompt", "/api/characters/{id}/picture"}
    bodies = [
        f"{method} {path}"
        for path, item in paths.items()
        for method, operation in item.items()
        if method in ("put", "patch") and "requestBody" not in operation and path not in takes_any
    ]
    assert bodies == []
    assert document["components"]["responses"]["Problem"]["content"].keys() == {"application/problem+json"}
