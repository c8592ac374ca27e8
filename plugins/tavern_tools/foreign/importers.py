"""The importers of tools: descriptions of HTTP APIs, plugins of VCPToolBox, lists of functions."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.contracts.plugins import PLUGINS
from tavern_importers.api.importers import ImportedThing, ImporterInfo, ImportReport, ImportRequest
from tavern_tools.api.toolfiles import TOOL_FILES, ToolSource
from tavern_tools.foreign.functions import MOST, draft_of, functions_in
from tavern_tools.foreign.openapi import ApiImport
from tavern_tools.foreign.plugin_folder import PluginFolder, is_picked
from tavern_tools.foreign.vcp import MANIFEST, VcpImport
from tavern_workflows.api.workflows import WORKFLOW_MANAGER

_OF = "tavern_tools.foreign.importers"
_HOSTS = "extensions.tavern-scripts.allowedHosts"
_FUNCTION: dict[str, JsonValue] = {
    "type": "object",
    "anyOf": [
        {"required": ["function"], "properties": {"function": {"type": "object", "required": ["name"]}}},
        {"required": ["name", "parameters"]},
        {"required": ["name", "input_schema"]},
    ],
}
_FUNCTIONS: dict[str, JsonValue] = {"type": "array", "minItems": 1, "items": _FUNCTION}


def importers() -> list[ImporterInfo]:
    """Return the kinds of files."""
    described: JsonValue = [{"required": ["openapi"]}, {"required": ["swagger"]}]
    paths: JsonValue = {"paths": {"type": "object"}, "openapi": {"type": "string"}}
    program: JsonValue = [{"required": ["entryPoint"]}, {"required": ["capabilities"]}]
    return [
        ImporterInfo(
            name="openapi",
            title="OpenAPI description",
            handler=f"{_OF}:import_api",
            marks={"type": "object", "anyOf": described, "properties": paths},
            forms=["json", "yaml"],
            access="operate",
        ),
        ImporterInfo(
            name="vcp",
            title="plugin of VCPToolBox",
            handler=f"{_OF}:import_vcp",
            marks={"type": "object", "required": ["name", "pluginType"], "anyOf": program},
            entries=[MANIFEST],
            access="operate",
        ),
        ImporterInfo(
            name="functions",
            title="list of functions for language models",
            handler=f"{_OF}:import_functions",
            marks={
                "anyOf": [
                    _FUNCTIONS,
                    {"type": "object", "required": ["tools"], "properties": {"tools": _FUNCTIONS}},
                    {"type": "object", "required": ["functions"], "properties": {"functions": _FUNCTIONS}},
                ]
            },
        ),
    ]


async def import_api(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Make a folder plugin of an API's description."""
    api = await asyncio.to_thread(_api, request)
    plugin, steps = api.plugin, [_review(api.plugin)]
    settings = f"extensions.{plugin.name}.tools.{plugin.name}:api"
    if api.hosts:
        steps.append(f"let scripts reach {api.hosts[0]}: add it to the setting {_HOSTS}")
    else:
        steps.append(
            f"say where the server is: tavern settings set {settings}.server https://…, and add it to {_HOSTS}"
        )
    steps += [f"say who calls: tavern settings set {settings}.{key} --stdin" for key in dict.fromkeys(api.secrets)]
    return await _kept(plugin, api.without_effect, steps, request, context)


def _api(request: ImportRequest) -> ApiImport:
    api = ApiImport(request.object(), request.options, request.file.name)
    api.read()
    return api


async def import_vcp(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Make a folder plugin of a plugin of VCPToolBox."""
    vcp = await asyncio.to_thread(_vcp, request)
    plugin, steps = vcp.plugin, [_review(vcp.plugin)]
    owner = next(iter(_tools(plugin)))
    prefix = f"extensions.{plugin.name}.tools.{owner}"
    for one in vcp.settings:
        if "defaultValue" not in one:
            how = "--stdin" if one["type"] == "password" else "…"
            steps.append(f"set {one['label']}: tavern settings set {prefix}.{one['key']} {how}")
    if vcp.saved:
        steps.append(f"its settings file is not copied, for it may hold secrets; it has {', '.join(vcp.saved)[:300]}")
    if not request.options.hosts:
        steps.append(f"it reaches no network; if it needs some, import it with --host NAME, and add that to {_HOSTS}")
    return await _kept(plugin, vcp.without_effect, steps, request, context)


def _vcp(request: ImportRequest) -> VcpImport:
    vcp = VcpImport(request.object(), request.file, request.options)
    vcp.read()
    return vcp


def _review(plugin: PluginFolder) -> str:
    return f"look at what it runs and asks for, and let it: tavern plugins grant {plugin.name}"


def _tools(plugin: PluginFolder) -> dict[str, str]:
    """Return the names of a plugin's tools by id."""
    import json

    found = (json.loads(data) for path, data in plugin.files.items() if path.startswith("tools/"))
    return {one["id"]: str(one.get("displayName") or "") for one in found}


async def _kept(
    plugin: PluginFolder, without_effect: list[str], steps: list[str], request: ImportRequest, context: PluginContext
) -> ImportReport:
    if not request.options.dry_run:
        details: dict[str, Any] = {"file": request.file.name, "kind": request.kind, "files": len(plugin.files)}
        audit = context.audit
        await audit.written(audit.record("tools.imported", subject=plugin.name, details=details, call=request.call))
        await asyncio.to_thread(plugin.write, context.project.plugins)
        await context.services.get(PLUGINS).reload(
            plugin.name, call=request.call
        )  # it is listed, and waits for its review
    things = [ImportedThing(kind="plugin", id=plugin.name, name=plugin.title, page=f"/plugins/{plugin.name}")]
    tools = await asyncio.to_thread(_tools, plugin)
    things += [ImportedThing(kind="tool", id=tool_id, name=name) for tool_id, name in tools.items()]
    return ImportReport(things=things, without_effect=without_effect, next_steps=steps)


async def import_functions(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Make drafts of tool files of a list of functions."""
    functions = [one for one in functions_in(request.document) if is_picked(request.options.only, one["name"])]
    if not functions or len(functions) > MOST:
        raise InvalidInput(f"{len(functions):,} functions are picked; 1 to {MOST} become tools")
    files, without_effect, things = context.services.get(TOOL_FILES), list[str](), list[ImportedThing]()
    workflows = {one.id for one in await context.services.get(WORKFLOW_MANAGER).list_workflows()}
    drafts: list[str] = []
    for function in functions:
        name, text, code = draft_of(function, workflows)
        source = ToolSource(text=text, code=code)
        try:
            if not request.options.dry_run:
                await files.save(name, source, expected_revision="", call=request.call)
            elif not (checked := await files.check(name, source)).ok:
                raise InvalidInput("; ".join(one.message for one in checked.problems if not one.warning))
        except (Conflict, InvalidInput) as error:
            without_effect.append(f"{function['name']}: {error.message}")
            continue
        things.append(ImportedThing(kind="tool", id=name, name=function["name"], page=f"/tools/{name}"))
        drafts += [] if code is None else [name]
    steps = [f"write what they do, in scripts/: {', '.join(drafts)[:500]}"] if drafts else []
    return ImportReport(things=things, without_effect=without_effect, next_steps=steps)
