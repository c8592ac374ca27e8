"""What is wrong with the tools of one plugin: its files by themselves, and what they name, as the catalog finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from tavern_devtools.api.findings import CheckedPlugin, Finding, found_by
from tavern_host.context import PluginContext
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.plugins import PLUGINS
from tavern_host.contracts.tools import ToolDefinition
from tavern_scripts.api.scripts import SCRIPT_EXECUTION
from tavern_tools.calls.script_tools import without_script
from tavern_tools.catalog.catalog import Catalog
from tavern_tools.catalog.definitions import dependency
from tavern_tools.catalog.files import ToolProblem, check
from tavern_tools.catalog.permissions import Unmet, service_and_method, service_method, service_name, unmet_service

_MEND = {
    "is not JSON": "mend the JSON at this place",
    "there is no script": "write the script, or correct its path",
    "there is no node": "correct the type, or add the node",
    "there is no workflow": "correct the id, or add the workflow",
    "there is no tool": "correct the id, or require the plugin that has it",
    "there is no service": "docs/services.md has all services",
    "there is no method": "docs/services.md has all methods",
    "lacks the permission": "add it to permissions.services.use in plugin.yaml",
    "is defined in": "give one of them another id or version",
}
"""What to do about a problem, by words in it."""
_ELSE = "docs/tools.md says what a tool file may have"


async def check_plugin(plugin: CheckedPlugin, context: PluginContext, catalog: Catalog) -> list[Finding]:
    """Return the faults of a plugin's tool files, and, of one that is loaded, of the names in its tools."""
    folder, loop = plugin.folders.get("tools"), asyncio.get_running_loop()
    if folder is None:
        return []
    around = catalog if plugin.is_loaded else None

    def needed(definition: ToolDefinition) -> list[str]:
        return asyncio.run_coroutine_threadsafe(_needed(context, plugin, definition), loop).result()

    problems = await asyncio.to_thread(check, [Path(folder)], around, needed, plugin.name)
    return [_with_hint(one) for one in found_by("tools", [_ranked(problem, plugin.name) for problem in problems])]


def _with_hint(finding: Finding) -> Finding:
    hint = next((hint for words, hint in _MEND.items() if words in finding.message), _ELSE)
    return finding.model_copy(update={"hint": finding.hint or hint})


def _ranked(problem: ToolProblem, plugin: str) -> ToolProblem:
    """Return a problem as a warning where it is none elsewhere: what another plugin has, or this machine lacks."""
    said = problem.message
    is_anothers = said.startswith(("there is no node ", "there is no tool ")) and not any(
        said.split()[4].startswith(f"{own}:") for own in (plugin, "core")
    )
    return problem.model_copy(update={"warning": True}) if is_anothers or said.startswith(_HERE) else problem


_HERE = "its script cannot be run here: "


async def _needed(context: PluginContext, plugin: CheckedPlugin, definition: ToolDefinition) -> list[str]:
    """Return the needs of a tool that are not met, beside nodes, workflows and tools."""
    found = [*unserved(context, definition)] if plugin.is_loaded else []
    method = service_method(context.services, definition) if definition.kind == "service" else None
    if plugin.is_loaded and method is not None and not isinstance(method, Unmet):
        unmet = await unmet_service(context.services.get(PLUGINS), definition, method.info)
        found += [] if unmet is None else [unmet.reason]
    if definition.kind == "script" and plugin.is_loaded and context.services.has(SCRIPT_EXECUTION):
        said = await without_script(context, definition, plugin.root)
        found += [] if said is None else [said if said.startswith("there is no script ") else f"{_HERE}{said}"]
    return found


def unserved(context: PluginContext, definition: ToolDefinition) -> Iterator[str]:
    """Yield what of services a tool names that is not there."""
    for kind, name in map(dependency, definition.dependencies):
        if kind == "service" and not context.services.has(service_name(name)):
            yield f"there is no service {name}"
    if definition.kind == "service":
        try:
            context.services.method(*service_and_method(definition.implementation))
        except TavernError as error:
            yield error.message
